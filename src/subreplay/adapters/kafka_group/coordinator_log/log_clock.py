"""Convert the local times of log lines to instants in microseconds since 1970."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from subreplay.errors import ConfigError
from subreplay.rows.model.columns import UNKNOWN, Ints
from subreplay.rows.model.contracts import FIRST_TIME, LAST_TIME

NO_TIME: Final = UNKNOWN
TIMESTAMP: Final = (
    r"(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)[T ](?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
    r"(?:[.,](?P<fraction>\d{1,9}))?(?: ?(?P<zone>Z|[+-]\d\d:?\d\d))?"
)
_QUARTER_HOUR: Final = 900_000_000  # µs; zones change their offset only at quarters of an hour
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


class LocalInstants(NamedTuple):
    """Instants in µs since 1970 (``NO_TIME`` for none), and whether the clock showed that time ``twice``."""

    at: Ints
    twice: NDArray[np.bool_]


class LocalClock:
    """A local clock in one time zone. Raises ``ConfigError`` where the zone does not exist."""

    def __init__(self, name: str) -> None:
        self.name = name
        try:
            self.zone = timezone.utc if name == "UTC" else ZoneInfo(name)
        except (KeyError, ValueError, OSError) as error:
            raise ConfigError(f"time_zone {name!r} does not exist. Use a name such as UTC or Europe/Berlin") from error

    def convert(self, shown: pa.Array) -> LocalInstants:
        """Convert local times, which are a struct with the parts of ``TIMESTAMP`` as strings, to instants.

        A time that the clock showed twice, because it was set back, is the first instant. There is no instant for a
        time that it never showed, because it was set forward or the calendar has no such day, or for illegal years.
        """
        wall = _parse_local_times(shown)
        zones = pc.struct_field(shown, "zone").fill_null("")
        has_zone = np.asarray(pc.not_equal(zones, "").to_numpy(zero_copy_only=False), np.bool_)
        at, twice = self._convert_in_zone(wall)
        at[has_zone] = wall[has_zone] - _parse_offsets(zones.filter(pa.array(has_zone)))
        possible = (wall != NO_TIME) & (at >= FIRST_TIME) & (at <= LAST_TIME)
        return LocalInstants(np.where(possible, at, NO_TIME), twice & ~has_zone & possible)

    def _convert_in_zone(self, wall: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        quarters, row = np.unique(np.where(wall == NO_TIME, 0, wall // _QUARTER_HOUR), return_inverse=True)
        first, second = (np.array([self._find_offset(q, fold) for q in quarters.tolist()], np.int64) for fold in (0, 1))
        earlier, later = wall - first[row], wall - second[row]
        # where the clock skips a time, the two offsets are in the other order
        return np.where(later < earlier, NO_TIME, earlier), later > earlier

    def _find_offset(self, quarter: int, fold: int) -> int:
        """Return the zone's offset (µs) when its clock shows this quarter of an hour since 1970."""
        wall = _EPOCH + timedelta(microseconds=quarter * _QUARTER_HOUR)
        offset = wall.replace(tzinfo=self.zone, fold=fold).utcoffset()
        assert offset is not None  # every zone has one
        return offset // timedelta(microseconds=1)


def _parse_local_times(shown: pa.Array) -> Ints:
    """Convert local times to µs since the start of 1970 on the same clock."""
    year, month, day, hour, minute, second = (
        _parse_numbers(pc.struct_field(shown, name)) for name in ("year", "month", "day", "hour", "minute", "second")
    )
    digits = pc.struct_field(shown, "fraction").fill_null("")
    micros = _parse_numbers(pc.utf8_slice_codeunits(pc.utf8_rpad(digits, 9, "0"), 0, 6))
    months = (year - 1970) * 12 + month - 1
    days = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) + day - 1
    same_month = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64) == months
    legal = same_month & (month >= 1) & (month <= 12) & (day >= 1) & (hour < 24) & (minute < 60) & (second < 60)
    legal &= (year >= 1970) & (year <= 2200)
    seconds = ((days * 24 + hour) * 60 + minute) * 60 + second
    return np.where(legal, seconds * 1_000_000 + micros, NO_TIME)


def _parse_numbers(texts: pa.Array) -> Ints:
    """Parse texts of digits; null and empty text are 0."""
    filled = pc.if_else(pc.equal(texts, ""), "0", texts).fill_null("0")
    return np.asarray(filled.cast(pa.int64()).to_numpy(zero_copy_only=False), np.int64)


def _parse_offsets(zones: pa.Array) -> Ints:
    """Parse the offsets (µs) of zones such as Z, +0200 or -03:30."""
    distinct = zones.dictionary_encode()
    offsets = [_parse_offset(zone) for zone in distinct.dictionary.to_pylist()]
    return np.asarray(np.array(offsets, np.int64)[np.asarray(distinct.indices)])


def _parse_offset(zone: str) -> int:
    if zone == "Z":
        return 0
    minutes = int(zone[1:3]) * 60 + int(zone[-2:])
    return (-1 if zone[0] == "-" else 1) * minutes * 60_000_000
