"""What several readers with slot ranges cover together (documented row P-KR-3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from subreplay.hashing.slots import HASH_RANGE
from subreplay.rows.model.range_table import Range, RangeTable


class Overlap(NamedTuple):
    """The inclusive range ``[start, end]`` that two readers have in common; ``one`` begins first."""

    start: int
    end: int
    one: str
    other: str


@dataclass(frozen=True)
class Coverage:
    """Inclusive slot ranges in order: read by some reader, by none, by two."""

    covered: tuple[Range, ...]
    gaps: tuple[Range, ...]
    overlaps: tuple[Overlap, ...]


def coverage(readers: Mapping[str, Iterable[Range]], space: Range = (0, HASH_RANGE - 1)) -> Coverage:
    """The coverage of ``space`` by readers' ranges, each inclusive and with its start at or below its end.

    The older profiles serve a reader more than it asked for: give what it gets, ``KeyHashRange.served``. Three readers
    of one slot are three pairs.

    >>> coverage({"r1": [(0, 99)], "r2": [(50, 149)]}, (0, 199))
    Coverage(covered=((0, 149),), gaps=((150, 199),), overlaps=(Overlap(start=50, end=99, one='r1', other='r2'),))
    """
    rows = sorted((start, end, reader) for reader, ranges in readers.items() for start, end in ranges)
    covered = _union((start, end) for start, end, _ in rows)
    starts, ends = np.array(covered, np.int64).reshape(-1, 2).T
    gaps = RangeTable(starts, ends, np.zeros(len(covered), np.int64)).gaps(space)
    return Coverage(tuple(covered), tuple(gaps), tuple(sorted(_overlaps(rows))))


def _union(in_order: Iterable[Range]) -> list[Range]:
    union: list[Range] = []
    for start, end in in_order:
        if union and start <= union[-1][1] + 1:
            union[-1] = union[-1][0], max(union[-1][1], end)
        else:
            union.append((start, end))
    return union


def _overlaps(rows: list[tuple[int, int, str]]) -> Iterable[Overlap]:
    open_: list[tuple[int, str]] = []
    for start, end, reader in rows:
        open_ = [(last, other) for last, other in open_ if last >= start]
        yield from (Overlap(start, min(end, last), other, reader) for last, other in open_ if other != reader)
        open_.append((end, reader))
