"""Render the overview of several subscriptions as one page that opens without a network.

The page is a table to sort and filter; its rows link to the reports.
"""

from __future__ import annotations

from typing import Final

from subreplay.reports.formatting import (
    MISSING,
    format_count,
    format_nanos,
    format_percent,
    format_plural,
    format_ratio,
)
from subreplay.reports.overview_data import Overview, OverviewRow
from subreplay.reports.page.html import format_slug, page_environment, render_page
from subreplay.reports.page.trend import draw_trend
from subreplay.reports.text_cleaning import clean_strings

PAGE: Final = "overview.html.j2"
COLUMNS: Final[tuple[tuple[str, str, str], ...]] = (
    ("verdict", "Verdict", ""),
    ("subscription", "Subscription", ""),
    ("incidents", "Incidents", "The most severe one is below the name"),
    ("trend", "30 days", "Verdict of each day, taller with more findings; sorts by the number of invalid days"),
    ("findings", "Findings", "Findings of rules that were broken"),
    ("waiting", "Waiting", "Messages that waited too long, or were never delivered"),
    ("worst_delay", "Worst delay", "The longest time that a message waited after it was due"),
    ("redelivery_rate", "Redelivered", "Redeliveries divided by deliveries"),
    ("skew", "Skew", "The largest share of a consumer divided by the fair share"),
    ("deliveries", "Deliveries", ""),
    ("owner", "Owner", ""),
)
"""The columns of the table: field, heading, meaning."""


def render_overview_page(data: Overview) -> str:
    """Render the overview's page; equal data give equal bytes."""
    data = clean_strings(data)
    verdicts = {row.verdict: 0 for row in data.rows}
    for row in data.rows:
        verdicts[row.verdict] += 1
    filters = {
        "slug": format_slug,
        "shown": _format_figure,
        "order": _order,
        "plural": format_plural,
        "trend": draw_trend,
    }
    environment = page_environment(filters)
    return render_page(
        environment,
        PAGE,
        ["scroll_cue.js", "table_sort.js", "overview.js"],
        own_style="overview.css",
        data=data,
        columns=COLUMNS if any(row.trend for row in data.rows) else [*filter(_is_of_one_day, COLUMNS)],
        verdicts=verdicts,
    )


def _is_of_one_day(column: tuple[str, str, str]) -> bool:
    return column[0] != "trend"


def _format_figure(row: OverviewRow, field: str) -> str:
    """Format a figure of a row, or a dash."""
    value = getattr(row, field)
    if value is None:
        return MISSING
    if field == "worst_delay":
        return format_nanos(value)
    if field == "redelivery_rate":
        return format_percent(value)
    if field == "skew":
        return format_ratio(value)
    return format_count(value) if isinstance(value, int) else str(value)


def _order(row: OverviewRow, field: str) -> str:
    """Return the value by which the script sorts a column."""
    if field == "verdict":
        return str({"failed": 0, "invalid": 1, "unknown": 2, "valid": 3}[row.verdict])
    if field == "trend":
        return str(sum(day.verdict == "invalid" for day in row.trend))
    value = getattr(row, field)
    return "" if value is None else str(value)
