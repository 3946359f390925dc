"""Which messages are on the dead letter topic, and since when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from subreplay.rows.model.columns import NEVER, Ints, ints
from subreplay.rows.model.rows import Scope

_SCOPE: Final = ("topic", "partition")
_POSITION: Final = ("ledger", "entry", "batch_index")


@dataclass(frozen=True, eq=False)
class DeadLetters:
    """The messages that dead letters name, by topic partition: positions, sorted, and when the letter was published
    (ns). ``rejected``: some letters are in quarantine."""

    of_scope: Mapping[Scope, tuple[Ints, Ints]] = field(default_factory=dict)
    rejected: bool = False

    @classmethod
    def of(cls, rows: pa.Table, rejected: bool = False) -> DeadLetters:
        """``rows`` have the topic, partition, ledger, entry and batch_index of a message, and ``at``."""
        by = [*_SCOPE, *_POSITION]
        first = rows.group_by(by, use_threads=False).aggregate([("at", "min")])
        first = first.sort_by([(name, "ascending") for name in by])
        found: dict[Scope, tuple[Ints, Ints]] = {}
        begin = 0
        for scope in first.group_by([*_SCOPE], use_threads=False).aggregate([([], "count_all")]).to_pylist():
            mine = first.slice(begin, scope["count_all"])
            positions = np.stack([ints(mine, name) for name in _POSITION])
            found[Scope(scope["topic"], scope["partition"])] = positions, ints(mine, "at_min")
            begin += len(mine)
        return cls(found, rejected)

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
