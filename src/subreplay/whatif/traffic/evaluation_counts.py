"""The counts of an evaluation, by window and consumer, and the same as plain rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from subreplay.rows.model.columns import Ints
from subreplay.whatif.traffic.moved_messages import sum_moves

COUNTS: Final = ("messages", "bytes", "keys", "messages_moved", "keys_moved")
WHERE: Final = ("level", "scenario", "topic", "partition", "window", "epoch", "before", "consumer")
BLANK: Final[dict[str, Any]] = dict.fromkeys(WHERE) | dict.fromkeys(COUNTS, 0)
"""A row without content: ``COUNTS`` of what the columns ``WHERE`` name."""


class Extent(NamedTuple):
    """When the first and the last message were published, and the width of windows (ns).

    Windows begin at multiples of ``width``.
    """

    first: int
    last: int
    width: int

    @property
    def windows(self) -> Ints:
        """The start of each window, from that of the first message to that of the last."""
        return np.arange(self.first - self.first % self.width, self.last + 1, self.width, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What each of ``consumers`` would have received in each of ``windows`` (their starts, ns).

    ``by_window`` has five counts, each with a row for each window and a column for each consumer. The last column
    counts messages without an owner. ``keys_of_all`` counts keys and moved keys over all windows, by consumer;
    ``whole_keys`` counts them over all consumers. Keys are distinct; messages without a key count as one. Moved
    messages have another owner than before the last membership change. ``moves`` are rows of ``MOVES``.
    """

    windows: Ints
    consumers: tuple[str, ...]
    by_window: Ints
    keys_of_all: Ints
    whole_keys: Ints
    moves: pa.Table

    @property
    def messages(self) -> Ints:
        """Messages by window and consumer."""
        return self.by_window[0]

    @property
    def bytes(self) -> Ints:
        """Bytes by window and consumer."""
        return self.by_window[1]

    @property
    def keys(self) -> Ints:
        """Distinct keys by window and consumer."""
        return self.by_window[2]

    @property
    def messages_moved(self) -> Ints:
        """Moved messages by window and receiving consumer."""
        return self.by_window[3]

    @property
    def keys_moved(self) -> Ints:
        """Distinct keys with moved messages, by window and consumer."""
        return self.by_window[4]

    def __add__(self, other: Evaluation) -> Evaluation:
        """Add the evaluation of another profile without a common key, of the same plan and extent."""
        return Evaluation(
            self.windows,
            self.consumers,
            self.by_window + other.by_window,
            self.keys_of_all + other.keys_of_all,
            self.whole_keys + other.whole_keys,
            sum_moves(pa.concat_tables([self.moves, other.moves])),
        )

    def rows(self, scenario: str) -> Iterator[dict[str, Any]]:
        """Yield the counts at four levels: ``consumer``, ``move``, ``scenario`` and ``window``, in this order, sorted.

        Columns that a level sums over are null. Rows with zero messages are left out.
        """
        no_owner = len(self.consumers)
        names = [(no_owner, None), *enumerate(self.consumers)]
        by_consumer = self.by_window.sum(axis=1)
        by_consumer[[2, 4]] = self.keys_of_all
        for i, name in names:
            yield from _build_row("consumer", scenario, by_consumer[:, i], consumer=name)
        for move in sorted(self.moves.to_pylist(), key=lambda row: [(at is not None, at) for at in row.values()]):
            is_moved = move["before"] is not None
            more = {"messages_moved": is_moved * move["messages"], "keys_moved": is_moved * move["keys"]}
            yield BLANK | {"level": "move", "scenario": scenario} | move | more
        totals = by_consumer.sum(axis=1)
        totals[[2, 4]] = self.whole_keys
        yield from _build_row("scenario", scenario, totals)
        for w, start in enumerate(self.windows.tolist()):
            for i, name in names:
                yield from _build_row("window", scenario, self.by_window[:, w, i], window=start, consumer=name)


def _build_row(level: str, scenario: str, counts: Ints, **where: Any) -> Iterator[dict[str, Any]]:
    if counts[0]:
        counted = dict(zip(COUNTS, counts.tolist(), strict=True))
        yield BLANK | {"level": level, "scenario": scenario} | where | counted
