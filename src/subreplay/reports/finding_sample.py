"""Few of many findings, so chosen that whoever narrows them to a rule, a consumer or a window still finds some."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class SampleFacet(NamedTuple):
    """What a finding is narrowed by; those that fail are taken before those that do not."""

    fails: bool
    consumer: Hashable
    window: Hashable


def order_for_sample(rules: Sequence[Sequence[T]], facet: Callable[[T], SampleFacet]) -> Iterator[tuple[int, int]]:
    """Rule and position of every finding, in the order in which a sample takes them; each rule's are in order of time.

    The rules take turns. Within a rule: failing ones; of these the first of every consumer in every window, then the
    second, and so on; and where these are many, those first that are among the first of their consumer or window.

    >>> first = [SampleFacet(True, "c1", 0), SampleFacet(True, "c1", 0), SampleFacet(True, "c2", 0)]
    >>> second = [SampleFacet(False, "c1", 0)]
    >>> list(order_for_sample([first, second], lambda finding: finding))
    [(0, 0), (1, 0), (0, 2), (0, 1)]
    """
    orders = [_order_positions([facet(finding) for finding in findings]) for findings in rules]
    for rank in range(max(map(len, orders), default=0)):
        yield from ((rule, order[rank]) for rule, order in enumerate(orders) if rank < len(order))


def _order_positions(facets: Sequence[SampleFacet]) -> list[int]:
    """Positions of one rule's findings in the order in which they are taken."""
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
