"""The report in a terminal, or as plain text: verdict first, then what it rests on. Colour never stands alone."""

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
MAX_INCIDENTS_SHOWN = 2  # that stand beside a rule's example; a section of their own has all
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
    """The report as plain text of 100 columns; the same data gives the same text."""
    sink = io.StringIO()
    render(data, Console(file=sink, width=WIDTH, color_system=None, force_terminal=False, legacy_windows=False))
    return "\n".join(line.rstrip() for line in sink.getvalue().splitlines()).strip("\n") + "\n"


def render(data: ReportData, console: Console) -> None:
    """Print the report to a console of any width; beyond 100 columns nothing gets wider."""
    data = clean_strings(data)
    width = min(console.width, WIDTH)
    for part in _build_parts(data):
        console.print(part, width=width, highlight=False, markup=False, emoji=False)


def _build_parts(data: ReportData) -> Iterable[Text | Table | Padding]:
    """What is printed, from top to bottom."""
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
        "Load per consumer", _build_load_table(data), bool(data.totals), "share", "even share", "skew", "unacked"
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
    """The scenarios: what a what-if begins with, and what an audit has beside it."""
    if first == (data.run.kind == "whatif"):
        figures = ("even share", "skew", "worst window", "traffic moved", "ceiling")
        yield from _build_section(
            "Scenarios over the same traffic", _build_scenario_table(data.scenarios), bool(data.scenarios), *figures
        )
        yield from _list_reasons(data.scenarios)


def _build_section(title: str, body: Table, shown: bool, *figures: str) -> Iterable[Text | Padding]:
    """A heading, its table and what its figures mean; nothing where there is nothing to show."""
    if shown:
        yield Text(f"\n{title}", style="bold")
        yield Padding(body, (0, 0, 0, 2))
        for name in figures:
            yield Padding(Text(f"{name}: {METRICS[name]}", style="dim"), (0, 0, 0, 2))


def _build_verdict(data: ReportData) -> Table:
    """Mark, word and sentence; the sentence wraps under itself."""
    style = STYLES.get(data.verdict, "bold")
    word = f"{MARKS.get(data.verdict, '?')} {data.verdict.upper()}"
    if data.run.kind == "whatif":  # it judges nothing that happened
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
    build_table = Table.grid(padding=(0, 2))
    for name, value in rows:
        build_table.add_row(Text(name, style="dim"), Text(value))
    return Padding(build_table, (1, 0, 0, 2))


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
    build_table = Table.grid(padding=(0, 2))
    for _ in range(3):
        build_table.add_column(overflow="fold")
    for fact in data.facts:
        build_table.add_row(Text(fact.label, style="dim"), Text(fact.value, style="bold"), Text(fact.note))
    return build_table


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
    """The count; a rule that was not decided has none (never 0)."""
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
    """A ticket with what to do, and where it is, on lines of its own."""
    build_table = Table.grid(padding=(0, 2))
    build_table.add_column(no_wrap=True)
    build_table.add_column(overflow="fold")
    for code in codes:
        for one in code.incidents:
            title = Text.assemble((one.ticket, "bold"), f" {one.title}. {one.releases}")
            build_table.add_row(Text(code.code), title)
            build_table.add_row(Text(""), Text(f"{one.advice} {one.url}"))
    return build_table


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
        ("even\nshare", True),
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
    """What each consumer takes in a dispatch replay, by scenario."""
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
    build_table = Table.grid(padding=(0, 2))
    build_table.add_column(no_wrap=True, style="dim")
    names = [format_names(answer.scenarios, answer.compared) for answer in answers]
    build_table.add_column(overflow="fold", min_width=find_min_width(names))
    build_table.add_column(overflow="fold")
    for answer, name in zip(answers, names, strict=True):
        build_table.add_row(Text(answer.title), Text(name, style="bold"), Text(_format_comparison(answer)))
    return build_table


def _format_comparison(answer: Answer) -> str:
    """The best figure, and the highest of all where it differs."""
    return f"{answer.metric} {answer.best}{format_worst(answer.worst, answer.best)}"


def _list_reasons(scenarios: Sequence[ScenarioView]) -> Iterable[Padding]:
    """Who is idle, what is unowned and what else is to be known, scenario by scenario."""
    for s in scenarios[:MAX_TABLE_ROWS]:
        text = [
            *_describe_idle(s.per_consumer),
            *([f"unowned: {s.unowned_why}"] if s.unowned else []),
            *filter(None, [s.note]),
        ]
        if text:
            yield Padding(Text(f"{s.name}: {'; '.join(text)}"), (0, 0, 0, 2))


def _describe_idle(consumers: Sequence[ConsumerTotal | ScenarioConsumer]) -> list[str]:
    """Who was given nothing, and why."""
    names: dict[str, list[str]] = {}
    for one in consumers:
        if one.note:
            names.setdefault(one.note, []).append(one.consumer)
    return [
        f"idle: {format_names(consumers_with_reason, 0, MAX_TABLE_ROWS)}, {why}"
        for why, consumers_with_reason in names.items()
    ]


def _build_list(lines: Sequence[str]) -> Table:
    build_table = Table.grid(padding=(0, 1))
    for line in lines:
        build_table.add_row(Text("-"), Text(line))
    return build_table


def _draw_bar(share: float, top: float) -> str:
    """A bar as long as the share, the longest ``BAR`` characters."""
    return "█" * round(BAR * share / top) if top > 0 else ""
