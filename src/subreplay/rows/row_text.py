"""Format values and rows for people: as SQL casts them to text, and as JSON. Times are in UTC.

Nothing here is vectorized, because only quarantined rows are formatted.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.rows.encoded import as_bytes

_DAY: Final = 86_400_000_000  # µs
_CONTROL: Final = re.compile(r"\\u00[01][0-9a-f]")


def convert_to_python(values: pa.Array) -> list[Any]:
    """Convert values to Python objects, but dates to days and times to µs since 1970, because Python supports only the
    years 1 to 9999.

    Bytes that are not UTF-8 become the replacement character.
    """
    kind = values.type
    if pa.types.is_struct(kind):
        fields = {field.name: convert_to_python(pc.struct_field(values, field.name)) for field in kind}
        there = values.is_valid().to_pylist()
        return [{name: of[n] for name, of in fields.items()} if known else None for n, known in enumerate(there)]
    if pa.types.is_list(kind):
        elements = iter(convert_to_python(pc.list_flatten(values)))
        sizes = pc.list_value_length(values).to_pylist()
        return [None if size is None else [next(elements) for _ in range(size)] for size in sizes]
    if pa.types.is_string(kind):
        return [None if value is None else value.decode(errors="replace") for value in as_bytes(values).to_pylist()]
    if pa.types.is_timestamp(kind):
        values = values.cast(pa.timestamp("us", "UTC"), safe=False).cast(pa.int64())
    elif pa.types.is_date32(kind):
        values = values.cast(pa.int32())
    found: list[Any] = values.to_pylist()
    return found


def format_sql(value: Any, kind: pa.DataType) -> str:
    """Format a value of ``plain`` as SQL casts it to text.

    >>> format_sql(1_500_000, pa.timestamp("us", "UTC")), format_sql([1, None], pa.list_(pa.int64()))
    ('1970-01-01 00:00:01.5', '[1, null]')
    """
    if value is None:
        return "null"
    if pa.types.is_struct(kind):
        return "{" + ", ".join(format_sql(value[field.name], field.type) for field in kind) + "}"
    if pa.types.is_list(kind):
        return "[" + ", ".join(format_sql(each, kind.value_type) for each in value) + "]"
    if pa.types.is_date32(kind):
        return _format_date(value)
    if pa.types.is_timestamp(kind):
        days, rest = divmod(value, _DAY)
        fraction = f".{rest % 1_000_000:06}".rstrip("0").rstrip(".")
        return f"{_format_date(days)} {_format_clock(rest)}{fraction}"
    return str(value).lower() if pa.types.is_boolean(kind) else str(value)


def format_json(row: dict[str, Any], kinds: dict[str, pa.DataType]) -> str:
    """Format a row of values of ``plain`` as JSON, without null fields. Times have milliseconds.

    >>> format_json({"at": 1_500_000, "size": None}, {"at": pa.timestamp("us", "UTC"), "size": pa.int64()})
    '{"at":"1970-01-01T00:00:01.500Z"}'
    """
    text = json.dumps(_format_fields(row, kinds), ensure_ascii=False, separators=(",", ":"))
    return _CONTROL.sub(lambda found: "\\u" + found[0][2:].upper(), text) if "\\u00" in text else text


def _format_fields(row: dict[str, Any], kinds: dict[str, pa.DataType]) -> dict[str, Any]:
    return {name: _format_value(value, kinds[name]) for name, value in row.items() if value is not None}


def _format_value(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return _format_fields(value, {field.name: field.type for field in kind})
    if pa.types.is_list(kind):
        return [_format_value(each, kind.value_type) for each in value]
    if pa.types.is_date32(kind):
        return _format_date(value)
    if pa.types.is_timestamp(kind):
        days, rest = divmod(value, _DAY)
        return f"{_format_date(days)}T{_format_clock(rest)}.{rest % 1_000_000 // 1_000:03}Z"
    return value


def _format_clock(micros: int) -> str:
    seconds = micros // 1_000_000
    return f"{seconds // 3_600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _format_date(days: int) -> str:
    """Format a day of the proleptic Gregorian calendar, whatever its year (Howard Hinnant, ``civil_from_days``)."""
    era, day = divmod(days + 719_468, 146_097)
    of_era = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    of_year = day - (365 * of_era + of_era // 4 - of_era // 100)
    month = (5 * of_year + 2) // 153
    number = month + 3 if month < 10 else month - 9
    year = of_era + era * 400 + (number <= 2)
    sign = "+" if year > 9_999 else "-" if year < 0 else ""
    return f"{sign}{abs(year):04}-{number:02}-{of_year - (153 * month + 2) // 5 + 1:02}"
