"""What the coordinator does later: deeds by time, those of one instant in the order in which they were entered."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from subreplay.dispatch.broker.records import NEVER

Deed = Callable[[], None]


class Agenda:
    """Deeds to come; times are ns."""

    def __init__(self) -> None:
        self._deeds: list[tuple[int, int, Deed]] = []
        self._entered = 0

    def enter(self, at: int, deed: Deed) -> None:
        """``deed`` is to be done ``at``."""
        heappush(self._deeds, (at, self._entered, deed))
        self._entered += 1

    def __len__(self) -> int:
        return len(self._deeds)

    @property
    def next_at(self) -> int:
        """When the next deed is due; ``NEVER`` if there is none."""
        return self._deeds[0][0] if self._deeds else NEVER

    def pop(self) -> tuple[int, Deed]:
        """The next deed and its time."""
        at, _, deed = heappop(self._deeds)
        return at, deed
