"""The messages on the dead letter topic, and the publication times of their dead letters."""

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
    """The messages that dead letters name, by topic partition: sorted positions, and the publication time (ns) of each
    letter. ``rejected``: some letters are in quarantine."""

    of_scope: Mapping[Scope, tuple[Ints, Ints]] = field(default_factory=dict)
    rejected: bool = False

    @classmethod
    def of(cls, rows: pa.Table, rejected: bool = False) -> DeadLetters:
        """Build from ``rows`` with the topic, partition, ledger, entry and batch_index of a message, and ``at``."""
        by = [*_SCOPE, *_POSITION]
        first = rows.group_by(by, use_threads=False).aggregate([("at", "min")])
        first = first.sort_by([(name, "ascending") for name in by])
        found: dict[Scope, tuple[Ints, Ints]] = {}
        begin = 0
        for scope in first.group_by([*_SCOPE], use_threads=False).aggregate([([], "count_all")]).to_pylist():
            selected = first.slice(begin, scope["count_all"])
            positions = np.stack([ints(selected, name) for name in _POSITION])
            found[Scope(scope["topic"], scope["partition"])] = positions, ints(selected, "at_min")
            begin += len(selected)
        return cls(found, rejected)

    def find_published(self, scope: Scope, positions: Ints) -> Ints:
        """Return the publication time of each message's dead letter, ``NEVER`` for none. ``positions`` are rows of
        ledger, entry and batch index."""
        found = np.full(positions.shape[1], NEVER)
        if scope in self.of_scope:
            letters, at = self.of_scope[scope]
            n = letters.shape[1]
            message_numbers = np.unique(np.hstack([letters, positions]), axis=1, return_inverse=True)[1].reshape(-1)
            order = np.argsort(message_numbers[:n])
            place = np.minimum(np.searchsorted(message_numbers[:n][order], message_numbers[n:]), n - 1)
            match = message_numbers[:n][order][place] == message_numbers[n:]
            found[match] = at[order][place[match]]
        return found
