"""The text of a report: the answer first, at most 40 lines in a terminal, every line fits, names never steer it."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from subreplay.reports.data import Recommendation, ReportData
from subreplay.reports.overview_data import OverviewRow, build_overview
from subreplay.reports.overview_text import build_overview_text
from subreplay.reports.plan_data import PlanTable, PlanText, PlanView
from subreplay.reports.text import MAX_LINES, build_full_text, build_summary, describe_result, render, to_text
from subreplay.reports.text_layout import MAX_TABLE_ROWS, Column, TextPage, shorten_middle, wrap_text
from subreplay.reports.timeline_data import RunTimeline, TimelinePoint
from tests.reports.made_reports import incidents, known_fault, replayed, report, scenario, us

WIDTHS = (60, 80, 120, 200)
SMALL = report(consumers=3, epochs=5, points=4, windows=12, seconds=60)
QUIET_CODES = tuple(replace(code, status="clean", count=0, worst=()) for code in SMALL.codes)
PLAN = PlanView(
    "consumers", "6 consumers under pulsar.key_shared.auto_split", "99% of the messages are delivered within it", 67.0,
    60.0, 7 / 60, "ns", "67 ms", "60 ms", "5 consumers: 149 ms", 149.0, ("The application works 3 ms on a message.",),
    ("With one consumer less: 149 ms.",),
    (PlanTable("The fewest consumers", ("policy", "consumers", "p99"), (False, True, True),
               (("pulsar.key_shared.auto_split", "6", "67 ms"), ("pulsar.shared", "4", "61 ms")), (True, False)),),
    (PlanText("Java", ("KeySharedPolicy.autoSplitHashRange()",)),),
    choice="Use 6 consumers under pulsar.key_shared.auto_split",
    reason="99% of the messages are delivered within 67 ms.", price="It has 6 consumers instead of 5.",
    bound_meaning="No number of consumers is below 60 ms. The gap is 11.7%.",
)  # fmt: skip


def waiting(*messages: int) -> RunTimeline:
    """A timeline of windows of equal length over a minute, with so many waiting messages each."""
    step = 60 / len(messages)
    points = (TimelinePoint(us(i * step), us((i + 1) * step), 9, 9, 0, n) for i, n in enumerate(messages))
    return RunTimeline(tuple(points), (), 0)


AUDIT = replace(known_fault(SMALL), timeline=waiting(0, 0, 20, 120, 240, 480, 475, 300, 90, 0))
KEPT = replace(
    SMALL,
    verdict="valid",
    headline="Every promise was kept.",
    detail="",
    incidents=(),
    codes=QUIET_CODES,
    timeline=None,
)
WHATIF = replace(
    replayed(
        replace(
            SMALL, run=replace(SMALL.run, kind="whatif"), codes=(), incidents=(), findings_over_time=(), timeline=None
        )
    ),
    headline="The traffic of billing on orders, replayed under other subscriptions.",
    detail="",
    recommendation=Recommendation(
        "10 consumers",
        "Use 10 consumers",
        "99% of the messages are delivered within 180 ms instead of 900 ms.",
        "24.3% of the traffic moves.",
    ),
)
PLANNED = replace(WHATIF, recommendation=None, plans=(PLAN,), scenarios=WHATIF.scenarios[:2])
MADE = {"audit": AUDIT, "kept": KEPT, "whatif": WHATIF, "plan": PLANNED}


def plain(lines: list[Text]) -> list[str]:
    return [line.plain for line in lines]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", MADE)
def test_the_summary_is_as_it_was(name: str, width: int, snapshot: Callable[[str, str], None]) -> None:
    snapshot(f"terminal/{name}_{width}.txt", "\n".join([*plain(build_summary(MADE[name], width)), ""]))


def test_the_full_text_is_as_it_was(
    small: ReportData, bare: ReportData, dispatched: ReportData, snapshot: Callable[[str, str], None]
) -> None:
    snapshot("small.txt", to_text(small))
    snapshot("bare.txt", to_text(bare))
    snapshot("dispatched.txt", to_text(dispatched))
    snapshot("plan.txt", to_text(PLANNED))


# any report, any width

NAMES = st.one_of(
    st.sampled_from(["c1", "c2", "消费者", "orders-worker"]),
    st.integers(1, 300).map(lambda n: f"⟨{'n' * n}⟩"),
    st.text(st.characters(codec="utf-8", exclude_categories=["Z", "C", "M"], exclude_characters="⟦⟧⟨⟩"), min_size=1),
)
WORDS = st.sampled_from(["⟦a⟧", "⟦waited⟧", "⟦unacknowledged⟧", "⟦消费者⟧", "8 min 12 s", f"⟦{'long' * 9}⟧"])
TEXTS = st.lists(WORDS, min_size=1, max_size=60).map(" ".join)
COUNTS = st.one_of(st.integers(0, 9), st.integers(0, 10**12))


RECIPES = st.fixed_dictionaries({
    "kind": st.sampled_from(sorted(MADE)), "name": NAMES, "text": TEXTS, "title": TEXTS, "count": COUNTS,
    "incidents": st.sampled_from([0, 1, 2, 7, 70]), "consumers": st.sampled_from([0, 1, 3, 30, 200]),
    "scenarios": st.sampled_from([None, 0, 1, 12, 60]), "doubts": st.integers(0, 9), "plans": st.integers(1, 5),
    "waiting": st.lists(COUNTS, min_size=1, max_size=300), "has_detail": st.booleans(),
})  # fmt: skip


def make(recipe: dict[str, Any]) -> ReportData:
    """A report of any kind with many or no incidents, consumers, scenarios and doubts, and names of any length."""
    data, name, text, count = MADE[recipe["kind"]], recipe["name"], recipe["text"], recipe["count"]
    seven = incidents()
    found = [
        replace(seven[i % 7], title=recipe["title"], detail=text, next_step=text, consumers=(name,) * 3, findings=count)
        for i in range(recipe["incidents"])
    ]
    consumers = [
        replace(SMALL.totals[0], consumer=f"{name}{i}", messages=count + i, note=text if i % 7 == 1 else "")
        for i in range(recipe["consumers"])
    ]
    compared = [
        replace(scenario(f"{name}{i}", "p", "q", [1, 2], text), unowned=count * (i % 2))
        for i in range(recipe["scenarios"] or 0)
    ]
    return replace(
        data,
        run=replace(data.run, subscription=name, topic=name),
        headline=text,
        detail=text if recipe["has_detail"] else "",
        doubts=(text,) * recipe["doubts"],
        incidents=tuple(found) if data.run.kind == "audit" else (),
        totals=tuple(consumers),
        scenarios=data.scenarios if recipe["scenarios"] is None else tuple(compared),
        plans=data.plans * recipe["plans"],
        timeline=waiting(*recipe["waiting"]),
    )


@given(RECIPES, st.integers(60, 200))
def test_a_summary_begins_with_the_answer_has_at_most_forty_lines_and_breaks_no_word(
    recipe: dict[str, Any], width: int
) -> None:
    data = make(recipe)
    lines = plain(build_summary(data, width, MAX_LINES - 1))
    assert len(lines) <= MAX_LINES - 1
    assert describe_result(data)[0] in lines[0]
    check(lines, width)


@given(RECIPES, st.integers(60, 200))
def test_no_line_of_the_full_text_is_longer_than_the_width_and_no_word_is_broken(
    recipe: dict[str, Any], width: int
) -> None:
    whole = cell_len(recipe["name"]) <= width - 20  # else the full text has to break it
    check(plain(build_full_text(make(recipe), width)), width, names=whole)


def check(lines: list[str], width: int, names: bool = True) -> None:
    """Check the width of lines, and that words stand on one line, and ``names`` too unless they are shortened."""
    for line in lines:
        assert cell_len(line) <= width
        assert line == line.rstrip()
        for word in re.findall(r"\S*[⟦⟧]\S*", line):
            assert word.count("⟦") == word.count("⟧"), line
        for name in re.findall(r"\S*[⟨⟩]\S*", line) if names else ():
            assert name.count("⟨") == name.count("⟩") or "…" in name, line


@given(st.lists(st.tuples(NAMES, st.sampled_from(["valid", "unknown", "invalid", "failed"]), TEXTS), max_size=90),
       st.integers(60, 200))  # fmt: skip
def test_an_overview_names_the_worst_subscriptions_in_forty_lines(rows: list[tuple[str, str, str]], width: int) -> None:
    codes = {"valid": 0, "unknown": 3, "invalid": 1, "failed": 4}
    made_rows = [OverviewRow(name, "orders", "", verdict, codes[verdict], text) for name, verdict, text in rows]
    overview = build_overview("all", None, made_rows)
    lines = plain(build_overview_text(overview, width))
    assert len(lines) <= MAX_LINES
    assert overview.rows[0].verdict.upper() in lines[0] if rows else lines
    check(lines, width)
    check(plain(build_overview_text(overview, width, None)), width)


def test_an_overview_of_many_subscriptions_has_a_line_each_and_counts_the_others() -> None:
    rows = [OverviewRow(f"s{i:02}", "orders", "", "invalid", 1, "word " * 90) for i in range(50)]
    rows += [OverviewRow("kept", "orders", "", "valid", 0, "Every promise was kept.")]
    lines = plain(build_overview_text(build_overview("all", None, rows), 80))
    assert lines[0] == "✗ INVALID  51 subscriptions: 50 invalid, 1 valid"
    assert lines[2].startswith("✗ INVALID  s00 on orders: word word")
    assert len(lines) == MAX_LINES
    assert lines[-1] == "and 14 more subscriptions: 13 invalid, 1 valid; --full or the page shows them"


# what a summary says


def test_the_most_severe_incidents_are_shown_and_the_others_counted() -> None:
    many = tuple(replace(one, number=i + 1) for i, one in enumerate(incidents() * 1_000))
    lines = plain(build_summary(replace(AUDIT, incidents=many), 120))
    assert [line[0] for line in lines if re.match(r"\d  ", line)] == ["1", "2", "3", "4", "5"]
    assert any(line.startswith("   6,995 more incidents with ") for line in lines)
    assert "   Next: Upgrade the brokers to 4.0.3, or let consumers finish before they close." in lines


def test_of_many_consumers_the_busiest_and_the_least_busy_are_shown() -> None:
    many = tuple(replace(SMALL.totals[0], consumer=f"w{i}", messages=i) for i in range(200))
    lines = plain(build_summary(replace(AUDIT, totals=many), 120))
    shown = [line.split()[0] for line in lines if re.match(r"w\d+ ", line)]
    assert (shown[0], shown[-1]) == ("w199", "w0")
    assert f"… {200 - len(shown)} more consumers between these" in lines


def test_rules_without_findings_are_counted() -> None:
    lines = plain(build_summary(AUDIT, 120))
    (rules,) = (line for line in lines if line.startswith("Rules"))
    assert rules.startswith("Rules  KEY_TWO_OWNERS violated 1,204, KEY_ORDER allowed 37")
    assert "1 rule found nothing; 1 rule could not judge; 1 rule does not apply" in lines


def test_a_report_without_incidents_shows_the_worst_finding_of_each_rule() -> None:
    lines = plain(build_summary(replace(AUDIT, incidents=()), 120))
    assert lines[lines.index("What was found") + 1].startswith("  KEY_TWO_OWNERS 1,204  5:120 of key")


def test_waiting_messages_are_drawn_over_time_with_the_most_and_when_it_was() -> None:
    (line,) = (line for line in plain(build_summary(AUDIT, 120)) if line.startswith("Waiting messages"))
    assert re.fullmatch("Waiting messages  12:00:00 [▁▂▃▄▅▆▇█]{60} 12:01:00  most 480 at 12:00:36", line)
    assert not [line for line in plain(build_summary(replace(SMALL, timeline=None), 120)) if "Waiting messages" in line]
    days = replace(AUDIT, run=replace(AUDIT.run, window_end="2026-05-03T12:00:00Z"))
    (line,) = (line for line in plain(build_summary(days, 120)) if line.startswith("Waiting messages"))
    assert re.search("  2026-05-01 [▁▂▃▄▅▆▇█]+ 2026-05-01  most 480 at 2026-05-01 12:00:36$", line)


def test_columns_that_do_not_fit_are_named() -> None:
    narrow = " ".join(plain(build_summary(replace(WHATIF, recommendation=None), 60)))
    assert "Too narrow here, but on the page: worst window, p50" in narrow
    assert "Too narrow" not in " ".join(plain(build_summary(AUDIT, 120)))


def test_a_what_if_begins_with_its_recommendation_and_marks_the_scenario() -> None:
    lines = plain(build_summary(WHATIF, 120))
    assert lines[0] == "WHAT IF  Use 10 consumers"
    assert lines[1].strip() == "99% of the messages are delivered within 180 ms instead of 900 ms."
    assert lines[2].strip() == "Price: 24.3% of the traffic moves."
    assert any(line.startswith("* 10 consumers ") for line in lines)
    many = tuple(replace(WHATIF.scenarios[0], name=f"s{i}") for i in range(90))
    crowded = plain(build_summary(replace(WHATIF, scenarios=(*many, WHATIF.scenarios[3])), 120))
    assert any(line.startswith("* 10 consumers ") for line in crowded)


def test_a_plan_begins_with_its_answer_and_says_how_far_it_is_from_the_bound() -> None:
    text = " ".join(" ".join(plain(build_summary(PLANNED, 80))).split())
    assert text.startswith(
        "PLAN Use 6 consumers under pulsar.key_shared.auto_split 99% of the messages are delivered within 67 ms. "
        "Price: It has 6 consumers instead of 5. No number of consumers is below 60 ms. The gap is 11.7%. billing on"
    )


def test_a_plan_of_an_earlier_report_is_described_by_its_figures() -> None:
    earlier = replace(PLAN, choice="", reason="", price="", bound_meaning="")
    text = " ".join(" ".join(plain(build_summary(replace(PLANNED, plans=(earlier,)), 80))).split())
    assert text.startswith("PLAN consumers: 6 consumers under pulsar.key_shared.auto_split It achieves 67 ms: 99% of")
    assert "Nothing can beat 60 ms; the gap is 11.7%. billing on" in text


# layout


def test_text_wraps_between_words_and_a_figure_stays_with_its_unit() -> None:
    assert plain(wrap_text("it waited for 8 min 12 s.", 20, indent=1, hang=2)) == [" it waited for", "   8 min 12 s."]
    assert plain(wrap_text("abcdefghij", 4)) == ["abcd", "efgh", "ij"]
    assert plain(wrap_text("one two three four", 9, most=2)) == ["one two", "three …"]
    assert plain(wrap_text("", 9)) == [""]


def test_a_long_name_is_shortened_in_the_middle() -> None:
    assert shorten_middle("a" * 50 + "z" * 50, 11) == "aaaaa…zzzzz"
    assert cell_len(shorten_middle("消费者" * 20, 12)) <= 12


def test_columns_are_left_out_by_rank_and_numbers_are_never_cut() -> None:
    page = TextPage(24)
    columns = (Column("name", "name"), Column("first"), Column("second", rank=2), Column("third", rank=1))
    page.add_table(columns, [("a-very-long-name-of-a-consumer", "1,000,000", "2", "3,000")], indent=0)
    assert list(page.dropped) == ["second", "third"]
    assert plain(page.lines) == ["name               first", "a-very…nsumer  1,000,000"]


def test_of_many_rows_as_many_as_fit_are_shown_and_the_others_counted() -> None:
    page = TextPage(60)
    page.add_table((Column("name", "name"), Column("count")), [(f"c{i}", str(i)) for i in range(9)], indent=0, most=4)
    assert [line.split()[0] for line in plain(page.lines)] == ["name", "c0", "c1", "and"]
    assert page.lines[-1].plain == "and 7 more in report.json"


# colours, and names that try to steer


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("full", [False, True])
def test_colours_are_readable_on_light_and_dark_backgrounds(name: str, full: bool) -> None:
    codes = set(re.findall(r"\x1b\[([\d;]*)m", rendered(MADE[name], full=full)))
    used = {number for code in codes for number in code.split(";") if number}
    assert used <= {"0", "1", "31", "32", "35", "36"}  # bold, red, green, magenta, cyan; nothing dim or bright


@pytest.mark.parametrize("verdict", ["valid", "unknown", "invalid"])
def test_the_verdict_is_a_word_with_a_mark_with_colour_and_without(verdict: str) -> None:
    data = replace(SMALL, verdict=verdict)
    mark = {"valid": "✓", "unknown": "?", "invalid": "✗"}[verdict]
    assert to_text(data).startswith(f"{mark} {verdict.upper()}  ")
    first = rendered(data).splitlines()[0]
    assert f"{mark} {verdict.upper()}" in first
    assert "\x1b[1;3" in first  # bold and a colour
    assert "\x1b[3" not in rendered(data, no_color=True)


def rendered(data: ReportData, full: bool = False, no_color: bool = False) -> str:
    sink = io.StringIO()
    console = Console(file=sink, force_terminal=True, color_system="standard", width=100, legacy_windows=False,
                      no_color=no_color)  # fmt: skip
    render(data, console, full=full)
    return sink.getvalue()


def test_a_file_or_pipe_gets_no_escape_sequences(hostile: ReportData) -> None:
    sink = io.StringIO()
    render(hostile, Console(file=sink, width=100))
    for text in (to_text(hostile), sink.getvalue()):
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert r"\x1b[31m" in to_text(hostile)  # shown, not obeyed


def test_markup_in_a_name_is_text(small: ReportData) -> None:
    total = replace(small.totals[0], consumer="[red]c1[/red] :boom:")
    data = replace(small, totals=(total,))
    assert "[red]c1[/red] :boom:" in to_text(data)
    assert "[red]c1[/red] :boom:" in rendered(data)


# the full text


@pytest.mark.parametrize("name", ["small", "large", "hostile", "dispatched"])
def test_no_line_of_the_file_is_longer_than_a_hundred_columns(name: str, request: pytest.FixtureRequest) -> None:
    lines = to_text(request.getfixturevalue(name)).splitlines()
    assert max(map(cell_len, lines)) <= 100


def test_a_rule_that_was_not_decided_has_no_count(small: ReportData) -> None:
    text = to_text(small)
    lines = {line.split()[0]: line for line in text[text.index("Rules\n") :].splitlines() if line.strip()}
    assert " –  " in lines["CUM_ACK_MISUSE"]
    assert " –  " in lines["PARTITION_ORDER"]
    assert " 0  " in lines["WRONG_OWNER"]


def test_many_consumers_are_counted_beyond_the_first(small: ReportData) -> None:
    many = tuple(replace(small.totals[0], consumer=f"worker-{i}") for i in range(MAX_TABLE_ROWS + 7))
    text = to_text(replace(small, totals=many))
    assert f"worker-{MAX_TABLE_ROWS - 1} " in text
    assert f"worker-{MAX_TABLE_ROWS} " not in text
    assert "and 7 more in report.json" in text


def test_sections_without_data_are_left_out(bare: ReportData, small: ReportData) -> None:
    assert "Dispatch replay" not in to_text(small)
    for title in ("Rules", "Load per consumer", "Scenarios over the same traffic", "Limits of the data"):
        assert title in to_text(small)
        assert title not in to_text(bare)


def test_a_finding_that_resembles_a_known_fault_names_its_ticket_and_what_to_do(small: ReportData) -> None:
    text = " ".join(to_text(known_fault(small)).split())
    assert "; looks like apache/pulsar#23870, fixed in 4.0.3" in text
    assert "Known upstream faults" not in to_text(small)
    section = text[text.index("Known upstream faults that findings look like") :]
    assert "KEY_TWO_OWNERS apache/pulsar#23870 Key_Shared delivers out of order <at times>. Affects" in section
    assert "Upgrade the brokers. https://github.com/apache/pulsar/issues/23870" in section
