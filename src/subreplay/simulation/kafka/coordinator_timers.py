"""Actions that the coordinator does later, by time.

Actions of one instant run in the order in which they were added.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from subreplay.simulation.pulsar.broker.broker_records import NEVER

Action = Callable[[], None]


class TimerQueue:
    """Future actions. Times are in ns."""

    def __init__(self) -> None:
        self._actions: list[tuple[int, int, Action]] = []
        self._entered = 0

    def add(self, at: int, action: Action) -> None:
        """Schedule ``action`` for the time ``at``."""
        heappush(self._actions, (at, self._entered, action))
        self._entered += 1

    def __len__(self) -> int:
        return len(self._actions)

    @property
    def next_at(self) -> int:
        """When the next action is due; ``NEVER`` if there is none."""
        return self._actions[0][0] if self._actions else NEVER

    def pop(self) -> tuple[int, Action]:
        """Remove and return the next action and its time."""
        at, _, action = heappop(self._actions)
        return at, action
