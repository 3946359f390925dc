"""Format the overview of several subscriptions as plain text, the worst first."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from rich.text import Text

from subreplay.reports.formatting import format_plural
from subreplay.reports.overview_data import Overview, OverviewRow
from subreplay.reports.text import MARKS, MAX_LINES, STYLES, measure_width, print_lines
from subreplay.reports.text_cleaning import clean_strings
from subreplay.reports.text_layout import TextPage, shorten_middle, wrap_text

if TYPE_CHECKING:
    from rich.console import Console

_VERDICTS: Final = ("failed", "invalid", "unknown", "valid")  # the worst first
_NAME_WIDTH: Final = 48


def describe_overview(overview: Overview) -> tuple[str, str]:
    """Return the worst verdict as a word, and the number of subscriptions by verdict in a sentence."""
    counts = Counter(row.verdict for row in overview.rows)
    worst = overview.rows[0].verdict if overview.rows else "valid"
    said = ", ".join(f"{counts[verdict]} {verdict}" for verdict in _VERDICTS if counts[verdict])
    subscriptions = format_plural(len(overview.rows), "subscription")
    return worst.upper(), f"{subscriptions}: {said}" if said else subscriptions


def render_overview(overview: Overview, console: Console, *, full: bool = False, most: int = MAX_LINES) -> None:
    """Print an overview to a console: in at most ``most`` lines, or with all subscriptions."""
    print_lines(build_overview_text(clean_strings(overview), measure_width(console), None if full else most), console)


def build_overview_text(overview: Overview, width: int, most: int | None = MAX_LINES) -> list[Text]:
    """Build the lines of an overview, at most ``most``."""
    word, sentence = describe_overview(overview)
    page = TextPage(width)
    mark = (f"{MARKS[word.lower()]} {word}", STYLES[word.lower()])
    page.add(Text.assemble(mark, "  ", (sentence, "bold")), hang=2, most=2)
    page.lines.append(Text())
    for number, row in enumerate(overview.rows):
        lines = _build_row(row, width, full=most is None)
        left = len(overview.rows) - number
        if most is not None and len(page.lines) + len(lines) + (left > 1) > most:
            page.add(f"and {format_plural(left, 'more subscription')}; --full or the page shows them", most=1)
            break
        page.lines += lines
    return page.lines


def _build_row(row: OverviewRow, width: int, *, full: bool) -> list[Text]:
    name = (
        f"{shorten_middle(row.subscription, _NAME_WIDTH)} on {shorten_middle(row.topic or '(no topic)', _NAME_WIDTH)}"
    )
    verdict = (f"{MARKS[row.verdict]} {row.verdict.upper():7}", STYLES[row.verdict])
    text = Text.assemble(verdict, "  ", (name, "bold"), f": {row.sentence}")
    return wrap_text(text, width, hang=2, most=None if full else 2 if row.verdict == "valid" else 3)
