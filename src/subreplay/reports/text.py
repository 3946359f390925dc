"""The report in a terminal, or as plain text: verdict first, then what it rests on. Colour never stands alone."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from subreplay.reports import words
from subreplay.reports.clean import cleaned
from subreplay.reports.data import CodeSummary, ReportData, RunInfo, ScenarioView

WIDTH = 100
MOST_ROWS = 20  # of consumers and of scenarios; the page and the JSON have all
BAR = 10
STYLES = {
    "valid": "bold green", "unknown": "bold yellow", "invalid": "bold red",
    "clean": "green", "violated": "bold red", "allowed": "cyan", "counted": "cyan",
}  # fmt: skip
MARKS = {"valid": "✓", "unknown": "?", "invalid": "✗"}
Cell = str | Text


def to_text(data: ReportData) -> str:
    """The report as plain text of 100 columns; the same data gives the same text."""
    sink = io.StringIO()
    render(data, Console(file=sink, width=WIDTH, color_system=None, force_terminal=False, legacy_windows=False))
    return "\n".join(line.rstrip() for line in sink.getvalue().splitlines()).strip("\n") + "\n"


def render(data: ReportData, console: Console) -> None:
    """Print the report to a console of any width; beyond 100 columns nothing gets wider."""
    data = cleaned(data)
    width = min(console.width, WIDTH)
    for part in _parts(data):
        console.print(part, width=width, highlight=False, markup=False, emoji=False)


def _parts(data: ReportData) -> Iterable[Text | Table | Padding]:
    """What is printed, from top to bottom."""
    yield _verdict(data)
    yield _run(data.run)
    yield from _section("Input", _inputs(data), bool(data.inputs))
    yield from _section("Headline facts", _facts(data), bool(data.facts))
    yield from _section("Rules", _codes(data.codes), bool(data.codes))
    yield from _section("Load per consumer", _load(data), bool(data.totals))
    yield from _section("Scenarios over the same traffic", _scenarios(data.scenarios), bool(data.scenarios))
    yield from _section("What this data cannot tell", _cannot(data), bool(data.cannot_tell))


def _section(title: str, body: Table, shown: bool) -> Iterable[Text | Padding]:
    """A heading and its table; nothing where there is nothing to show."""
    if shown:
        yield Text(f"\n{title}", style="bold")
        yield Padding(body, (0, 0, 0, 2))


def _verdict(data: ReportData) -> Table:
    """Mark, word and sentence; the sentence wraps under itself."""
    style = STYLES.get(data.verdict, "bold")
    line = Table.grid(padding=(0, 2))
    line.add_column(no_wrap=True)
    line.add_row(Text(f"{MARKS.get(data.verdict, '?')} {data.verdict.upper()}", style=style), Text(data.headline))
    return line


def _run(run: RunInfo) -> Padding:
    day = words.one_day(run.window_start, run.window_end)
    window = f"{words.clock(run.window_start)} to {words.clock(run.window_end, day)} UTC"
    options = ", ".join(f"{name} {value}" for name, value in run.options)
    rows = (
        ("what", f"{run.title} ({run.kind}, run {run.run_id})"),
        ("subscription", f"{run.subscription} on {run.topic}" + _partitions(run)),
        ("data", window),
        ("policy", run.policy + (f" ({options})" if options else "")),
        ("profile", run.profile),
        ("config", run.config_digest + (f", seed {run.seed}" if run.seed is not None else "")),
    )
    table = Table.grid(padding=(0, 2))
    for name, value in rows:
        table.add_row(Text(name, style="dim"), Text(value))
    return Padding(table, (1, 0, 0, 2))


def _partitions(run: RunInfo) -> str:
    return f", {words.plural(run.partitions, 'partition')}" if run.partitions else ", not partitioned"


def _table(columns: Sequence[tuple[str, bool]], rows: Iterable[Sequence[Cell]]) -> Table:
    """A plain table; ``True`` marks a column of numbers."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim", padding=(0, 1))
    for title, number in columns:
        table.add_column(title, justify="right" if number else "left", no_wrap=number, overflow="fold")
    for row in rows:
        table.add_row(*[Text(cell) if isinstance(cell, str) else cell for cell in row])
    return table


def _inputs(data: ReportData) -> Table:
    columns = (("table", False), ("rows", True), ("valid", True), ("quarantined", True), ("note", False))
    return _table(
        columns,
        [
            (row.table, words.count(row.rows_in), words.count(row.valid), _alarm(row.quarantined), row.note)
            for row in data.inputs
        ],
    )


def _alarm(number: int) -> Text:
    """A count that should be zero."""
    return Text(words.count(number), style="yellow" if number else "")


def _facts(data: ReportData) -> Table:
    table = Table.grid(padding=(0, 2))
    for _ in range(3):
        table.add_column(overflow="fold")
    for fact in data.facts:
        table.add_row(Text(fact.label, style="dim"), Text(fact.value, style="bold"), Text(fact.note))
    return table


def _codes(codes: Sequence[CodeSummary]) -> Table:
    columns = (("code", False), ("status", False), ("count", True), ("example, or why not", False))
    return _table(
        columns,
        [
            (code.code, Text(code.status, style=STYLES.get(code.status, "yellow")), _code_count(code), _example(code))
            for code in codes
        ],
    )


def _code_count(code: CodeSummary) -> str:
    """The count; a rule that was not decided has none (never 0)."""
    undecided = code.status == "not applicable" or (code.status == "unknown" and not code.count)
    return words.MISSING if undecided else words.count(code.count)


def _example(code: CodeSummary) -> str:
    if code.worst:
        return code.worst[0].sentence + (f" ({code.note})" if code.note else "")
    return code.note or ("none found" if code.status == "clean" else code.title)


def _load(data: ReportData) -> Table:
    columns = (
        ("consumer", False),
        ("messages", True),
        ("share", True),
        ("", False),
        ("skew", True),
        ("keys", True),
        ("bytes", True),
        ("re-\ndelivered", True),
        ("un-\nacked", True),
    )
    top = max((total.share for total in data.totals), default=0.0)
    rows: list[Sequence[Cell]] = [
        (t.consumer, words.count(t.messages), words.percent(t.share), _bar(t.share, top), words.times(t.skew),
         words.count(t.keys), words.size(t.bytes), words.count(t.redelivered), words.count(t.unacked))
        for t in data.totals[:MOST_ROWS]
    ]  # fmt: skip
    return _with_rest(_table(columns, rows), len(data.totals))


def _scenarios(scenarios: Sequence[ScenarioView]) -> Table:
    columns = (("scenario", False), ("con-\nsumers", True), ("max\nshare", True), ("perfect\nshare", True),
               ("\nskew", True), ("worst\nwindow", True), ("traffic\nmoved", True), ("\nceiling", True),
               ("un-\nowned", True))  # fmt: skip
    rows: list[Sequence[Cell]] = [
        (s.name, words.count(s.consumers), words.percent(s.max_share), words.percent(s.perfect_share),
         words.times(s.skew), words.times(s.worst_window_skew), words.percent(s.traffic_moved),
         words.times(s.ceiling) if s.ceiling else words.MISSING, _alarm(s.unowned))
        for s in scenarios[:MOST_ROWS]
    ]  # fmt: skip
    return _with_rest(_table(columns, rows), len(scenarios))


def _with_rest(table: Table, total: int) -> Table:
    """The table, with what it leaves out counted below."""
    if total > MOST_ROWS:
        table.caption = Text(f"and {words.count(total - MOST_ROWS)} more in report.json")
        table.caption_justify = "left"
    return table


def _cannot(data: ReportData) -> Table:
    table = Table.grid(padding=(0, 1))
    for line in data.cannot_tell:
        table.add_row(Text("-"), Text(line))
    return table


def _bar(share: float, top: float) -> str:
    """A bar as long as the share, the longest ``BAR`` characters."""
    return "█" * round(BAR * share / top) if top > 0 else ""
