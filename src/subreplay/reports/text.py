"""The report in a terminal, or as plain text: verdict first, then what it rests on. Colour never stands alone."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from subreplay.reports import words
from subreplay.reports.clean import cleaned
from subreplay.reports.data import Answer, ConsumerTotal, ReportData, RunInfo, ScenarioConsumer, ScenarioView
from subreplay.reports.dispatch_text import blockers, compared, latencies, too_early
from subreplay.reports.finding_data import CodeSummary
from subreplay.reports.metrics import METRICS
from subreplay.reports.plan_text import plan_parts
from subreplay.reports.text_table import MOST_ROWS, Cell, alarm, readable, table, with_rest

WIDTH = 100
BAR = 10
MOST_INCIDENTS = 2  # that stand beside a rule's example; a section of their own has all
STYLES = {
    "valid": "bold green", "unknown": "bold yellow", "invalid": "bold red",
    "clean": "green", "violated": "bold red", "allowed": "cyan", "counted": "cyan",
}  # fmt: skip
MARKS = {"valid": "✓", "unknown": "?", "invalid": "✗"}


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
    yield from _section("What leaves doubt", _lines(data.doubts), data.several_doubts)
    yield from plan_parts(data.plans)
    yield from _section("Answer", _answers(data.answers), bool(data.answers))
    yield from _compared(data, first=True)
    yield _run(data.run)
    yield from _section("Input", _inputs(data), bool(data.inputs))
    yield from _section("Rows in quarantine", _quarantine(data), bool(data.quarantine))
    yield from _section("Headline facts", _facts(data), bool(data.facts))
    yield from _section("Rules", _codes(data.codes), bool(data.codes))
    known = any(code.incidents for code in data.codes)
    yield from _section("Known upstream faults that findings look like", _incidents(data.codes), known)
    yield from _section("Load per consumer", _load(data), bool(data.totals), "share", "even share", "skew", "unacked")
    yield from (Padding(Text(line), (0, 0, 0, 2)) for line in _idle(data.totals))
    yield from _compared(data, first=False)
    title = "Latency from publication, or due time, to the application (predicted)"
    yield from _section(title, latencies(data.dispatch), bool(data.dispatch), "latency")
    yield from (Padding(Text(line), (0, 0, 0, 2)) for line in too_early(data.dispatch))
    figures = ("backlog", "drain", "blocked")
    yield from _section("Dispatch replay (predicted)", compared(data.dispatch), bool(data.dispatch), *figures)
    day = words.one_day(data.run.window_start, data.run.window_end)
    for title, body in blockers(data.dispatch, _taken(data.scenarios), day):
        yield from _section(title, body, True)
    yield from _section("What this data cannot tell", _lines(data.cannot_tell), bool(data.cannot_tell))


def _compared(data: ReportData, first: bool) -> Iterable[Text | Padding]:
    """The scenarios: what a what-if begins with, and what an audit has beside it."""
    if first == (data.run.kind == "whatif"):
        figures = ("even share", "skew", "worst window", "traffic moved", "ceiling")
        yield from _section(
            "Scenarios over the same traffic", _scenarios(data.scenarios), bool(data.scenarios), *figures
        )
        yield from _reasons(data.scenarios)


def _section(title: str, body: Table, shown: bool, *figures: str) -> Iterable[Text | Padding]:
    """A heading, its table and what its figures mean; nothing where there is nothing to show."""
    if shown:
        yield Text(f"\n{title}", style="bold")
        yield Padding(body, (0, 0, 0, 2))
        for name in figures:
            yield Padding(Text(f"{name}: {METRICS[name]}", style="dim"), (0, 0, 0, 2))


def _verdict(data: ReportData) -> Table:
    """Mark, word and sentence; the sentence wraps under itself."""
    style = STYLES.get(data.verdict, "bold")
    word = f"{MARKS.get(data.verdict, '?')} {data.verdict.upper()}"
    if data.run.kind == "whatif":  # it judges nothing that happened
        word, style = "WHAT IF", "bold"
    line = Table.grid(padding=(0, 2))
    line.add_column(no_wrap=True)
    line.add_row(Text(word, style=style), Text(data.headline))
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
        *([("engine", run.engine.words)] if run.engine is not None else []),
    )
    table = Table.grid(padding=(0, 2))
    for name, value in rows:
        table.add_row(Text(name, style="dim"), Text(value))
    return Padding(table, (1, 0, 0, 2))


def _partitions(run: RunInfo) -> str:
    return f", {words.plural(run.partitions, 'partition')}" if run.partitions else ", not partitioned"


def _inputs(data: ReportData) -> Table:
    columns = (("table", False), ("rows", True), ("valid", True), ("quarantined", True), ("note", False))
    return table(
        columns,
        [
            (row.table, words.count(row.rows_in), words.count(row.valid), alarm(row.quarantined), row.note)
            for row in data.inputs
        ],
    )


def _quarantine(data: ReportData) -> Table:
    columns = (("table", False), ("column", False), ("rows", True), ("rule, and what to do", False), ("example", False))
    rows: list[Sequence[Cell]] = [
        (row.table, row.column, words.count(row.rows), f"{row.rule}: {row.remedy}", row.example)
        for row in data.quarantine[:MOST_ROWS]
    ]
    return with_rest(table(columns, rows), len(data.quarantine))


def _facts(data: ReportData) -> Table:
    table = Table.grid(padding=(0, 2))
    for _ in range(3):
        table.add_column(overflow="fold")
    for fact in data.facts:
        table.add_row(Text(fact.label, style="dim"), Text(fact.value, style="bold"), Text(fact.note))
    return table


def _codes(codes: Sequence[CodeSummary]) -> Table:
    columns = (("code", False), ("status", False), ("count", True), ("example, or why not", False))
    return table(
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
        worst = code.worst[0]
        told = worst.sentence + (f" ({code.note})" if code.note else "")
        told += f"; {worst.cause}" if code.code == "LOST" and worst.cause else ""
        if worst.attribution and code.status in ("violated", "unknown"):
            told += f"; attributed to: {worst.attribution}"
        return told + "".join(f"; {incident.sentence}" for incident in code.incidents[:MOST_INCIDENTS])
    return code.note or ("none found" if code.status == "clean" else code.title)


def _incidents(codes: Sequence[CodeSummary]) -> Table:
    """A ticket with what to do, and where it is, on lines of its own."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for code in codes:
        for one in code.incidents:
            title = Text.assemble((one.ticket, "bold"), f" {one.title}. {one.releases}")
            table.add_row(Text(code.code), title)
            table.add_row(Text(""), Text(f"{one.advice} {one.url}"))
    return table


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
    return with_rest(table(columns, rows), len(data.totals))


def _scenarios(scenarios: Sequence[ScenarioView]) -> Table:
    columns = (("scenario", False), ("con-\nsumers", True), ("max\nshare", True), ("even\nshare", True),
               ("\nskew", True), ("worst\nwindow", True), ("traffic\nmoved", True), ("\nceiling", True),
               ("un-\nowned", True))  # fmt: skip
    rows: list[Sequence[Cell]] = [
        (s.name, words.count(s.consumers), words.percent(s.max_share), words.percent(s.even_share),
         words.times(s.skew), words.times(s.worst_window_skew), words.percent_or_none(s.traffic_moved),
         words.times(s.ceiling) if s.ceiling else words.MISSING, alarm(s.unowned))
        for s in scenarios[:MOST_ROWS]
    ]  # fmt: skip
    return with_rest(table(columns, rows), len(scenarios))


def _taken(scenarios: Sequence[ScenarioView]) -> dict[str, Table]:
    """What each consumer takes in a dispatch replay, by scenario."""
    columns = (("consumer", False), ("messages", True), ("share", True), ("skew", True), ("bytes", True))
    found = {}
    for scenario in scenarios:
        rows: list[Sequence[Cell]] = [
            (c.consumer, words.count(c.messages), words.percent(c.share), words.times(c.skew), words.size(c.bytes))
            for c in scenario.per_consumer[:MOST_ROWS]
        ]
        if scenario.replayed and rows:
            found[scenario.name] = with_rest(table(columns, rows), len(scenario.per_consumer))
    return found


def _answers(answers: Sequence[Answer]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="dim")
    names = [words.best(answer.scenarios, answer.compared) for answer in answers]
    table.add_column(overflow="fold", min_width=readable(names))
    table.add_column(overflow="fold")
    for answer, name in zip(answers, names, strict=True):
        table.add_row(Text(answer.title), Text(name, style="bold"), Text(_against(answer)))
    return table


def _against(answer: Answer) -> str:
    """The best figure, and the highest of all where it differs."""
    return f"{answer.metric} {answer.best}{words.others(answer.worst, answer.best)}"


def _reasons(scenarios: Sequence[ScenarioView]) -> Iterable[Padding]:
    """Who is idle, what is unowned and what else is to be known, scenario by scenario."""
    for s in scenarios[:MOST_ROWS]:
        told = [*_idle(s.per_consumer), *([f"unowned: {s.unowned_why}"] if s.unowned else []), *filter(None, [s.note])]
        if told:
            yield Padding(Text(f"{s.name}: {'; '.join(told)}"), (0, 0, 0, 2))


def _idle(consumers: Sequence[ConsumerTotal | ScenarioConsumer]) -> list[str]:
    """Who was given nothing, and why."""
    names: dict[str, list[str]] = {}
    for one in consumers:
        if one.note:
            names.setdefault(one.note, []).append(one.consumer)
    return [f"idle: {words.best(mine, 0, MOST_ROWS)}, {why}" for why, mine in names.items()]


def _lines(lines: Sequence[str]) -> Table:
    table = Table.grid(padding=(0, 1))
    for line in lines:
        table.add_row(Text("-"), Text(line))
    return table


def _bar(share: float, top: float) -> str:
    """A bar as long as the share, the longest ``BAR`` characters."""
    return "█" * round(BAR * share / top) if top > 0 else ""
