"""Times as statistics and those who poll them write them: whole numbers of any unit, and ISO 8601."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import Any, Final

from subreplay.rows.model.contracts import HAPPENED

FORMS: Final = "ISO 8601 with its zone, or a number of s, ms, µs or ns since 1970"
_ISO: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9})\d*)?\s*(Z|[+-]\d\d:?\d\d)", re.ASCII
)
_IN_NAME: Final = re.compile(
    r"(\d{4})-?(\d\d)-?(\d\d)[T_-](\d\d)[-:.]?(\d\d)[-:.]?(\d\d)(?:[.,](\d{1,9})\d*)?(Z|[+-]\d\d:?\d\d)?", re.ASCII
)
_NUMBER_IN_NAME: Final = re.compile(r"(?<!\d)(\d{10}|\d{13}|\d{16}|\d{19})(?!\d)", re.ASCII)
_UNITS: Final = (1_000_000_000, 1_000_000, 1_000, 1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


def instant(value: Any) -> int | None:
    """A time (ns since 1970) from 1971 to 2169, of which a number tells its unit by its size; None: it is none.

    >>> instant("2026-11-22T01:25:01.77452266Z") == instant(1795310701774522660), instant("22.11.2026 01:25")
    (True, None)
    """
    if isinstance(value, float):
        return _legal(round(value * 1_000_000) * 1_000) if abs(value) < 2**40 else None  # seconds
    if isinstance(value, int):
        return next((at for unit in _UNITS if (at := _legal(value * unit)) is not None), None)
    return _written(value) if isinstance(value, str) else None


@lru_cache(maxsize=4096)
def _written(text: str) -> int | None:
    if text.isascii() and text.isdigit() and len(text) < 20:
        return instant(int(text))
    found = _ISO.fullmatch(text.strip())
    return _nanos(found) if found else None


def in_name(name: str) -> int | None:
    """The last time in a file's name, in UTC where it tells no zone: ``stats-20261122T012508Z.json``,
    ``2026-11-22T01-25-08.json``, ``1795310708667.json``; None: there is none."""
    written = [*_IN_NAME.finditer(name)]
    if written:
        return _nanos(written[-1])
    numbers = _NUMBER_IN_NAME.findall(name)
    return instant(int(numbers[-1])) if numbers else None


def _nanos(found: re.Match[str]) -> int | None:
    *parts, fraction, zone = found.groups()
    try:
        year, month, day, hour, minute, second = map(int, parts)
        at = datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)
    except ValueError:
        return None
    seconds = (at - _EPOCH) // timedelta(seconds=1) - _offset(zone)
    return _legal(seconds * 1_000_000_000 + int((fraction or "").ljust(9, "0")))


def _offset(zone: str | None) -> int:
    """Seconds before UTC."""
    if zone in (None, "Z"):
        return 0
    digits = zone[1:].replace(":", "")
    seconds = int(digits[:2]) * 3_600 + int(digits[2:]) * 60
    return -seconds if zone[0] == "-" else seconds


def _legal(at: int) -> int | None:
    return at if HAPPENED.least * 1_000 <= at <= HAPPENED.most * 1_000 + 999 else None
