"""Which messages are on the dead letter topic, and since when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from subreplay.rows.model.columns import NEVER, Ints
from subreplay.rows.model.rows import Scope


@dataclass(frozen=True, eq=False)
class DeadLetters:
    """The messages that dead letters name, by topic partition: positions, sorted, and when the letter was published
    (ns). ``rejected``: some letters are in quarantine."""

    of_scope: Mapping[Scope, tuple[Ints, Ints]] = field(default_factory=dict)
    rejected: bool = False

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]], rejected: bool = False) -> DeadLetters:
        """``rows`` have the topic, partition, ledger, entry and batch_index of a message, and ``at``."""
        found: dict[Scope, dict[tuple[int, int, int], int]] = {}
        for row in rows:
            mine = found.setdefault(Scope(row["topic"], row["partition"]), {})
            position = row["ledger"], row["entry"], row["batch_index"]
            mine[position] = min(row["at"], mine.get(position, NEVER))
        arrays = {
            scope: (np.array(sorted(mine), np.int64).T, np.array([mine[p] for p in sorted(mine)], np.int64))
            for scope, mine in found.items()
        }
        return cls(arrays, rejected)

    def published(self, scope: Scope, positions: Ints) -> Ints:
        """When the dead letter of each message was published, ``NEVER`` where none names it; ``positions`` are rows of
        ledger, entry and batch index."""
        found = np.full(positions.shape[1], NEVER)
        if scope in self.of_scope:
            letters, at = self.of_scope[scope]
            n = letters.shape[1]
            whose = np.unique(np.hstack([letters, positions]), axis=1, return_inverse=True)[1].reshape(-1)
            order = np.argsort(whose[:n])
            place = np.minimum(np.searchsorted(whose[:n][order], whose[n:]), n - 1)
            match = whose[:n][order][place] == whose[n:]
            found[match] = at[order][place[match]]
        return found
