"""Render the history of subscriptions as one page that opens without a network."""

from __future__ import annotations

from typing import Final

from subreplay.reports.formatting import format_count, format_plural
from subreplay.reports.history_data import History
from subreplay.reports.history_text import describe_history
from subreplay.reports.page.html import format_slug, page_environment, render_page
from subreplay.reports.page.trend import draw_trend
from subreplay.reports.text_cleaning import clean_strings

PAGE: Final = "history.html.j2"
MAX_EPISODES: Final = 500
MAX_RULES: Final = 1_000
_ORDER: Final = {"invalid": 0, "unknown": 1, "valid": 2}


def render_history_page(data: History) -> str:
    """Render the page of a history; equal data give equal bytes."""
    data = clean_strings(data)
    rules = [(found, rule) for found in data.subscriptions for rule in found.rules]
    filters = {"slug": format_slug, "plural": format_plural, "trend": draw_trend, "count": format_count}
    return render_page(
        page_environment(filters),
        PAGE,
        ["scroll_cue.js", "table_sort.js", "history.js"],
        own_style="overview.css",
        data=data,
        sentence=describe_history(data),
        episodes=data.episodes[:MAX_EPISODES],
        rules=rules[:MAX_RULES],
        rules_left_out=len(rules[MAX_RULES:]),
        order=_ORDER,
    )
