"""The field types of a run file, such as durations and names, and the base model of its sections."""

from __future__ import annotations

import re
from datetime import date as Date
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from subreplay.hashing.producer_routing import SCHEME_ALIASES, SCHEME_NAMES, SCHEMES
from subreplay.hashing.profiles import KEYLESS
from subreplay.semantics.policies import REGISTRY

_UNITS = {"ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")


WRITTEN: Final = {"written": True}
"""The validation context for text of a run file, in which a duration needs its unit."""


def parse_duration(value: Any, written: bool = False) -> int:
    """Convert a duration such as ``500ms``, ``10s`` or ``1.5h`` to µs.

    An integer counts as µs unless it was ``written`` in a run file, where only 0 needs no unit. Raises ``ValueError``.
    """
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
DURATION_PATTERN: Final = rf"^\s*{_DURATION.pattern}\s*$"
DURATION_FORMAT: Final = "duration with a unit"
"""The format of a duration in the JSON Schema of a run file."""
Duration = Annotated[
    int,
    BeforeValidator(lambda value, info: parse_duration(value, written=bool((info.context or {}).get("written")))),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "pattern": DURATION_PATTERN}, {"const": 0}], "format": DURATION_FORMAT}
    ),
]


def format_duration(us: int) -> str:
    """Write a duration in µs as a run file does, in the largest unit that divides it, else as part of a millisecond.

    >>> format_duration(90_000_000), format_duration(1_250)
    ('90s', '1.25ms')
    """
    if us % _UNITS["ms"]:
        return f"{us // 1_000}.{us % 1_000:03}".rstrip("0") + "ms"
    unit = max((unit for unit in _UNITS if us % _UNITS[unit] == 0), key=_UNITS.__getitem__) if us else "s"
    return f"{us // _UNITS[unit]}{unit}"


def parse_day(value: Any) -> Date:
    """Parse a day written as YYYY-MM-DD; YAML returns it as a date already. Raises ``ValueError``."""
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
Day = Annotated[Date, BeforeValidator(parse_day), WithJsonSchema({"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"})]


def parse_instant(value: Any) -> str:
    """Convert an instant in ISO 8601 with its zone to UTC text; YAML returns it as a time. Raises ``ValueError``."""
    try:
        found = value if isinstance(value, datetime) else datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    except ValueError as error:
        raise ValueError("not an instant; write it as 2026-11-21T10:00:00Z") from error
    if found.tzinfo is None:
        raise ValueError("an instant needs its zone; write it as 2026-11-21T10:00:00Z")
    if not FIRST_DAY <= found.date() <= LAST_DAY:
        raise ValueError(f"an instant is from {FIRST_DAY} to {LAST_DAY}")
    return found.astimezone(timezone.utc).isoformat()


def to_nanoseconds(instant: str) -> int:
    """Convert a parsed instant to ns since the Unix epoch."""
    since = datetime.fromisoformat(instant) - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return since // timedelta(microseconds=1) * 1_000


Moment = Annotated[
    str,
    BeforeValidator(parse_instant),
    WithJsonSchema({"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}.*(Z|[+-]\d{2}:?\d{2})$"}),
]


def folder_path(value: str) -> str:
    """Check that a path or an address of a folder is printable, and return it."""
    if not value.strip() or not value.isprintable():
        raise ValueError("not a folder; write a path of printable characters")
    return value


Folder = Annotated[str, AfterValidator(folder_path), WithJsonSchema({"type": "string", "pattern": r"\S"})]
_NAME = r"[^.\s`;]+"  # an unquoted name of a catalog, a schema or a table


def quote_name(name: str) -> str:
    """Quote a name of one or several parts for SQL.

    >>> quote_name("main.my-audits")
    '`main`.`my-audits`'
    """
    return ".".join(f"`{part}`" for part in name.split("."))


def _match_parts(most: int) -> str:
    """Return the regular expression of a name of at most so many parts."""
    return rf"^{_NAME}(\.{_NAME}){{0,{most - 1}}}$"


def _require_name(parts: int, like: str) -> AfterValidator:
    name = re.compile(_match_parts(parts))

    def check(text: str) -> str:
        if not name.fullmatch(text):
            raise ValueError(f"not such a name; write {like}")
        return text

    return AfterValidator(check)


def _require_scheme(name: str) -> str:
    if name not in SCHEME_NAMES:
        known = ", ".join(f"{known} ({how.clients})" for known, how in SCHEMES.items())
        raise ValueError(
            f"there is no hashing scheme of that name; choose one of {known}, or {', '.join(SCHEME_ALIASES)}. "
            "For your own hash or router set mode: CustomPartition in topic.routing, or omit topic.routing"
        )
    return name


HashingScheme = Annotated[str, AfterValidator(_require_scheme), WithJsonSchema({"enum": [*SCHEME_NAMES]})]
Name = Annotated[str, Field(min_length=1)]
# An editor completes these. A wrong one is refused when the policy is built, with the nearest names. Every profile has
# a rule for messages without a key.
PolicyName = Annotated[str, WithJsonSchema({"enum": [*REGISTRY]})]
ProfileName = Annotated[str, WithJsonSchema({"enum": [*KEYLESS]})]
CatalogName = Annotated[
    str, _require_name(3, "catalog.schema.table"), WithJsonSchema({"type": "string", "pattern": _match_parts(3)})
]
SchemaName = Annotated[
    str, _require_name(2, "catalog.schema"), WithJsonSchema({"type": "string", "pattern": _match_parts(2)})
]
INT_31 = 2**31 - 1
INT_63 = 2**63 - 1


class Model(BaseModel):
    """A section of a run file: an unknown key is an error, and the values never change.

    pydantic builds the validator of a section when it is first needed (``defer_build``), because most sections are only
    read as parts of a run file. Before pydantic 2.14 threads cannot do that concurrently, so sections that are also
    built alone set ``defer_build=False``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
