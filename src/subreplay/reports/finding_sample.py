"""Sample findings so that filters by rule, consumer or window still show some of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class SampleFacet(NamedTuple):
    """The properties of a finding that a sample covers; failing findings come first."""

    fails: bool
    consumer: Hashable
    window: Hashable


def order_for_sample(rules: Sequence[Sequence[T]], facet: Callable[[T], SampleFacet]) -> Iterator[tuple[int, int]]:
    """Yield rule and position of every finding in sampling order. Each rule's findings are given in order of time.

    The rules alternate. Within a rule, failing findings come first. Among these, the first of every consumer and window
    comes before the second, and so on. Ties go to findings that are early for their consumer or window.

    >>> first = [SampleFacet(True, "c1", 0), SampleFacet(True, "c1", 0), SampleFacet(True, "c2", 0)]
    >>> second = [SampleFacet(False, "c1", 0)]
    >>> list(order_for_sample([first, second], lambda finding: finding))
    [(0, 0), (1, 0), (0, 2), (0, 1)]
    """
    orders = [_order_positions([facet(finding) for finding in findings]) for findings in rules]
    for rank in range(max(map(len, orders), default=0)):
        yield from ((rule, order[rank]) for rule, order in enumerate(orders) if rank < len(order))


def _order_positions(facets: Sequence[SampleFacet]) -> list[int]:
    """Return the positions of one rule's findings in sampling order."""
    seen: dict[tuple[Hashable, ...], int] = defaultdict(int)

    def count_in_group(*group: Hashable) -> int:
        seen[group] += 1
        return seen[group]

    ranks = []
    for position, (fails, consumer, window) in enumerate(facets):
        turn = count_in_group("both", fails, consumer, window)
        early = min(count_in_group("consumer", fails, turn, consumer), count_in_group("window", fails, turn, window))
        ranks.append((not fails, turn, early, position))
    return [position for *_, position in sorted(ranks)]
