"""The joint coverage of several readers with slot ranges (documented row P-KR-3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from subreplay.hashing.slots import HASH_RANGE
from subreplay.rows.model.range_table import Range, RangeTable


class Overlap(NamedTuple):
    """The inclusive range ``[start, end]`` that two readers share; the range of ``first_reader`` begins first."""

    start: int
    end: int
    first_reader: str
    second_reader: str


@dataclass(frozen=True)
class Coverage:
    """Inclusive slot ranges in order: read by some reader, by none, by two."""

    covered: tuple[Range, ...]
    gaps: tuple[Range, ...]
    overlaps: tuple[Overlap, ...]


def compute_coverage(readers: Mapping[str, Iterable[Range]], space: Range = (0, HASH_RANGE - 1)) -> Coverage:
    """Compute the coverage of ``space`` by the readers' ranges, which are inclusive with start <= end.

    The older profiles serve a reader more than its ranges, so pass the result of
    ``KeyHashRangePolicy.compute_served_ranges``. Three readers of one slot are three pairs.

    >>> found = compute_coverage({"r1": [(0, 99)], "r2": [(50, 149)]}, (0, 199))
    >>> found.covered, found.gaps
    (((0, 149),), ((150, 199),))
    >>> found.overlaps
    (Overlap(start=50, end=99, first_reader='r1', second_reader='r2'),)
    """
    rows = sorted((start, end, reader) for reader, ranges in readers.items() for start, end in ranges)
    covered = _merge_ranges((start, end) for start, end, _ in rows)
    starts, ends = np.array(covered, np.int64).reshape(-1, 2).T
    gaps = RangeTable(starts, ends, np.zeros(len(covered), np.int64)).gaps(space)
    return Coverage(tuple(covered), tuple(gaps), tuple(sorted(_find_overlaps(rows))))


def _merge_ranges(in_order: Iterable[Range]) -> list[Range]:
    union: list[Range] = []
    for start, end in in_order:
        if union and start <= union[-1][1] + 1:
            union[-1] = union[-1][0], max(union[-1][1], end)
        else:
            union.append((start, end))
    return union


def _find_overlaps(rows: list[tuple[int, int, str]]) -> Iterable[Overlap]:
    open_ranges: list[tuple[int, str]] = []
    for start, end, reader in rows:
        open_ranges = [(last, other) for last, other in open_ranges if last >= start]
        yield from (Overlap(start, min(end, last), other, reader) for last, other in open_ranges if other != reader)
        open_ranges.append((end, reader))
