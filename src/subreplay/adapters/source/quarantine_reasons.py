"""Count the reasons of quarantined rows; where no row is valid, find the most likely mistake."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

from subreplay.adapters.base import RejectedRow
from subreplay.adapters.source.column_mapping import ColumnSource
from subreplay.adapters.source.number_conversion import PER_SECOND
from subreplay.adapters.source.sample_contents import detect_unit
from subreplay.rows.model.contracts import FIRST_TIME, HAPPENED, KEYS, LAST_TIME

_UNITS: Final = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_TIMES: Final = ("publish_time", "timestamp", "at", "since", "delivered_at", "received_at", "acked_at", "nacked_at")
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_YEAR: Final = re.compile(r"[+-]?(\d{4,})-")
_MICROS_PER_YEAR: Final = 31_556_952_000_000
_FAR: Final = 230  # years after 1970


def count_reasons(rejected: Iterable[RejectedRow]) -> list[dict[str, Any]]:
    """Count rejected rows by table, column and rule, most frequent first, with one example value (not of keys)."""
    found: dict[tuple[str, str, str, str], dict[str, Any]] = {}
    for row in rejected:
        for why in row.reasons:
            entry = found.setdefault((row.table, why.column, why.rule, why.remedy), {"count": 0, "example": None})
            entry["count"] += 1
            if why.column not in KEYS:
                entry["example"] = min(why.value, entry["example"] or why.value)
    rows = [
        {"table": table, "column": column, "rule": rule, "remedy": remedy, **entry}
        for (table, column, rule, remedy), entry in found.items()
    ]
    return sorted(rows, key=lambda row: (-row["count"], row["table"], row["column"], row["rule"]))


def describe_reason(reason: Mapping[str, Any]) -> str:
    """Describe a reason of rejected rows as a sentence."""
    example = "" if reason["example"] is None else f" = {reason['example']}"
    return f"{reason['column']}{example}: {reason['rule']} ({reason['remedy']})"


def describe_all_rejected(
    rows: int, reasons: Iterable[Mapping[str, Any]], columns: Mapping[str, ColumnSource | None]
) -> str:
    """Describe why all rows are rejected: the most frequent reason and its probable cause. ``columns`` is the mapping
    of the table."""
    first = next(iter(reasons), None)
    begin = f"{rows:,} of {rows:,} rows quarantined"
    if first is None:
        return begin
    return f"{begin}: {_describe_wrong_unit(first, columns) or describe_reason(first)}"


def _describe_wrong_unit(reason: Mapping[str, Any], columns: Mapping[str, ColumnSource | None]) -> str | None:
    """Describe times in another unit than their mapping says."""
    by_column = {
        each.column: (target, each.as_) for target, each in columns.items() if each is not None and target in _TIMES
    }
    by_target = {
        target: (target, each.as_) for target, each in columns.items() if each is not None and target in _TIMES
    }
    if reason["rule"] != HAPPENED.rule or not reason["example"]:
        return None
    by_name = by_column | ({"publish_time": by_target["timestamp"]} if "timestamp" in by_target else {}) | by_target
    target, conversion = by_name.get(reason["column"], (reason["column"], None))
    unit = (conversion or "epoch_us").removeprefix("epoch_")
    if unit not in _UNITS:
        return None
    micros, number = _parse_micros(str(reason["example"]), unit if conversion else "us")
    if micros is None or number is None or FIRST_TIME <= micros <= LAST_TIME:
        return None
    years = micros // _MICROS_PER_YEAR
    far = "beyond year 2200" if years >= _FAR else f"in year {1970 + years}"
    likely = detect_unit(pa.array([number]))
    if likely is None or likely == unit:
        return f"{target} is {far}. Correct its unit (as: {conversion or 'epoch_ms'})"
    return f"{target} is {far}, and the numbers look like {_UNITS[likely]}. Write as: epoch_{likely}"


def _parse_micros(text: str, unit: str) -> tuple[int | None, float | None]:
    """Return an instant (µs) and its number in its unit. A date gives only an approximate number."""
    if _NUMBER.fullmatch(text):
        number = float(text)
        return int(number * 1_000_000 / PER_SECOND[unit]), number
    if (found := _YEAR.match(text)) is not None:
        micros = (int(found[1]) - 1970) * _MICROS_PER_YEAR + _MICROS_PER_YEAR // 2
        return micros, micros / 1_000_000 * PER_SECOND[unit]
    return None, None
