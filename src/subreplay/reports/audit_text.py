"""Format the parts of an audit as plain text: incidents, waiting messages, load, rules and quarantine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import Final

from rich.cells import cell_len
from rich.text import Text

from subreplay.reports.data import ConsumerTotal, ReportData, RunInfo, ScenarioConsumer
from subreplay.reports.finding_data import CodeSummary
from subreplay.reports.formatting import (
    MISSING,
    find_common_day,
    format_bytes,
    format_clock,
    format_count,
    format_names,
    format_percent,
    format_plural,
    format_ratio,
    format_utc_clock,
    shorten_scope,
)
from subreplay.reports.incident_data import IncidentView
from subreplay.reports.text_layout import (
    MAX_TABLE_ROWS,
    Cell,
    Column,
    TextPage,
    format_alarm,
    shorten_middle,
    wrap_text,
)
from subreplay.reports.timeline_data import RunTimeline, TimelinePoint

STATUS_STYLES: Final = {
    "clean": "green",
    "violated": "bold red",
    "allowed": "cyan",
    "counted": "cyan",
    "unknown": "magenta",
}
MAX_INCIDENTS_SHOWN: Final = 5
MAX_FAULTS_SHOWN: Final = 2  # known faults beside the example of a rule; their own section lists all
_MAX_NAMES: Final = 3
_NAME_WIDTH: Final = 32  # a longer name in a sentence is shortened in the middle
_BAR: Final = 10
_LEVELS: Final = "▁▂▃▄▅▆▇█"
_MAX_SPARKS: Final = 60
_LEAST_SPARKS: Final = 20
_INDENT: Final = 3  # of the lines below an incident's title


def summarize_incidents(data: ReportData, width: int, space: int) -> list[Text]:
    """List the most severe incidents in at most ``space`` lines, and count the others.

    Each has its title, when it was and whose doing it is, and what to do. The first one has more if there is space.
    """
    shown = data.incidents[:MAX_INCIDENTS_SHOWN]
    parts: list[list[list[Text]]] = [list(_list_incident_parts(one, data, width, False)) for one in shown]
    wanted = [(0, level) for level in range(3)] if parts else []
    wanted += [(number, level) for level in range(3) for number in range(1, len(parts))]
    wanted += [(0, level) for level in range(3, len(parts[0]) if parts else 0)]
    more = len(data.incidents) > 1
    left, kept = space - 1 - more, set[tuple[int, int]]()  # without the heading and the count of the others
    for number, level in wanted:
        if (lines := parts[number][level]) and len(lines) <= left:
            left -= len(lines)
            kept.add((number, level))
    titled = [number for number in range(len(parts)) if (number, 0) in kept]
    if not titled:
        return []
    page = TextPage(width)
    page.add_heading("What happened")
    page.lines += [
        line
        for number in titled
        for level, lines in enumerate(parts[number])
        if (number, level) in kept
        for line in lines
    ]
    if rest := [one for number, one in enumerate(data.incidents) if number not in titled]:
        findings = format_plural(sum(one.findings for one in rest), "finding")
        page.add(f"{format_plural(len(rest), 'more incident')} with {findings}", indent=_INDENT, most=1)
    return page.lines


def add_incidents(page: TextPage, data: ReportData) -> None:
    """Add all incidents with everything that is known about them."""
    if data.incidents:
        page.add_heading("What happened")
    for one in data.incidents:
        for lines in _list_incident_parts(one, data, page.width, True):
            page.lines += lines


def _list_incident_parts(one: IncidentView, data: ReportData, width: int, full: bool) -> Iterator[list[Text]]:
    """List the parts of an incident as lines, the most important first; a part may be empty."""

    def wrap(label: str, text: str, most: int) -> list[Text]:
        labelled = Text.assemble((label, "bold"), text)
        return wrap_text(labelled, width, indent=_INDENT, most=None if full else most) if text else []

    inconclusive = " (inconclusive)" if one.verdict == "unknown" else ""
    title = Text(f"{one.number:<{_INDENT}}{one.title}{inconclusive}", style="bold")
    yield wrap_text(title, width, hang=_INDENT, most=None if full else 2)
    yield wrap("", "; ".join(_describe_circumstances(one, data.run)), 3)
    yield wrap("Next: ", one.next_step, 2)
    if full or f"{one.title}." != data.headline:  # else the sentences below the headline say it
        yield wrap("Cause: ", "; ".join(one.causes), 3)
        yield wrap("", one.detail, 4)
    if one.example is not None:
        yield wrap("Evidence: ", "; ".join(one.example.witness), 2)
    faults = one.known_faults if full else one.known_faults[:MAX_FAULTS_SHOWN]
    yield wrap("", "; ".join(f"{fault.sentence} ({fault.url})" if full else fault.sentence for fault in faults), 1)


def _describe_circumstances(one: IncidentView, run: RunInfo) -> Iterator[str]:
    """Say when an incident was, who took part, whose doing it is, and which rules found it."""
    day = find_common_day(run.window_start, run.window_end)
    lasted = f"{one.lasted}, until the data end" if one.ongoing else one.lasted
    instants = list(dict.fromkeys((format_clock(one.start, day), format_clock(one.end, day))))
    yield " to ".join(instants) + (f" ({lasted})" if len(instants) > 1 and lasted else "")
    for names, left_out in ((one.consumers, one.consumers_left_out), (one.scopes, one.scopes_left_out)):
        if names is one.scopes:
            names = tuple(filter(None, (shorten_scope(name, run.topic) for name in names if run.partitions)))
        if names:
            short = [shorten_middle(name, _NAME_WIDTH) for name in names[:_MAX_NAMES]]
            rest = len(names) - len(short) + left_out
            yield ", ".join(short) + (f" and {format_count(rest)} more" if rest else "")
    if one.attribution:
        yield f"attributed to: {one.attribution}"
    yield ", ".join(f"{rule.code} {format_count(rule.findings)}" for rule in one.rules)


def list_rule_examples(data: ReportData, width: int, space: int) -> list[Text]:
    """List the worst finding of each rule that fails, for a report without incidents."""
    page = TextPage(width)
    failing = [code for code in data.codes if code.status in ("violated", "unknown") and code.worst]
    if failing:
        page.add_heading("What was found")
    for code in failing:
        worst = code.worst[0]
        attributed = f"; attributed to: {worst.attribution}" if worst.attribution else ""
        name = (f"{code.code} {format_count(code.count)}", STATUS_STYLES[code.status])
        faults = "".join(f"; {fault.sentence}" for fault in code.incidents[:MAX_FAULTS_SHOWN])
        page.add(Text.assemble(name, f"  {worst.sentence}{attributed}{faults}"), indent=2, hang=2, most=4)
    return page.lines[:space]


def draw_waiting(data: ReportData, width: int) -> list[Text]:
    """Draw the waiting messages over time as one line of blocks, with the largest number and when it was."""
    timeline = data.timeline
    most = max(timeline.points, key=lambda point: point.waiting, default=None) if timeline else None
    if timeline is None or most is None or not most.waiting:
        return []
    day = find_common_day(data.run.window_start, data.run.window_end)
    first, last = _format_ends(timeline.points, day)
    at = format_utc_clock(most.end_us) if day else format_clock(_format_instant(most.end_us))
    peak = f"most {format_count(most.waiting)} at {at}"
    head = f"Waiting messages  {first} "
    tail = f" {last}  {peak}"
    sparks = width - cell_len(head) - cell_len(tail)
    second = sparks < _LEAST_SPARKS
    if second:
        tail = f" {last}"
        sparks = width - cell_len(head) - cell_len(tail)
    blocks = _draw_blocks(timeline, most.waiting, min(max(sparks, 1), _MAX_SPARKS))
    lines = [Text.assemble((head[:16], "bold"), head[16:], blocks, tail)]
    return [*lines, *wrap_text(peak, width, indent=18)] if second else lines


def _format_ends(points: Sequence[TimelinePoint], day: str | None) -> tuple[str, str]:
    ends = points[0].start_us, points[-1].end_us
    if day:
        return format_utc_clock(ends[0]), format_utc_clock(ends[1])
    return _format_instant(ends[0])[:10], _format_instant(ends[1])[:10]


def _format_instant(micros: int) -> str:
    return datetime.fromtimestamp(micros // 1_000_000, timezone.utc).isoformat().replace("+00:00", "Z")


def _draw_blocks(timeline: RunTimeline, most: int, number: int) -> str:
    """Draw the largest number of waiting messages of each of ``number`` equal parts of the time."""
    start, end = timeline.points[0].start_us, timeline.points[-1].end_us
    waiting = [0] * number
    for point in timeline.points:
        first = (point.start_us - start) * number // max(1, end - start)
        last = -(-(point.end_us - start) * number // max(1, end - start))
        for part in range(min(first, number - 1), min(max(last, first + 1), number)):
            waiting[part] = max(waiting[part], point.waiting)
    return "".join(_LEVELS[-(-value * (len(_LEVELS) - 1) // most)] for value in waiting)


LOAD_COLUMNS: Final = (
    Column("consumer", "name"),
    Column("messages"),
    Column("share", rank=1),
    Column("", "text", rank=5),
    Column("skew", rank=2),
    Column("redelivered", rank=3),
    Column("unacked", rank=4),
    Column("keys", rank=6),
    Column("bytes", rank=7),
)


def summarize_load(totals: Sequence[ConsumerTotal], width: int, space: int) -> tuple[list[Text], list[str]]:
    """Build the table of loads in at most ``space`` lines: if not all consumers fit, the busiest and the least busy.

    Return the titles of the columns that did not fit, too.
    """
    page = TextPage(width)
    if not totals or space < 4:
        return [], []
    idle = [
        line
        for note in describe_idle(totals, _MAX_NAMES)[:1]
        for line in wrap_text(note, width, indent=2, hang=2, most=2)
    ]
    rows = max(2, space - 2 - len(idle))
    shown = list(totals)
    if len(shown) > rows:
        ranked = sorted(totals, key=lambda total: -total.messages)
        shown = [*ranked[: rows - 2], ranked[-1]]
    columns = [LOAD_COLUMNS[0]._replace(title="Load per consumer"), *LOAD_COLUMNS[1:7]]
    cells = [row[: len(columns)] for row in _list_load_rows(totals, shown)]
    page.add_table(columns, cells, indent=0)
    if len(shown) < len(totals):
        between = f"… {format_count(len(totals) - len(shown))} more consumers between these"
        page.lines.insert(len(page.lines) - 1, Text(between))
    page.lines += idle
    return page.lines, list(page.dropped)


def add_load(page: TextPage, totals: Sequence[ConsumerTotal]) -> None:
    """Add the table of loads with all columns."""
    page.add_table(LOAD_COLUMNS, _list_load_rows(totals, totals[:MAX_TABLE_ROWS]), total=len(totals))
    for note in describe_idle(totals):
        page.add(note, indent=2, hang=2)


def _list_load_rows(totals: Sequence[ConsumerTotal], shown: Sequence[ConsumerTotal]) -> list[Sequence[Cell]]:
    top = max((total.share for total in totals), default=0.0)
    return [
        (
            t.consumer,
            format_count(t.messages),
            format_percent(t.share),
            "█" * round(_BAR * t.share / top) if top > 0 else "",
            format_ratio(t.skew),
            format_count(t.redelivered),
            format_count(t.unacked),
            format_count(t.keys),
            format_bytes(t.bytes),
        )
        for t in shown
    ]


def describe_idle(consumers: Sequence[ConsumerTotal | ScenarioConsumer], most: int = MAX_TABLE_ROWS) -> list[str]:
    """Describe the consumers that received nothing, at most ``most`` by name, and why."""
    names: dict[str, list[str]] = {}
    for one in consumers:
        if one.note:
            names.setdefault(one.note, []).append(shorten_middle(one.consumer, _NAME_WIDTH))
    return [f"idle: {format_names(alike, 0, most)}, {why}" for why, alike in names.items()]


def summarize_rules(codes: Sequence[CodeSummary], width: int) -> list[Text]:
    """Count the findings of each rule in a few lines, and the rules without findings."""
    if not codes:
        return []
    found = [code for code in codes if code.count or code.status == "violated"]
    parts = [
        Text.assemble(
            (f"{code.code} {code.status}", STATUS_STYLES.get(code.status, "")), f" {format_count(code.count)}"
        )
        for code in found
    ]
    lines = (
        wrap_text(Text.assemble(("Rules  ", "bold"), Text(", ").join(parts)), width, hang=2, most=3) if found else []
    )
    counted = (
        ("found nothing", "found nothing", sum(code.status == "clean" and not code.count for code in codes)),
        ("could not judge", "could not judge", sum(code.status == "unknown" and not code.count for code in codes)),
        ("does not apply", "do not apply", sum(code.status == "not applicable" for code in codes)),
    )
    said = [f"{format_plural(count, 'rule')} {one if count == 1 else many}" for one, many, count in counted if count]
    return [*lines, *wrap_text("; ".join(said), width, most=2)] if said else lines


def add_rules(page: TextPage, codes: Sequence[CodeSummary]) -> None:
    """Add the table of all rules, each with an example or the reason why there is none."""
    rows: list[Sequence[Cell]] = [
        (
            Text(code.code),
            Text(code.status, style=STATUS_STYLES.get(code.status, "")),
            _format_rule_count(code),
            _format_example(code),
        )
        for code in codes
    ]
    columns = (Column("code", "name"), Column("status", "text"), Column("count"), Column("example, or why not", "text"))
    page.add_table(columns, rows)


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
        return text + "".join(f"; {fault.sentence}" for fault in code.incidents[:MAX_FAULTS_SHOWN])
    return code.note or ("none found" if code.status == "clean" else code.title)


def add_known_faults(page: TextPage, codes: Sequence[CodeSummary]) -> None:
    """Add the known faults: the ticket, then the advice and the address on lines of their own."""
    for code in codes:
        for one in code.incidents:
            title = Text.assemble(f"{code.code}  ", (one.ticket, "bold"), f" {one.title}. {one.releases}")
            page.add(title, indent=2, hang=2)
            page.add(f"{one.advice} {one.url}", indent=4)


def summarize_quarantine(data: ReportData, width: int) -> list[Text]:
    """Say how many rows are in quarantine, and the most frequent reason."""
    tables = [row for row in data.inputs if row.quarantined]
    if not tables:
        return []
    rows = ", ".join(f"{format_count(row.quarantined)} of {format_count(row.rows_in)} {row.table}" for row in tables)
    text = Text.assemble(("Quarantine", "bold"), f"  {rows}")
    if data.quarantine:
        first = data.quarantine[0]
        text.append(f"; most often {first.table}.{first.column}: {first.rule}. {first.remedy}")
    return wrap_text(text, width, most=2)


def add_quarantine(page: TextPage, data: ReportData) -> None:
    """Add the reasons why rows are in quarantine."""
    columns = (
        Column("table", "name"),
        Column("column", "name"),
        Column("rows"),
        Column("rule, and what to do", "text"),
        Column("example", "text", rank=1),
    )
    rows: list[Sequence[Cell]] = [
        (row.table, row.column, format_count(row.rows), f"{row.rule}: {row.remedy}", row.example)
        for row in data.quarantine[:MAX_TABLE_ROWS]
    ]
    page.add_table(columns, rows, total=len(data.quarantine))


def add_inputs(page: TextPage, data: ReportData) -> None:
    """Add the rows of each input table."""
    columns = (Column("table", "name"), Column("rows"), Column("valid"), Column("quarantined"), Column("note", "text"))
    rows: list[Sequence[Cell]] = [
        (row.table, format_count(row.rows_in), format_count(row.valid), format_alarm(row.quarantined), row.note)
        for row in data.inputs
    ]
    page.add_table(columns, rows)
