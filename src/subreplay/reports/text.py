"""Render a report for a terminal or as plain text: the verdict first, then its evidence."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from subreplay.reports.data import Answer, ConsumerTotal, ReportData, RunInfo, ScenarioConsumer, ScenarioView
from subreplay.reports.dispatch_text import (
    build_dispatch_table,
    build_latency_table,
    list_blocker_tables,
    list_early_deliveries,
)
from subreplay.reports.finding_data import CodeSummary
from subreplay.reports.formatting import (
    MISSING,
    find_common_day,
    format_bytes,
    format_clock,
    format_count,
    format_names,
    format_optional_percent,
    format_percent,
    format_plural,
    format_ratio,
    format_worst,
)
from subreplay.reports.metrics import METRICS
from subreplay.reports.plan_text import build_plan_parts
from subreplay.reports.text_cleaning import clean_strings
from subreplay.reports.text_table import MAX_TABLE_ROWS, Cell, add_rest_count, build_table, find_min_width, format_alarm

WIDTH = 100
BAR = 10
MAX_INCIDENTS_SHOWN = 2  # shown with a rule's example; their own section lists all
STYLES = {
    "valid": "bold green",
    "unknown": "bold yellow",
    "invalid": "bold red",
    "clean": "green",
    "violated": "bold red",
    "allowed": "cyan",
    "counted": "cyan",
}
MARKS = {"valid": "✓", "unknown": "?", "invalid": "✗"}


def to_text(data: ReportData) -> str:
    """Format a report as plain text of 100 columns; equal data give equal text."""
    sink = io.StringIO()
    render(data, Console(file=sink, width=WIDTH, color_system=None, force_terminal=False, legacy_windows=False))
    return "\n".join(line.rstrip() for line in sink.getvalue().splitlines()).strip("\n") + "\n"


def render(data: ReportData, console: Console) -> None:
    """Print a report to a console, at most 100 columns wide."""
    data = clean_strings(data)
    width = min(console.width, WIDTH)
    for part in _build_parts(data):
        console.print(part, width=width, highlight=False, markup=False, emoji=False)


def _build_parts(data: ReportData) -> Iterable[Text | Table | Padding]:
    """Build the parts of the report from top to bottom."""
    yield _build_verdict(data)
    yield from _build_section("Why the verdict is unknown", _build_list(data.doubts), data.several_doubts)
    yield from build_plan_parts(data.plans)
    yield from _build_section("Answer", _build_answer_table(data.answers), bool(data.answers))
    yield from _build_comparison(data, first=True)
    yield _build_run_info(data.run)
    yield from _build_section("Input", _build_input_table(data), bool(data.inputs))
    yield from _build_section("Rows in quarantine", _build_quarantine_table(data), bool(data.quarantine))
    yield from _build_section("Headline facts", _build_fact_table(data), bool(data.facts))
    yield from _build_section("Rules", _build_rule_table(data.codes), bool(data.codes))
    known = any(code.incidents for code in data.codes)
    yield from _build_section("Known upstream faults that findings look like", _build_incident_table(data.codes), known)
    yield from _build_section(
        "Load per consumer", _build_load_table(data), bool(data.totals), "share", "fair share", "skew", "unacked"
    )
    yield from (Padding(Text(line), (0, 0, 0, 2)) for line in _describe_idle(data.totals))
    yield from _build_comparison(data, first=False)
    title = "Latency from publication, or due time, to the application (predicted)"
    yield from _build_section(title, build_latency_table(data.dispatch), bool(data.dispatch), "latency")
    yield from (Padding(Text(line), (0, 0, 0, 2)) for line in list_early_deliveries(data.dispatch))
    figures = ("backlog", "drain", "blocked")
    yield from _build_section(
        "Dispatch replay (predicted)", build_dispatch_table(data.dispatch), bool(data.dispatch), *figures
    )
    day = find_common_day(data.run.window_start, data.run.window_end)
    for title, body in list_blocker_tables(data.dispatch, _build_taken_tables(data.scenarios), day):
        yield from _build_section(title, body, True)
    yield from _build_section("Limits of the data", _build_list(data.cannot_tell), bool(data.cannot_tell))


def _build_comparison(data: ReportData, first: bool) -> Iterable[Text | Padding]:
    """Build the scenario section, which comes first in a what-if and later in an audit."""
    if first == (data.run.kind == "whatif"):
        figures = ("fair share", "skew", "worst window", "traffic moved", "ceiling")
        yield from _build_section(
            "Scenarios over the same traffic", _build_scenario_table(data.scenarios), bool(data.scenarios), *figures
        )
        yield from _list_reasons(data.scenarios)


def _build_section(title: str, body: Table, shown: bool, *figures: str) -> Iterable[Text | Padding]:
    """Build a heading, a table and the definitions of its figures, if there is something to show."""
    if shown:
        yield Text(f"\n{title}", style="bold")
        yield Padding(body, (0, 0, 0, 2))
        for name in figures:
            yield Padding(Text(f"{name}: {METRICS[name]}", style="dim"), (0, 0, 0, 2))


def _build_verdict(data: ReportData) -> Table:
    """Build the verdict: a mark, a word and a sentence that wraps in its own column."""
    style = STYLES.get(data.verdict, "bold")
    word = f"{MARKS.get(data.verdict, '?')} {data.verdict.upper()}"
    if data.run.kind == "whatif":  # a what-if has no verdict
        word, style = "WHAT IF", "bold"
    line = Table.grid(padding=(0, 2))
    line.add_column(no_wrap=True)
    line.add_row(Text(word, style=style), Text(data.headline))
    return line


def _build_run_info(run: RunInfo) -> Padding:
    day = find_common_day(run.window_start, run.window_end)
    window = f"{format_clock(run.window_start)} to {format_clock(run.window_end, day)} UTC"
    options = ", ".join(f"{name} {value}" for name, value in run.options)
    rows = (
        ("what", f"{run.title} ({run.kind}, run {run.run_id})"),
        ("subscription", f"{run.subscription} on {run.topic}" + _describe_partitions(run)),
        ("data", window),
        ("policy", run.policy + (f" ({options})" if options else "")),
        ("profile", run.profile),
        ("config", run.config_digest + (f", seed {run.seed}" if run.seed is not None else "")),
        *([("engine", run.engine.words)] if run.engine is not None else []),
    )
    grid = Table.grid(padding=(0, 2))
    for name, value in rows:
        grid.add_row(Text(name, style="dim"), Text(value))
    return Padding(grid, (1, 0, 0, 2))


def _describe_partitions(run: RunInfo) -> str:
    return f", {format_plural(run.partitions, 'partition')}" if run.partitions else ", not partitioned"


def _build_input_table(data: ReportData) -> Table:
    columns = (("table", False), ("rows", True), ("valid", True), ("quarantined", True), ("note", False))
    return build_table(
        columns,
        [
            (row.table, format_count(row.rows_in), format_count(row.valid), format_alarm(row.quarantined), row.note)
            for row in data.inputs
        ],
    )


def _build_quarantine_table(data: ReportData) -> Table:
    columns = (("table", False), ("column", False), ("rows", True), ("rule, and what to do", False), ("example", False))
    rows: list[Sequence[Cell]] = [
        (row.table, row.column, format_count(row.rows), f"{row.rule}: {row.remedy}", row.example)
        for row in data.quarantine[:MAX_TABLE_ROWS]
    ]
    return add_rest_count(build_table(columns, rows), len(data.quarantine))


def _build_fact_table(data: ReportData) -> Table:
    grid = Table.grid(padding=(0, 2))
    for _ in range(3):
        grid.add_column(overflow="fold")
    for fact in data.facts:
        grid.add_row(Text(fact.label, style="dim"), Text(fact.value, style="bold"), Text(fact.note))
    return grid


def _build_rule_table(codes: Sequence[CodeSummary]) -> Table:
    columns = (("code", False), ("status", False), ("count", True), ("example, or why not", False))
    return build_table(
        columns,
        [
            (
                code.code,
                Text(code.status, style=STYLES.get(code.status, "yellow")),
                _format_rule_count(code),
                _format_example(code),
            )
            for code in codes
        ],
    )


def _format_rule_count(code: CodeSummary) -> str:
    """Format the count of a rule; an undecided rule shows a dash, never 0."""
    undecided = code.status == "not applicable" or (code.status == "unknown" and not code.count)
    return MISSING if undecided else format_count(code.count)


def _format_example(code: CodeSummary) -> str:
    if code.worst:
        worst = code.worst[0]
        text = worst.sentence + (f" ({code.note})" if code.note else "")
        text += f"; {worst.cause}" if code.code == "LOST" and worst.cause else ""
        if worst.attribution and code.status in ("violated", "unknown"):
            text += f"; attributed to: {worst.attribution}"
        return text + "".join(f"; {incident.sentence}" for incident in code.incidents[:MAX_INCIDENTS_SHOWN])
    return code.note or ("none found" if code.status == "clean" else code.title)


def _build_incident_table(codes: Sequence[CodeSummary]) -> Table:
    """Build the table of known faults: the ticket, then the advice and the address on a line of their own."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for code in codes:
        for one in code.incidents:
            title = Text.assemble((one.ticket, "bold"), f" {one.title}. {one.releases}")
            grid.add_row(Text(code.code), title)
            grid.add_row(Text(""), Text(f"{one.advice} {one.url}"))
    return grid


def _build_load_table(data: ReportData) -> Table:
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
        (
            t.consumer,
            format_count(t.messages),
            format_percent(t.share),
            _draw_bar(t.share, top),
            format_ratio(t.skew),
            format_count(t.keys),
            format_bytes(t.bytes),
            format_count(t.redelivered),
            format_count(t.unacked),
        )
        for t in data.totals[:MAX_TABLE_ROWS]
    ]
    return add_rest_count(build_table(columns, rows), len(data.totals))


def _build_scenario_table(scenarios: Sequence[ScenarioView]) -> Table:
    columns = (
        ("scenario", False),
        ("con-\nsumers", True),
        ("max\nshare", True),
        ("fair\nshare", True),
        ("\nskew", True),
        ("worst\nwindow", True),
        ("traffic\nmoved", True),
        ("\nceiling", True),
        ("un-\nowned", True),
    )
    rows: list[Sequence[Cell]] = [
        (
            s.name,
            format_count(s.consumers),
            format_percent(s.max_share),
            format_percent(s.even_share),
            format_ratio(s.skew),
            format_ratio(s.worst_window_skew),
            format_optional_percent(s.traffic_moved),
            format_ratio(s.ceiling) if s.ceiling else MISSING,
            format_alarm(s.unowned),
        )
        for s in scenarios[:MAX_TABLE_ROWS]
    ]
    return add_rest_count(build_table(columns, rows), len(scenarios))


def _build_taken_tables(scenarios: Sequence[ScenarioView]) -> dict[str, Table]:
    """Build the tables of messages per consumer in a dispatch replay, by scenario."""
    columns = (("consumer", False), ("messages", True), ("share", True), ("skew", True), ("bytes", True))
    tables = {}
    for scenario in scenarios:
        rows: list[Sequence[Cell]] = [
            (c.consumer, format_count(c.messages), format_percent(c.share), format_ratio(c.skew), format_bytes(c.bytes))
            for c in scenario.per_consumer[:MAX_TABLE_ROWS]
        ]
        if scenario.replayed and rows:
            tables[scenario.name] = add_rest_count(build_table(columns, rows), len(scenario.per_consumer))
    return tables


def _build_answer_table(answers: Sequence[Answer]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim")
    names = [format_names(answer.scenarios, answer.compared) for answer in answers]
    grid.add_column(overflow="fold", min_width=find_min_width(names))
    grid.add_column(overflow="fold")
    for answer, name in zip(answers, names, strict=True):
        grid.add_row(Text(answer.title), Text(name, style="bold"), Text(_format_comparison(answer)))
    return grid


def _format_comparison(answer: Answer) -> str:
    """Format the best figure, and the highest one if it differs."""
    return f"{answer.metric} {answer.best}{format_worst(answer.worst, answer.best)}"


def _list_reasons(scenarios: Sequence[ScenarioView]) -> Iterable[Padding]:
    """List the idle consumers, the messages without an owner and the notes of each scenario."""
    for s in scenarios[:MAX_TABLE_ROWS]:
        text = [
            *_describe_idle(s.per_consumer),
            *([f"without an owner: {s.unowned_why}"] if s.unowned else []),
            *filter(None, [s.note]),
        ]
        if text:
            yield Padding(Text(f"{s.name}: {'; '.join(text)}"), (0, 0, 0, 2))


def _describe_idle(consumers: Sequence[ConsumerTotal | ScenarioConsumer]) -> list[str]:
    """Describe the consumers that received nothing, and why."""
    names: dict[str, list[str]] = {}
    for one in consumers:
        if one.note:
            names.setdefault(one.note, []).append(one.consumer)
    return [
        f"idle: {format_names(consumers_with_reason, 0, MAX_TABLE_ROWS)}, {why}"
        for why, consumers_with_reason in names.items()
    ]


def _build_list(lines: Sequence[str]) -> Table:
    grid = Table.grid(padding=(0, 1))
    for line in lines:
        grid.add_row(Text("-"), Text(line))
    return grid


def _draw_bar(share: float, top: float) -> str:
    """Draw a bar of up to ``BAR`` characters, proportional to the share."""
    return "█" * round(BAR * share / top) if top > 0 else ""
