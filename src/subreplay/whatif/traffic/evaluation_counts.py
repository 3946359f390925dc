"""What an evaluation counts, by window and consumer; and the same as plain rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from subreplay.rows.model.columns import Ints
from subreplay.whatif.traffic.moved_messages import summed

COUNTS: Final = ("messages", "bytes", "keys", "messages_moved", "keys_moved")
WHERE: Final = ("level", "scenario", "topic", "partition", "window", "epoch", "before", "consumer")
BLANK: Final[dict[str, Any]] = dict.fromkeys(WHERE) | dict.fromkeys(COUNTS, 0)
"""A row that says nothing: ``COUNTS``, of what ``WHERE`` names."""


class Extent(NamedTuple):
    """When the first and the last message of all were published, and how wide windows are (ns); they begin at whole
    multiples of ``width``."""

    first: int
    last: int
    width: int

    @property
    def windows(self) -> Ints:
        """When each window begins, from that of the first message to that of the last."""
        return np.arange(self.first - self.first % self.width, self.last + 1, self.width, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What each of ``consumers`` would have got in each of ``windows`` (their starts, ns).

    ``by_window`` are five counts, each with a row for each window and a column for each consumer; the last column is of
    what nobody would have got. ``keys_of_all`` counts keys and keys moved over all windows, by consumer, and
    ``whole_keys`` over all consumers. Keys are distinct; messages without a key count as one. What is moved came to
    another owner than before the last change of the members; ``moves`` are rows of ``MOVES``.
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
        """Messages that were moved, by window and consumer that got them."""
        return self.by_window[3]

    @property
    def keys_moved(self) -> Ints:
        """Distinct keys with messages that were moved, by window and consumer."""
        return self.by_window[4]

    def __add__(self, other: Evaluation) -> Evaluation:
        """The sum over two profiles without a common key, of the same plan and extent."""
        return Evaluation(
            self.windows,
            self.consumers,
            self.by_window + other.by_window,
            self.keys_of_all + other.keys_of_all,
            self.whole_keys + other.whole_keys,
            summed(pa.concat_tables([self.moves, other.moves])),
        )

    def rows(self, scenario: str) -> Iterator[dict[str, Any]]:
        """Its counts at four levels: ``consumer``, ``move``, ``scenario`` and ``window``, in this order, and sorted;
        a level says nothing of what it sums over. What is zero is no row."""
        nobody = len(self.consumers)
        names = [(nobody, None), *enumerate(self.consumers)]
        by_consumer = self.by_window.sum(axis=1)
        by_consumer[[2, 4]] = self.keys_of_all
        for i, name in names:
            yield from _row("consumer", scenario, by_consumer[:, i], consumer=name)
        for move in sorted(self.moves.to_pylist(), key=lambda row: [(at is not None, at) for at in row.values()]):
            gone = move["before"] is not None
            more = {"messages_moved": gone * move["messages"], "keys_moved": gone * move["keys"]}
            yield BLANK | {"level": "move", "scenario": scenario} | move | more
        whole = by_consumer.sum(axis=1)
        whole[[2, 4]] = self.whole_keys
        yield from _row("scenario", scenario, whole)
        for w, start in enumerate(self.windows.tolist()):
            for i, name in names:
                yield from _row("window", scenario, self.by_window[:, w, i], window=start, consumer=name)


def _row(level: str, scenario: str, counts: Ints, **where: Any) -> Iterator[dict[str, Any]]:
    if counts[0]:
        counted = dict(zip(COUNTS, counts.tolist(), strict=True))
        yield BLANK | {"level": level, "scenario": scenario} | where | counted
