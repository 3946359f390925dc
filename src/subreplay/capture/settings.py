"""Settings of a recording: when it is written, and how much may wait; and the counts of its events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Settings:
    """When to write a recording, and how much may wait. Raises ValueError for a value that is not above 0."""

    flush_seconds: float = 5.0  # the most that a killed process loses
    flush_rows: int = 10_000
    rotate_seconds: float = 3_600.0
    rotate_rows: int = 1_000_000
    buffer_rows: int = 100_000  # events that wait for the reading thread, and as many for the disk; more are dropped
    close_seconds: float = 10.0  # the longest time that closing waits for the last rows

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ValueError(f"{name} is {value}, but must be above 0. Set a positive value")


class Counts(NamedTuple):
    """The counts of events by outcome: ``seen = flushed + waiting + dropped``."""

    seen: int
    flushed: int
    waiting: int
    dropped: int
    errors: int
