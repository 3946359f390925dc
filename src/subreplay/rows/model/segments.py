"""The segments of a scalable topic (PIP-460): ``topic://tenant/namespace/topic`` is a graph of them.

Each segment is a topic of its own, ``segment://tenant/namespace/topic/<first>-<last>-<id>``, with the keys whose hash
(murmur3, seed 0, all 32 bits) has its upper 16 bits in the range from ``first`` to ``last``. A split or a merge seals
segments and creates their children. Here a segment is a partition of the topic, and its number is its id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

SCALABLE: Final = "topic://"
_SEGMENT: Final = re.compile(r"segment://(.+)/[0-9a-f]{4}-[0-9a-f]{4}-(\d+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment: its ``id``, its first and last hash (upper 16 bits, inclusive), its number of entry ``buckets``, its
    parents, and when it was created and sealed (ns; None: it is active)."""

    id: int
    first: int
    last: int
    buckets: int
    parents: tuple[int, ...] = ()
    created: int = 0
    sealed: int | None = None


def parse_segment(topic: str) -> tuple[str, int] | None:
    """Parse the name of a segment's topic into the topic and the segment's id; None for another name.

    >>> parse_segment("segment://public/default/orders/0000-7fff-1")
    ('topic://public/default/orders', 1)
    """
    found = _SEGMENT.fullmatch(topic)
    return (f"{SCALABLE}{found[1]}", int(found[2])) if found else None


def find_ancestors(segments: Iterable[Segment]) -> Mapping[int, frozenset[int]]:
    """Return the parents of each segment, their parents, and so on, by id.

    >>> graph = [Segment(0, 0, 65535, 4), Segment(1, 0, 32767, 2, (0,)), Segment(2, 32768, 65535, 2, (0,))]
    >>> {id: sorted(of) for id, of in find_ancestors([*graph, Segment(3, 0, 65535, 4, (1, 2))]).items()}
    {0: [], 1: [0], 2: [0], 3: [0, 1, 2]}
    """
    parents = {segment.id: segment.parents for segment in segments}
    found: dict[int, frozenset[int]] = {}
    for segment in sorted(parents):  # a child is created after its parents, so its id is higher
        of = [parent for parent in parents[segment] if parent in found]
        found[segment] = frozenset(of).union(*(found[parent] for parent in of))
    return found
