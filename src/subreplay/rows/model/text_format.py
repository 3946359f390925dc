"""Format instants and positions for reports, the same everywhere."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from functools import lru_cache

from subreplay.rows.model.columns import DAY

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@lru_cache(maxsize=1 << 14)
def format_instant(at: int) -> str:
    """Format a time in ns as ISO 8601 UTC, to the microsecond.

    >>> format_instant(1_500_000_000)
    '1970-01-01T00:00:01.500000Z'
    """
    return (_EPOCH + timedelta(microseconds=at // 1_000)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def format_clock(at: int, dates: bool = False) -> str:
    """Format the time of day for sentences, with its date if a run has several days.

    >>> format_clock(1_500_000_000), format_clock(1_500_000_000, dates=True)
    ('00:00:01.500000', '1970-01-01 00:00:01.500000')
    """
    return format_instant(at)[:-1].replace("T", " ") if dates else format_instant(at)[11:-1]


def has_dates(first: int, last: int) -> bool:
    """Return whether a run from ``first`` to ``last`` (ns) has several days (UTC), so that sentences include dates."""
    return first // DAY != last // DAY


def format_position(ledger: int, entry: int, batch_index: int) -> str:
    """Format the position of a message in its log.

    >>> format_position(5, 120, -1), format_position(5, 120, 3)
    ('5:120', '5:120[3]')
    """
    return f"{ledger}:{entry}" if batch_index < 0 else f"{ledger}:{entry}[{batch_index}]"
