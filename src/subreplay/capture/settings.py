"""When a recording is written, how much of it may wait, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Settings:
    """When to write, and how much may wait. Raises ValueError for what is not above 0."""

    flush_seconds: float = 5.0  # what a killed process loses at most
    flush_rows: int = 10_000
    rotate_seconds: float = 3_600.0
    rotate_rows: int = 1_000_000
    buffer_rows: int = 100_000  # events that wait for being read, and as many for the disk; more are dropped
    close_seconds: float = 10.0  # what closing waits for the last rows at most

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ValueError(f"{name} = {value}: must be above 0")


class Counts(NamedTuple):
    """What became of the events so far: ``flushed``, ``waiting`` and ``dropped`` make up ``seen``."""

    seen: int
    flushed: int
    waiting: int
    dropped: int
    errors: int
