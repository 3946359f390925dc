"""The dispatch replay in a report: compared, drawn, labelled predicted; and absent where nothing was replayed."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from subreplay.reports.assemble.dispatch_views import build_dispatch_view
from subreplay.reports.data import ReportData
from subreplay.reports.dispatch_data import BacklogPoint, Latency
from subreplay.reports.figures import DispatchFigures
from subreplay.reports.page.chart_canvas import PLOT, TimeFrame
from subreplay.reports.page.chart_dispatch import MAX_COLUMNS, DurationScale, draw_backlog_chart, draw_latency_chart
from subreplay.reports.page.html import to_html
from subreplay.reports.page.palette import build_palette
from subreplay.reports.text import to_text
from subreplay.semantics.policies import make_policy
from subreplay.whatif.message_assignment import ScenarioPlan
from tests.reports.made_reports import at, us

MS, SECOND = 1_000_000, 1_000_000_000


@pytest.fixture(scope="module")
def page(dispatched: ReportData) -> str:
    return to_html(dispatched)


def read_section(page: str, name: str) -> str:
    """The section as text without tags."""
    found = re.search(rf'<section id="{name}">(.*?)</section>', page, re.DOTALL)
    assert found
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", found[1]))


@pytest.fixture(scope="module")
def section(page: str) -> str:
    return read_section(page, "dispatch")


@pytest.fixture(scope="module")
def details(page: str) -> str:
    return read_section(page, "details")


def test_nothing_of_it_is_on_the_page_of_another_run(small: ReportData, page: str) -> None:
    other = to_html(small).split("</style>")[1]
    for word in ("Latency and backlog", "predicted", 'name="source"'):
        assert word in page
        assert word not in other


def test_the_figures_of_a_replay_are_in_the_comparison(page: str) -> None:
    table = read_section(page, "scenarios")
    assert "4 ms 900 ms 7 s 4,900 30 s 10.1 s" in table
    assert "0.8 ms 180 ms 1.4 s 1,700 6 s 36.9 s" in table


def test_the_settings_of_a_scenario_are_in_its_details(details: str) -> None:
    assert "lognormal, median 3 ms, sigma 0.5, seed 7, receiver queue 1,000 messages" in details
    assert "half within 9 ms, 99% within 1.4 s, all within 9 s" in details


def test_the_drain_shows_its_bounds_and_which_of_them_limits(details: str) -> None:
    assert "4,900 messages are left after the last publication. At least 24 s: c2 has 1,900 messages" in details
    assert "Hottest consumer: c2 with 1,900, 24 s. Hottest hash: 31,007 with 420, 6 s." in details


def test_the_view_shows_who_waits_for_whom_since_when_and_with_how_many_messages(details: str) -> None:
    assert re.search(r"as recorded [^.]*, 2 blocked consumers", details)
    assert "c2 c1 it joined recently 12:00:12.500 &gt; 4.19 s 1 1" in details  # it still waits
    assert "Blocked hashes, the longest first: 12 of 40" in details


def test_every_message_ends_somewhere(dispatched: ReportData, details: str) -> None:
    ends = dispatched.dispatch[0].outcomes
    rest = (ends.acked, ends.dead_lettered, ends.expired, ends.dropped, ends.deduplicated, ends.skipped, ends.pending)
    assert ends.published == sum(rest)
    assert "120,000 messages: 119,400 acknowledged, 200 dead-lettered, 30 expired, 41 deduplicated" in details
    assert "300 by nack, 212 by disconnect; 20 through the retry topic" in details


def test_findings_of_predicted_deliveries_are_shown_by_scenario_and_described(page: str, section: str) -> None:
    assert re.search(r"KEY_ TWO_ OWNERS .* 301 violated 301 violated", section)
    assert page.count('<span class="badge b-predicted">predicted</span> <span class="many">as recorded</span>') == 2
    assert "predicted: 10 consumers</option>" in page


def test_consumers_of_a_scenario_have_colours(dispatched: ReportData) -> None:
    assert build_palette(replace(dispatched, scenarios=())).find_token("c10") == "k9"


def test_a_latency_axis_holds_all_from_tick_to_tick() -> None:
    scale = DurationScale([4 * MS, 7 * SECOND])
    assert scale.ticks == (MS, 10 * MS, 100 * MS, SECOND, 10 * SECOND)
    assert [round(scale.to_pixel(d)) for d in (MS, 100 * MS, 10 * SECOND)] == [0, PLOT // 2, PLOT]
    assert scale.to_pixel(0) == 0
    assert DurationScale([]).ticks == DurationScale([0, 0]).ticks == (1_000, 10_000)
    assert DurationScale([10 * MS]).ticks == (10 * MS, 100 * MS)


def test_what_happened_to_no_message_has_no_bar(dispatched: ReportData) -> None:
    never = replace(dispatched.dispatch[0], to_acked=Latency(0, 0, 0, 0))
    drawn = draw_latency_chart([never])
    assert drawn.count("as recorded, at the application: half within 4 ms, 99% within 900 ms, all within 7 s") == 2
    assert "acknowledged" not in drawn
    details = read_section(to_html(replace(dispatched, dispatch=(never,))), "details")
    assert "To the acknowledgement – " in details


def test_the_backlog_is_drawn_on_one_scale_from_each_point_to_the_next(dispatched: ReportData) -> None:
    points = (BacklogPoint(at(0), 30, 10), BacklogPoint(at(20), 0, 20), BacklogPoint(at(60), 0, 0))
    high = replace(dispatched.dispatch[0], backlog=points)
    low = replace(dispatched.dispatch[1], backlog=(BacklogPoint(at(0), 0, 5), BacklogPoint(at(60), 0, 0)))
    drawn = draw_backlog_chart((high, low), TimeFrame(us(0), us(60)))
    assert drawn.count(">40</text>") == 2
    assert re.findall(r"<title>([^<]*)</title>", drawn) == [
        "as recorded: 30 waiting, 10 unacknowledged, 12:00:00 to 12:00:20",
        "as recorded: 30 waiting, 10 unacknowledged, 12:00:00 to 12:00:20",
        "as recorded: 0 waiting, 20 unacknowledged, 12:00:20 to 12:01:00",
        "10 consumers: 0 waiting, 5 unacknowledged, 12:00:00 to 12:01:00",
    ]


def test_a_long_backlog_keeps_its_peak(dispatched: ReportData) -> None:
    points = tuple(BacklogPoint(at(i / 10), 900 if i == 333 else 7, 0) for i in range(600))
    drawn = draw_backlog_chart([replace(dispatched.dispatch[0], backlog=points)], TimeFrame(us(0), us(60)))
    assert drawn.count("<title>") <= MAX_COLUMNS
    assert "900 waiting" in drawn


def test_a_replay_without_blocking_or_end_says_so(dispatched: ReportData) -> None:
    view = dispatched.dispatch[0]
    calm = replace(view, blocked_consumers=(), blocked_hashes=(), backlog=(), drain=replace(view.drain, took_ns=None))
    data = replace(dispatched, dispatch=(calm,))
    assert "Blocked consumers" not in to_html(data)
    assert "blocked hashes" not in to_text(data)
    assert re.search(r"as recorded +4,900 +never ", to_text(data))


def test_left_is_what_was_not_done_with_when_the_last_message_came() -> None:
    """One message, delivered and acknowledged within its window: it was the backlog, and it was left."""
    policy = make_policy("pulsar.shared", "pulsar-4.0")
    figures = DispatchFigures(
        ScenarioPlan("s", policy, {}), "0 ms", None, (), last_published=13, end=15, steps=64, taken=(), pending=(),
        outcomes=[dict(outcome="acked", settled=True, rows=1, delivered=1, retried=0, last=15, late=1)],  # noqa: C408
        latencies=(), backlog=[{"window": 10, "published": 1, "settled": 1}], unacked=(), waits=(), hash_waits=(),
        drains=(),
    )  # fmt: skip
    shown = build_dispatch_view(figures)
    assert (shown.backlog_max, shown.drain.left, shown.drain.took_ns) == (1, 1, 2)
