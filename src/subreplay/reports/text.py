"""Format a report for a terminal or as plain text, in the order of the page: the answer first, then its evidence.

The summary has at most ``MAX_LINES`` lines; the full text has everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from rich.text import Text

from subreplay.reports import audit_text, dispatch_text, plan_text, whatif_text
from subreplay.reports.data import ReportData, RunInfo
from subreplay.reports.formatting import find_common_day, format_clock, format_plural
from subreplay.reports.metrics import METRICS
from subreplay.reports.text_cleaning import clean_strings
from subreplay.reports.text_layout import MAX_TABLE_ROWS, TextPage, shorten_middle, wrap_text

if TYPE_CHECKING:
    from rich.console import Console

FILE_WIDTH: Final = 100
MIN_WIDTH, MAX_WIDTH = 60, 200
MAX_LINES: Final = 40  # of the summary and the path of the page together
STYLES: Final = {"valid": "bold green", "unknown": "bold magenta", "invalid": "bold red", "failed": "bold red"}
MARKS: Final = {"valid": "✓", "unknown": "?", "invalid": "✗", "failed": "✗"}
_HANGING_WIDTH: Final = 80  # from this width on, lines stand below the headline rather than below the verdict
_NAME_WIDTH: Final = 48
_LEAST_LOAD: Final = 7  # lines for the load beside many incidents
_MAX_LOAD: Final = 12
_MAX_DOUBTS: Final = 4

Part = tuple[list[Text], list[str]]
"""Lines, and the titles of the columns that did not fit."""


def to_text(data: ReportData) -> str:
    """Format the full report as plain text of 100 columns; equal data give equal text."""
    lines = build_full_text(clean_strings(data), FILE_WIDTH)
    return "\n".join(line.plain for line in lines) + "\n"


def render(data: ReportData, console: Console, *, full: bool = False, most: int = MAX_LINES) -> None:
    """Print a report to a console: its summary in at most ``most`` lines, or the full text."""
    data = clean_strings(data)
    width = measure_width(console)
    print_lines([*build_full_text(data, width), Text()] if full else build_summary(data, width, most), console)


def measure_width(console: Console) -> int:
    """Return the width of a text on a console."""
    return min(max(console.width, MIN_WIDTH), MAX_WIDTH)


def print_lines(lines: Sequence[Text], console: Console) -> None:
    """Print lines that were laid out for the console's width."""
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False, markup=False, emoji=False)


def describe_result(data: ReportData) -> tuple[str, str]:
    """Return the verdict, or what a what-if or a plan is, as a word, and the answer in a sentence."""
    if data.plans:
        return "PLAN", "; ".join(plan.choice or f"{plan.question}: {plan.best}" for plan in data.plans)
    if data.recommendation is not None:
        return "WHAT IF", data.recommendation.choice
    return "WHAT IF" if data.run.kind == "whatif" else data.verdict.upper(), data.headline


def build_summary(data: ReportData, width: int, most: int = MAX_LINES) -> list[Text]:
    """Build the summary of a report in at most ``most`` lines."""
    head = _build_head(data, width, full=False)
    space = most - len(head) - 3  # an empty line and two lines at the end
    summarize = _summarize_plans if data.plans else _summarize_whatif if data.run.kind == "whatif" else _summarize_audit
    parts = summarize(data, width, space)
    body = [line for lines, _ in parts if lines for line in (Text(), *lines)][:space]
    dropped = dict.fromkeys(title for _, titles in parts for title in titles if title)
    return [*head, *body, Text(), *_describe_rest(data, width, list(dropped))]


def _describe_rest(data: ReportData, width: int, dropped: Sequence[str]) -> list[Text]:
    """Say what the summary leaves out."""
    limits = f" and {format_plural(len(data.cannot_tell), 'limit')} of the data" if data.cannot_tell else ""
    what = "rules, facts, input" if data.codes else "all figures, input"
    narrow = f" Too narrow here, but on the page: {', '.join(dropped)}." if dropped else ""
    return wrap_text(f"--full adds {what}{limits}.{narrow}", width, most=2)


def _summarize_audit(data: ReportData, width: int, space: int) -> list[Part]:
    """Build the parts of an audit: incidents take what the others leave, then the load and the scenarios."""
    waiting = audit_text.draw_waiting(data, width)
    rules = audit_text.summarize_rules(data.codes, width) + audit_text.summarize_quarantine(data, width)
    space -= _measure(waiting, rules)
    load_lines = min(_LEAST_LOAD, len(data.totals) + 4) if data.totals else 0
    if data.incidents:
        incidents = audit_text.summarize_incidents(data, width, space - 1 - load_lines)
    else:
        incidents = audit_text.list_rule_examples(data, width, space - 1 - load_lines)
    if not incidents:
        incidents = _list_facts(data, width)[: max(0, space - 1 - load_lines)]
    space -= _measure(incidents)
    load = audit_text.summarize_load(data.totals, width, min(_MAX_LOAD, space - 1))
    space -= _measure(load[0])
    scenarios = whatif_text.summarize_comparison(data, width, space - 1)
    return [(incidents, []), (waiting, []), load, (rules, []), scenarios]


def _summarize_whatif(data: ReportData, width: int, space: int) -> list[Part]:
    answers = TextPage(width)
    if data.recommendation is None:
        whatif_text.add_answers(answers, data.answers[: space // 3], most=1)
    quarantine = audit_text.summarize_quarantine(data, width)
    space -= _measure(answers.lines, quarantine)
    scenarios = whatif_text.summarize_comparison(data, width, space - 1)
    return [(answers.lines, []), scenarios, (quarantine, [])]


def _summarize_plans(data: ReportData, width: int, space: int) -> list[Part]:
    quarantine = audit_text.summarize_quarantine(data, width)
    space -= _measure(quarantine)
    parts = []
    for number, plan in enumerate(data.plans):
        parts.append(plan_text.summarize_plan(plan, width, space // (len(data.plans) - number) - 1))
        space -= _measure(parts[-1][0])
    parts.append(whatif_text.summarize_comparison(data, width, space - 1))
    return [*parts, (quarantine, [])]


def _measure(*parts: Sequence[Text]) -> int:
    """Return the number of lines of parts, each with an empty line above it."""
    return sum(len(lines) + 1 for lines in parts if lines)


def build_full_text(data: ReportData, width: int) -> list[Text]:
    """Build all parts of a report from top to bottom."""
    page = TextPage(width)
    page.lines = _build_head(data, width, full=True)
    audit_text.add_incidents(page, data)
    if waiting := audit_text.draw_waiting(data, width):
        page.lines += [Text(), *waiting]
    plan_text.add_plans(page, data.plans)
    if data.answers:
        page.add_heading("Answer")
        whatif_text.add_answers(page, data.answers)
    if data.run.kind == "whatif":
        _add_replays(page, data)
    if data.totals:
        page.add_heading("Load per consumer")
        audit_text.add_load(page, data.totals)
        _define(page, "share", "fair share", "skew", "unacked")
    if data.codes:
        page.add_heading("Rules")
        audit_text.add_rules(page, data.codes)
    if any(code.incidents for code in data.codes):
        page.add_heading("Known upstream faults that findings look like")
        audit_text.add_known_faults(page, data.codes)
    if data.run.kind != "whatif":
        _add_replays(page, data)
    if data.facts:
        page.add_heading("Headline facts")
        page.lines += _list_facts(data, width)
    if data.inputs:
        page.add_heading("Input")
        audit_text.add_inputs(page, data)
    if data.quarantine:
        page.add_heading("Rows in quarantine")
        audit_text.add_quarantine(page, data)
    page.add_heading("Run")
    page.add_pairs(_list_run_info(data.run))
    if data.cannot_tell:
        page.add_heading("Limits of the data")
        _add_list(page, data.cannot_tell)
    if dropped := [title for title in page.dropped if title]:
        page.lines.append(Text())
        page.add(f"Too narrow for: {', '.join(dropped)}. The page and report.json have them.")
    return page.lines


def _build_head(data: ReportData, width: int, *, full: bool) -> list[Text]:
    """Build the answer: a mark and a word, the headline, the detail, and what was examined."""
    page = TextPage(width)
    word, sentence = describe_result(data)
    has_verdict = word == data.verdict.upper()
    marked = f"{MARKS.get(data.verdict, '?')} {word}" if has_verdict else word
    indent = len(marked) + 2 if width >= _HANGING_WIDTH else 2
    line = Text.assemble(
        (marked, STYLES.get(data.verdict, "bold") if has_verdict else "bold"), "  ", (sentence, "bold")
    )
    page.add(line, hang=indent, most=None if full else 5)
    for text in filter(None, _list_details(data)):
        page.add(text, indent=indent, most=None if full else 4 if data.run.kind == "audit" else 6)
    if data.several_doubts:
        page.add("Why the verdict is unknown:" if data.verdict == "unknown" else "What is uncertain:", indent=indent)
        doubts = data.doubts if full else data.doubts[:_MAX_DOUBTS]
        for reason in doubts:
            page.add(f"- {reason}", indent=indent, hang=2, most=None if full else 3 if len(doubts) == 1 else 2)
        if len(data.doubts) > len(doubts):
            page.add(f"- and {format_plural(len(data.doubts) - len(doubts), 'more reason')}", indent=indent)
    page.lines += _describe_subject(data.run, width, indent, full)
    return page.lines


def _list_details(data: ReportData) -> Iterable[Text]:
    """List the sentences below the headline."""
    answers = data.plans or ([data.recommendation] if data.recommendation is not None else [])
    for answer in answers if len(answers) == 1 else ():
        yield from (Text(answer.reason), Text.assemble(("Price: ", "bold"), answer.price) if answer.price else Text())
    for plan in data.plans:
        named = f"{plan.question}: " if len(data.plans) > 1 else ""
        yield Text(named + plan_text.describe_bound(plan))
    yield Text(data.detail)
    yield from (Text(f"Alert not sent: {sentence}") for sentence in data.failed_alerts)


def _describe_subject(run: RunInfo, width: int, indent: int, full: bool) -> list[Text]:
    """Name the subscription, the topic, the time and, in an audit, the policy; a summary has two lines for it."""
    day = find_common_day(run.window_start, run.window_end)
    parts = [
        f"{shorten_middle(run.subscription, _NAME_WIDTH)} on {shorten_middle(run.topic, _NAME_WIDTH)}",
        *([format_plural(run.partitions, "partition")] if run.partitions else []),
        f"{format_clock(run.window_start)} to {format_clock(run.window_end, day)} UTC",
        *([run.policy, run.profile] if run.kind == "audit" else []),
    ]
    lines = wrap_text(", ".join(filter(None, parts)), width, indent=indent)
    while len(lines) > 2 and len(parts) > 2 and not full:
        parts.pop()
        lines = wrap_text(", ".join(filter(None, parts)), width, indent=indent)
    return lines


def _list_facts(data: ReportData, width: int) -> list[Text]:
    page = TextPage(width)
    page.add_pairs(
        (fact.label, Text.assemble((fact.value, "bold"), f"  {fact.note}" if fact.note else "")) for fact in data.facts
    )
    return page.lines


def _list_run_info(run: RunInfo) -> list[tuple[str, str]]:
    day = find_common_day(run.window_start, run.window_end)
    options = ", ".join(f"{name} {value}" for name, value in run.options)
    partitions = format_plural(run.partitions, "partition") if run.partitions else "not partitioned"
    return [
        ("what", f"{run.title} ({run.kind}, run {run.run_id})"),
        ("subscription", f"{run.subscription} on {run.topic}, {partitions}"),
        ("data", f"{format_clock(run.window_start)} to {format_clock(run.window_end, day)} UTC"),
        ("policy", run.policy + (f" ({options})" if options else "")),
        ("profile", run.profile),
        ("config", run.config_digest + (f", seed {run.seed}" if run.seed is not None else "")),
        ("engine", "" if run.engine is None else run.engine.words),
    ]


def _add_replays(page: TextPage, data: ReportData) -> None:
    """Add the scenarios over the same traffic, and their dispatch replays."""
    if data.scenarios:
        page.add_heading("Scenarios over the same traffic")
        whatif_text.add_scenarios(page, data.scenarios)
        _define(page, "fair share", "skew", "worst window", "traffic moved", "ceiling")
        for sentence in data.prediction_errors:
            page.add(sentence, indent=2, hang=2)
    if not data.dispatch:
        return
    page.add_heading("Latency from publication, or due time, to the application (predicted)")
    dispatch_text.add_latencies(page, data.dispatch)
    _define(page, "latency")
    for line in dispatch_text.list_early_deliveries(data.dispatch):
        page.add(line, indent=2, hang=2)
    page.add_heading("Dispatch replay (predicted)")
    dispatch_text.add_backlogs(page, data.dispatch)
    _define(page, "backlog", "drain", "blocked")
    scenarios = {one.name: one for one in data.scenarios if one.replayed and one.per_consumer}
    day = find_common_day(data.run.window_start, data.run.window_end)
    for view in data.dispatch[:MAX_TABLE_ROWS]:
        page.add_heading(f"{view.name} ({view.source})")
        dispatch_text.add_assumptions(page, view)
        if view.name in scenarios:
            page.add_heading(f"{view.name} ({view.source}): what each consumer takes")
            whatif_text.add_consumers_taken(page, scenarios[view.name])
        dispatch_text.add_blocked(page, view, day)


def _define(page: TextPage, *figures: str) -> None:
    """Add the definitions of figures."""
    for name in figures:
        page.add(f"{name}: {METRICS[name]}", indent=2, hang=2)


def _add_list(page: TextPage, lines: Iterable[str]) -> None:
    for line in lines:
        page.add(f"- {line}", indent=2, hang=2)
