"""Format the overview of several subscriptions as plain text, the worst first."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from rich.text import Text

from subreplay.reports.formatting import format_plural, shorten_topics
from subreplay.reports.overview_data import Overview, OverviewRow
from subreplay.reports.text import MARKS, MAX_LINES, STYLES, measure_width, print_lines
from subreplay.reports.text_cleaning import clean_strings
from subreplay.reports.text_layout import TextPage, shorten_middle, wrap_text

if TYPE_CHECKING:
    from rich.console import Console

_VERDICTS: Final = ("failed", "invalid", "unknown", "valid")  # the worst first
_NAME_WIDTH: Final = 48
_LINES_OF_ROW: Final = (3, 2, 1)  # in a summary, the first number with which all rows fit


def describe_overview(overview: Overview) -> tuple[str, str]:
    """Return the worst verdict as a word, and the number of subscriptions by verdict in a sentence."""
    worst = overview.rows[0].verdict if overview.rows else "valid"
    subscriptions = format_plural(len(overview.rows), "subscription")
    return worst.upper(), f"{subscriptions}: {_count_verdicts(overview.rows)}" if overview.rows else subscriptions


def render_overview(overview: Overview, console: Console, *, full: bool = False, most: int = MAX_LINES) -> None:
    """Print an overview to a console: in at most ``most`` lines, or with all subscriptions."""
    print_lines(build_overview_text(clean_strings(overview), measure_width(console), None if full else most), console)


def build_overview_text(overview: Overview, width: int, most: int | None = MAX_LINES) -> list[Text]:
    """Build the lines of an overview, at most ``most``; rows take fewer lines if they would not fit."""
    word, sentence = describe_overview(overview)
    page = TextPage(width)
    mark = (f"{MARKS[word.lower()]} {word}", STYLES[word.lower()])
    page.add(Text.assemble(mark, "  ", (sentence, "bold")), hang=2, most=2)
    page.lines.append(Text())
    topics = shorten_topics(row.topic for row in overview.rows if row.topic)
    space = (most or sys.maxsize) - len(page.lines)
    for lines_of_row in (None,) if most is None else _LINES_OF_ROW:
        rows = [_build_row(row, topics, width, lines_of_row) for row in overview.rows]
        if sum(map(len, rows)) <= space:
            break
    else:
        rest = overview.rows[space - 1 :]
        more = f"and {format_plural(len(rest), 'more subscription')}: {_count_verdicts(rest)}"
        rows = [*rows[: space - 1], wrap_text(f"{more}; --full or the page shows them", width, most=1)]
    page.lines += [line for lines in rows for line in lines]
    return page.lines


def _count_verdicts(rows: Sequence[OverviewRow]) -> str:
    counts = Counter(row.verdict for row in rows)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in _VERDICTS if counts[verdict])


def _build_row(row: OverviewRow, topics: Mapping[str, str], width: int, most: int | None) -> list[Text]:
    """Build the lines of a subscription. In a single line, that every guarantee was kept needs no sentence."""
    has_sentence = most != 1 or row.verdict != "valid" or bool(row.worst_incident)
    longest = width // 5 if most == 1 and has_sentence else _NAME_WIDTH  # a single line has some of the sentence, too
    names = (shorten_middle(name, longest) for name in (row.subscription, topics.get(row.topic, "(no topic)")))
    verdict = (f"{MARKS[row.verdict]} {row.verdict.upper():7}", STYLES[row.verdict])
    text = Text.assemble(verdict, "  ", (" on ".join(names), "bold"), f": {row.sentence}" if has_sentence else "")
    return wrap_text(text, width, hang=2, most=most)
