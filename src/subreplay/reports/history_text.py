"""Format the history of subscriptions as plain text: what began and ended, and the verdict of each day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from rich.text import Text

from subreplay.reports.formatting import format_count, format_plural, shorten_topics
from subreplay.reports.history_data import NO_RUN, DayResult, Episode, History, SubscriptionHistory
from subreplay.reports.text import MARKS, MAX_LINES, STYLES, measure_width, print_lines
from subreplay.reports.text_cleaning import clean_strings
from subreplay.reports.text_layout import Column, TextPage, shorten_middle

if TYPE_CHECKING:
    from rich.console import Console

_STRIP_DAYS: Final = 30  # the latest days in a line of text
_NAME_WIDTH: Final = 36
_COLUMNS: Final = (
    Column("Subscription", "name"),
    Column("Days", "text"),
    Column("Latest", "text"),
    Column("Invalid days"),
    Column("Findings", rank=1),
)


def describe_history(history: History) -> str:
    """Describe a history in a sentence."""
    open_now = sum(not episode.ended for episode in history.episodes)
    ended = len(history.episodes) - open_now
    subscriptions = format_plural(len(history.subscriptions), "subscription")
    return f"{history.first} to {history.last}, {subscriptions}: {open_now} open, {ended} ended"


def render_history(history: History, console: Console, *, full: bool = False, most: int = MAX_LINES) -> None:
    """Print a history to a console: in at most ``most`` lines, or whole."""
    print_lines(build_history_text(clean_strings(history), measure_width(console), None if full else most), console)


def build_history_text(history: History, width: int, most: int | None = MAX_LINES) -> list[Text]:
    """Build the lines of a history, at most ``most``: the changes get the lines that the subscriptions leave."""
    page = TextPage(width)
    page.add(Text(describe_history(history), style="bold"), hang=2, most=2)
    topics = shorten_topics(found.topic for found in history.subscriptions)
    rows = [_build_row(found, topics) for found in history.subscriptions]
    space = None if most is None else max(5, min(len(rows) + 1, (most - 6) // 2))
    page.add_heading(f"Verdict of each day, the latest last ({_explain_marks(history)})")
    page.add_table(_COLUMNS, rows, where="; --full or --out shows them", most=space)
    page.add_heading("What began and ended, the latest change first")
    if not history.episodes:
        page.add("No rule failed.", indent=2)
    free = None if most is None else most - len(page.lines)
    lines = [_build_episode(episode, topics) for episode in history.episodes]
    shown = lines if free is None or len(lines) * 2 <= free else lines[: max(0, (free - 1) // 2)]
    for episode in shown:
        page.add(episode, indent=2, hang=2, most=2)
    if len(shown) < len(lines):
        page.add(f"and {format_count(len(lines) - len(shown))} more; --full or --out shows them", indent=2, most=1)
    return page.lines


def _explain_marks(history: History) -> str:
    verdicts = {day.verdict for found in history.subscriptions for day in found.days[-_STRIP_DAYS:]}
    marks = [f"{MARKS[verdict]} {verdict}" for verdict in ("valid", "unknown", "invalid") if verdict in verdicts]
    return ", ".join([*marks, *(["· no run"] if NO_RUN in verdicts else [])])


def _build_row(found: SubscriptionHistory, topics: Mapping[str, str]) -> Sequence[str | Text]:
    latest = found.latest
    return (
        f"{found.subscription} on {topics[found.topic]}",  # the table shortens it
        _build_strip(found.days[-_STRIP_DAYS:]),
        Text(latest.verdict, style=STYLES.get(latest.verdict, "")),
        format_count(found.count_days("invalid")),
        format_count(found.findings),
    )


def _build_strip(days: Sequence[DayResult]) -> Text:
    return Text.assemble(*((MARKS.get(day.verdict, "·"), STYLES.get(day.verdict, "")) for day in days))


def _build_episode(episode: Episode, topics: Mapping[str, str]) -> Text:
    began = f"began {episode.began}{' or earlier' if episode.from_first_run else ''}"
    when = f"ended {episode.ended}, {began}" if episode.ended else began
    return Text.assemble(
        (f"{MARKS['valid' if episode.ended else episode.verdict]} {when}", STYLES[episode.verdict]),
        "  ",
        (_name_subscription(episode.subscription, topics[episode.topic]), "bold"),
        f": {episode.title} ({', '.join(episode.codes)}, {format_plural(episode.findings, 'finding')})",
    )


def _name_subscription(subscription: str, topic: str) -> str:
    return f"{shorten_middle(subscription, _NAME_WIDTH)} on {shorten_middle(topic, _NAME_WIDTH)}"
