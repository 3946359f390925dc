"""What the sections of a run file are made of: durations, and models that know every key."""

from __future__ import annotations

import re
from datetime import date as Date
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from subreplay.hashing.producer_routing import SCHEME_ALIASES, SCHEME_NAMES, SCHEMES

_UNITS = {"ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")


WRITTEN: Final = {"written": True}
"""The context in which what somebody wrote is validated: there a duration has its unit."""


def parse_duration(value: Any, written: bool = False) -> int:
    """A duration such as ``500ms``, ``10s`` or ``1.5h`` in µs. An integer is taken as µs already, unless it was
    ``written``: then 0 alone needs no unit."""
    if isinstance(value, int) and not isinstance(value, bool) and not (written and value):
        found = float(value) if abs(value) <= CENTURY else CENTURY + 1
    else:
        text = _DURATION.fullmatch(str(value).strip())
        if not text:
            raise ValueError(f"not a duration; write a number and one of {', '.join(_UNITS)}, e.g. 10s")
        found = float(text[1]) * _UNITS[text[2]]
    if not 0 <= found <= CENTURY:
        raise ValueError("a duration is from 0s to 36525d, a century")
    return round(found)


CENTURY = 36_525 * _UNITS["d"]
Duration = Annotated[
    int, BeforeValidator(lambda value, info: parse_duration(value, written=bool((info.context or {}).get("written"))))
]


def parse_day(value: Any) -> Date:
    """A day written as YYYY-MM-DD, which YAML reads as a date already."""
    if isinstance(value, Date) and not isinstance(value, datetime):
        day = value
    elif isinstance(value, str) and re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
        day = Date.fromisoformat(value)
    else:
        raise ValueError("not a day; write YYYY-MM-DD")
    if not FIRST_DAY <= day <= LAST_DAY:
        raise ValueError(f"a day is from {FIRST_DAY} to {LAST_DAY}")
    return day


# All instants of these days, and of those within any lookback or duration, fit into 64 bits of nanoseconds.
FIRST_DAY, LAST_DAY = Date(1970, 1, 1), Date(2149, 12, 31)
Day = Annotated[Date, BeforeValidator(parse_day)]


def parse_instant(value: Any) -> str:
    """An instant written as ISO 8601 with its zone, which YAML reads as a time already; as text, in UTC."""
    try:
        found = value if isinstance(value, datetime) else datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    except ValueError as error:
        raise ValueError("not an instant; write it as 2026-11-21T10:00:00Z") from error
    if found.tzinfo is None:
        raise ValueError("an instant needs its zone; write it as 2026-11-21T10:00:00Z")
    if not FIRST_DAY <= found.date() <= LAST_DAY:
        raise ValueError(f"an instant is from {FIRST_DAY} to {LAST_DAY}")
    return found.astimezone(timezone.utc).isoformat()


def nanos(instant: str) -> int:
    """An instant that was parsed, ns."""
    since = datetime.fromisoformat(instant) - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return since // timedelta(microseconds=1) * 1_000


Moment = Annotated[str, BeforeValidator(parse_instant)]


def folder_path(value: str) -> str:
    """A path of a folder, or its address, as it was written."""
    if not value.strip() or not value.isprintable():
        raise ValueError("not a folder; write a path of printable characters")
    return value


Folder = Annotated[str, AfterValidator(folder_path)]
_NAME = r"[^.\s`;]+"  # of a catalog, a schema or a table, as it is, without quotes


def quoted(name: str) -> str:
    """A name of one or several parts, as SQL takes it.

    >>> quoted("main.my-audits")
    '`main`.`my-audits`'
    """
    return ".".join(f"`{part}`" for part in name.split("."))


def _named(parts: int, like: str) -> AfterValidator:
    name = re.compile(rf"{_NAME}(\.{_NAME}){{0,{parts - 1}}}")

    def check(given: str) -> str:
        if not name.fullmatch(given):
            raise ValueError(f"not such a name; write {like}")
        return given

    return AfterValidator(check)


def _scheme(given: str) -> str:
    if given not in SCHEME_NAMES:
        known = ", ".join(f"{name} ({how.clients})" for name, how in SCHEMES.items())
        raise ValueError(
            f"no hashing scheme of that name; there are {known}, and {', '.join(SCHEME_ALIASES)}. For a hash or "
            "a router of your own set mode: CustomPartition in topic.routing, or leave topic.routing out"
        )
    return given


HashingScheme = Annotated[str, AfterValidator(_scheme)]
Name = Annotated[str, Field(min_length=1)]
CatalogName = Annotated[str, _named(3, "catalog.schema.table")]
SchemaName = Annotated[str, _named(2, "catalog.schema")]
INT_31 = 2**31 - 1
INT_63 = 2**63 - 1


class Model(BaseModel):
    """A section of a run file: an unknown key is an error, and nothing changes after it was read.

    pydantic makes its validator when it is first needed (``defer_build``), as most sections are read within a whole run
    file only. Before 2.14 threads cannot do that at once, so what is also made alone is ready as it is imported.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
