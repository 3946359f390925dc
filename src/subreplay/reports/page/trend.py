"""Draw the results of daily runs as a strip: one bar a day, in the colour of its verdict, taller with more findings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from markupsafe import escape

from subreplay.reports.formatting import format_plural
from subreplay.reports.history_data import NO_RUN, DayResult

_HEIGHT: Final = 20
_DAY: Final = 5  # pixels of a bar and its gap
_LOWEST: Final = 5
_FULL: Final = 6.0  # powers of ten of the findings that fill the height


def draw_trend(days: Sequence[DayResult]) -> str:
    """Draw the strip of days as an inline ``<svg>``."""
    shown = "".join(_draw_day(place, day) for place, day in enumerate(days))
    width = _DAY * len(days)
    label = escape(_describe_trend(days))
    return (
        f'<svg class="trend" width="{width}" height="{_HEIGHT}" viewBox="0 0 {width} {_HEIGHT}" role="img" '
        f'aria-label="{label}">{shown}</svg>'
    )


def describe_day(day: DayResult) -> str:
    """Describe the result of a day in words."""
    if day.verdict == NO_RUN:
        return f"{day.date}: no run"
    return f"{day.date}: {day.verdict}" + (f", {format_plural(day.findings, 'finding')}" if day.findings else "")


def _draw_day(place: int, day: DayResult) -> str:
    if day.verdict == NO_RUN:
        height = 1.0
    else:
        height = _LOWEST + (_HEIGHT - _LOWEST) * min(1.0, math.log10(1 + (day.findings or 0)) / _FULL)
    return (
        f'<rect class="d-{escape(day.verdict)}" x="{place * _DAY}" y="{_HEIGHT - height:.1f}" width="{_DAY - 1}" '
        f'height="{height:.1f}"><title>{escape(describe_day(day))}</title></rect>'
    )


def _describe_trend(days: Sequence[DayResult]) -> str:
    counts = {verdict: sum(day.verdict == verdict for day in days) for verdict in ("invalid", "unknown", "valid")}
    return f"{format_plural(len(days), 'day')}: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
