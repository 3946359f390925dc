"""Why rows are in quarantine, counted; and where none is valid, the mistake that is the most likely."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

from subreplay.adapters.base import Rejected
from subreplay.adapters.source.contents import unit_of
from subreplay.adapters.source.mapping import Source
from subreplay.adapters.source.numbers import PER_SECOND
from subreplay.rows.model.contracts import FIRST_TIME, HAPPENED, KEYS, LAST_TIME

_UNITS: Final = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_TIMES: Final = ("publish_time", "timestamp", "at", "since", "delivered_at", "received_at", "acked_at", "nacked_at")
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_YEAR: Final = re.compile(r"[+-]?(\d{4,})-")
_MICROS_PER_YEAR: Final = 31_556_952_000_000
_FAR: Final = 230  # years after 1970


def counted(rejected: Iterable[Rejected]) -> list[dict[str, Any]]:
    """Rejected rows by table, column and rule, the most frequent first, with one value as an example (none of keys)."""
    found: dict[tuple[str, str, str, str], dict[str, Any]] = {}
    for row in rejected:
        for why in row.reasons:
            mine = found.setdefault((row.table, why.column, why.rule, why.remedy), {"count": 0, "example": None})
            mine["count"] += 1
            if why.column not in KEYS:
                mine["example"] = min(why.value, mine["example"] or why.value)
    rows = [
        {"table": table, "column": column, "rule": rule, "remedy": remedy, **mine}
        for (table, column, rule, remedy), mine in found.items()
    ]
    return sorted(rows, key=lambda row: (-row["count"], row["table"], row["column"], row["rule"]))


def in_words(reason: Mapping[str, Any]) -> str:
    """A reason of rejected rows as a sentence."""
    example = "" if reason["example"] is None else f" = {reason['example']}"
    return f"{reason['column']}{example}: {reason['rule']} ({reason['remedy']})"


def none_is_valid(rows: int, reasons: Iterable[Mapping[str, Any]], columns: Mapping[str, Source | None]) -> str:
    """What is wrong where all rows are rejected: the most frequent reason, and what it probably comes from. ``columns``
    is the mapping of the table."""
    first = next(iter(reasons), None)
    begin = f"{rows:,} of {rows:,} rows quarantined"
    if first is None:
        return begin
    return f"{begin}: {_wrong_unit(first, columns) or in_words(first)}"


def _wrong_unit(reason: Mapping[str, Any], columns: Mapping[str, Source | None]) -> str | None:
    """Times that are counted in another unit than their mapping says."""
    mine = {each.column: (ours, each.as_) for ours, each in columns.items() if each is not None and ours in _TIMES}
    by_ours = {ours: (ours, each.as_) for ours, each in columns.items() if each is not None and ours in _TIMES}
    if reason["rule"] != HAPPENED.rule or not reason["example"]:
        return None
    by_name = mine | ({"publish_time": by_ours["timestamp"]} if "timestamp" in by_ours else {}) | by_ours
    ours, conversion = by_name.get(reason["column"], (reason["column"], None))
    unit = (conversion or "epoch_us").removeprefix("epoch_")
    if unit not in _UNITS:
        return None
    micros, number = _micros(str(reason["example"]), unit if conversion else "us")
    if micros is None or number is None or FIRST_TIME <= micros <= LAST_TIME:
        return None
    years = micros // _MICROS_PER_YEAR
    far = "beyond year 2200" if years >= _FAR else f"in year {1970 + years}"
    likely = unit_of(pa.array([number]))
    if likely is None or likely == unit:
        return f"{ours} is {far}; correct its unit (as: {conversion or 'epoch_ms'})"
    return f"{ours} is {far}; are these {_UNITS[likely]}? Write as: epoch_{likely}"


def _micros(text: str, unit: str) -> tuple[int | None, float | None]:
    """An instant (µs) as a source has it, and its number in its unit, of which a date tells about as much."""
    if _NUMBER.fullmatch(text):
        number = float(text)
        return int(number * 1_000_000 / PER_SECOND[unit]), number
    if (found := _YEAR.match(text)) is not None:
        micros = (int(found[1]) - 1970) * _MICROS_PER_YEAR + _MICROS_PER_YEAR // 2
        return micros, micros / 1_000_000 * PER_SECOND[unit]
    return None, None
