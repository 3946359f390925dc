"""Parse times as Pulsar statistics and polling scripts write them: integers of any unit, and ISO 8601."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import Any, Final

from subreplay.rows.model.contracts import HAPPENED

TIME_FORMS: Final = "ISO 8601 with its zone, or a number of s, ms, µs or ns since 1970"
_ISO: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9})\d*)?\s*(Z|[+-]\d\d:?\d\d)", re.ASCII
)
_TIME_IN_NAME: Final = re.compile(
    r"(\d{4})-?(\d\d)-?(\d\d)[T_-](\d\d)[-:.]?(\d\d)[-:.]?(\d\d)(?:[.,](\d{1,9})\d*)?(Z|[+-]\d\d:?\d\d)?", re.ASCII
)
_NUMBER_IN_NAME: Final = re.compile(r"(?<!\d)(\d{10}|\d{13}|\d{16}|\d{19})(?!\d)", re.ASCII)
_UNITS: Final = (1_000_000_000, 1_000_000, 1_000, 1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


def parse_time(value: Any) -> int | None:
    """Parse a time from 1971 to 2169 as ns since 1970, or return None. The size of a number determines its unit.

    >>> parse_time("2026-11-22T01:25:01.77452266Z") == parse_time(1795310701774522660), parse_time("22.11.2026 01:25")
    (True, None)
    """
    if isinstance(value, float):
        return _check_range(round(value * 1_000_000) * 1_000) if abs(value) < 2**40 else None  # seconds
    if isinstance(value, int):
        return next((at for unit in _UNITS if (at := _check_range(value * unit)) is not None), None)
    return _parse_text(value) if isinstance(value, str) else None


@lru_cache(maxsize=4096)
def _parse_text(text: str) -> int | None:
    if text.isascii() and text.isdigit() and len(text) < 20:
        return parse_time(int(text))
    match = _ISO.fullmatch(text.strip())
    return _match_to_nanos(match) if match else None


def parse_time_in_name(name: str) -> int | None:
    """Parse the last time in a file name, or return None. A time without a zone is UTC.

    Examples: ``stats-20261122T012508Z.json``, ``2026-11-22T01-25-08.json``, ``1795310708667.json``.
    """
    written = [*_TIME_IN_NAME.finditer(name)]
    if written:
        return _match_to_nanos(written[-1])
    numbers = _NUMBER_IN_NAME.findall(name)
    return parse_time(int(numbers[-1])) if numbers else None


def _match_to_nanos(match: re.Match[str]) -> int | None:
    *parts, fraction, zone = match.groups()
    try:
        year, month, day, hour, minute, second = map(int, parts)
        at = datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)
    except ValueError:
        return None
    seconds = (at - _EPOCH) // timedelta(seconds=1) - _parse_zone(zone)
    return _check_range(seconds * 1_000_000_000 + int((fraction or "").ljust(9, "0")))


def _parse_zone(zone: str | None) -> int:
    """Return the zone's offset from UTC in seconds."""
    if zone in (None, "Z"):
        return 0
    digits = zone[1:].replace(":", "")
    seconds = int(digits[:2]) * 3_600 + int(digits[2:]) * 60
    return -seconds if zone[0] == "-" else seconds


def _check_range(at: int) -> int | None:
    return at if HAPPENED.least * 1_000 <= at <= HAPPENED.most * 1_000 + 999 else None
