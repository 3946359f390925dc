"""What the charts make of the data before it is drawn."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

from subreplay.reports.data import Band, Flow, LoadPoint, RangeMap, ReportData, WindowLoad
from subreplay.reports.formatting import format_percent, parse_us
from subreplay.reports.page.chart_canvas import TimeFrame, find_time_frame, shorten_name
from subreplay.reports.page.chart_map import build_epoch_marks, draw_partition_map, draw_slot_map
from subreplay.reports.page.chart_plan import assign_letters, draw_bars_chart
from subreplay.reports.page.chart_scenarios import MAX_ENDS, TALL, draw_flow_chart, draw_panels
from subreplay.reports.page.chart_share import draw_scenario_chart, group_by_epoch
from subreplay.reports.page.chart_time import (
    MAX_CONSUMERS,
    MAX_WINDOWS,
    draw_load_chart,
    find_skew_level,
    group_windows,
    select_largest_consumers,
)
from subreplay.reports.page.page_view import build_page_view
from subreplay.reports.page.palette import build_palette
from subreplay.reports.page.svg import PLOT, Drawing
from subreplay.reports.plan_data import FrontPoint, PlanBar, PlanBars


def point(second: int, consumer: str, messages: int, skew: float) -> LoadPoint:
    start, end = (f"2026-05-01T12:00:{s:02d}Z" for s in (second, second + 1))
    return LoadPoint(start, end, consumer, messages, 0, 0, 0.5, skew)


def test_windows_are_summed_and_their_skew_weighted() -> None:
    points = [point(0, "a", 10, 1.0), point(1, "a", 30, 2.0), point(1, "b", 5, 0.5), point(2, "a", 1, 1.5)]
    load = group_windows(points, most=2)
    assert load.windows == 2
    assert load.width == 2_000_000
    assert [(c.consumer, c.messages, c.skew) for c in load.cells] == [("a", 40, 1.75), ("b", 5, 0.5), ("a", 1, 1.5)]
    assert group_windows([]).cells == ()


def test_a_long_run_is_drawn_in_few_columns(large: ReportData) -> None:
    load = group_windows(large.load)
    assert len({cell.start for cell in load.cells}) <= MAX_WINDOWS
    assert sum(cell.messages for cell in load.cells) == sum(p.messages for p in large.load)


def test_small_consumers_share_a_colour_when_there_are_many(small: ReportData) -> None:
    points = tuple(point(0, f"c{i}", 1000 - i, 1.0) for i in range(MAX_CONSUMERS + 6))
    data = replace(small, load=points)
    load = group_windows(data.load)
    assert set(select_largest_consumers(load)) == {f"c{i}" for i in range(MAX_CONSUMERS)}
    drawn = draw_load_chart(load, find_time_frame(data), build_palette(data))
    assert drawn.count('class="others"') == 1, "one cell for all of them"


@pytest.mark.parametrize(
    ("skew", "token"), [(0, "u3"), (0.5, "u2"), (0.7, "u1"), (1, "even"), (1.3, "o1"), (1.9, "o2"), (2, "o3")]
)
def test_skew_has_seven_levels(skew: float, token: str) -> None:
    assert find_skew_level(skew) == token


def test_the_time_axis_is_the_data_and_a_little_around_it(small: ReportData) -> None:
    at = find_time_frame(small)
    start, end = parse_us(small.run.window_start), parse_us(small.run.window_end)
    assert at == TimeFrame(start - 2_000_000, end)  # the first consumer joined two seconds before
    epochs = small.range_maps[0].epochs
    early = replace(small.range_maps[0], epochs=(replace(epochs[0], start_us=0), *epochs[1:]))
    assert find_time_frame(replace(small, range_maps=(early,))).start == start - round((end - start) * 0.08)
    assert (
        find_time_frame(replace(small, range_maps=(), load=(), run=replace(small.run, window_end=at_start(small)))).end
        > start
    )


def at_start(data: ReportData) -> str:
    return data.run.window_start


DAY = 86_400_000_000


@pytest.mark.parametrize(
    ("start", "end", "texts"),
    [
        (0, 60_000_000, ["00:00:00", "00:00:10", "00:00:20", "00:00:30", "00:00:40", "00:00:50", "00:01:00"]),
        (500, 3_000, ["00:00:00.001", "00:00:00.002", "00:00:00.003"]),
        (DAY // 2, 5 * DAY // 2, ["01 Jan 12:00", "01 Jan 18:00", "02 Jan 00:00", "02 Jan 06:00", "02 Jan 12:00",
                                  "02 Jan 18:00", "03 Jan 00:00", "03 Jan 06:00", "03 Jan 12:00"]),
        (0, 14 * DAY, ["01 Jan", "03 Jan", "05 Jan", "07 Jan", "09 Jan", "11 Jan", "13 Jan", "15 Jan"]),
    ],
)  # fmt: skip
def test_the_time_axis_has_some_seven_round_instants(start: int, end: int, texts: list[str]) -> None:
    assert [text for _, text in TimeFrame(start, end).list_ticks()] == texts


def test_marks_stand_where_they_are_put_and_texts_stay_texts() -> None:
    drawing = Drawing(100, 'a "chart"', top=10, bottom=5)
    drawing.box(7, 2, 30, 10.126, "k3", "<b> & c")
    drawing.line(0, PLOT, 100, 100, "axis", "3,3")
    drawing.text(-8, 50, "<i>", anchor="end", ink=True)
    assert drawing.svg() == (
        '<svg viewBox="0 0 900 115" role="img" aria-label="a &#34;chart&#34;"><g transform="translate(92,10)">'
        '<rect class="k3" x="2" y="10.13" width="5" height="19.87"><title>&lt;b&gt; &amp; c</title></rect>'
        '<line class="s-axis" x1="0" x2="758" y1="100" y2="100" stroke-dasharray="3,3"/>'
        '<text transform="translate(-8,50)" dy="3.3" text-anchor="end" class="ink">&lt;i&gt;</text></g></svg>'
    )


def test_ranges_too_many_to_be_seen_are_drawn_as_shares(small: ReportData, large: ReportData) -> None:
    few, many = (
        draw_slot_map(data.range_maps[0], find_time_frame(data), build_palette(data), alone=1)
        for data in (small, large)
    )
    assert (bool(few.svg), bool(few.shares), few.thin) == (True, True, 0)
    assert not many.svg
    assert many.thin == max(epoch.bands_left_out for epoch in large.range_maps[0].epochs) > 120
    last = large.range_maps[0].epochs[-1]
    for one in last.shares:  # every consumer's share is there to be read
        assert f"{one.consumer}: {format_percent(one.share)} of the slots" in many.shares


def test_causes_without_room_are_counted_on_the_label_before(large: ReportData) -> None:
    marks = build_epoch_marks(large.range_maps, find_time_frame(large))
    texts = [text for _, text in marks.labels]
    assert len(marks.lines) == 30  # every epoch has its line
    assert len(texts) < 30
    assert texts[0].endswith("… +9")
    hidden = sum(int(text.rsplit("+", 1)[1]) for text in texts if " +" in text)
    assert len(texts) + hidden == 30


def test_moves_of_an_epoch_are_summed(small: ReportData) -> None:
    moved = group_by_epoch(small.moves)
    assert [group.epoch for group in moved] == [1, 2, 3, 4]
    assert sum(group.messages for group in moved) == sum(move.messages for move in small.moves)
    assert moved[1].cause == "c3 joined"


def test_colours_go_to_the_consumers_of_the_data_first(small: ReportData) -> None:
    colours = build_palette(small)
    assert colours.names == tuple(f"c{i}" for i in range(1, 11))
    named = replace(small.totals[0], consumer="zoe")
    assert (
        build_palette(replace(small, totals=(named,))).find_token("zoe") == "k3"
    )  # after c1..c3, before scenarios' c4..c10
    assert colours.find_token(None) == colours.find_token("nobody") == "nobody"


def test_the_eleventh_consumer_gets_a_pattern_of_the_first_colour(small: ReportData) -> None:
    many = tuple(replace(small.totals[0], consumer=f"c{i}") for i in range(1, 33))
    colours = build_palette(replace(small, totals=many))
    assert colours.find_token("c11") == "k10"
    assert colours.find_token("c31") == "k0"  # from the thirty-first on they repeat


def test_more_partitions_than_rows_are_counted(failover: ReportData) -> None:
    maps = tuple(replace(failover.range_maps[0], scope=f"a/t-partition-{p}") for p in range(50))
    drawn = draw_partition_map(maps, find_time_frame(failover), build_palette(failover))
    assert drawn.rows_left_out == 10
    assert ">partition 39</text>" in drawn.svg
    assert ElementTree.fromstring(drawn.svg).attrib["role"] == "img"


def test_a_consumer_has_one_column_in_all_scenarios(small: ReportData) -> None:
    first = replace(small.scenarios[0], per_consumer=small.scenarios[0].per_consumer[::4])  # c1 and c5
    drawn = draw_scenario_chart((first, small.scenarios[1]), build_palette(small))
    left = {
        name: set(re.findall(rf'<rect class="k\d" x="([\d.]+)"[^>]*><title>[^<]*, {name}:', drawn))
        for name in ("c1", "c5")
    }
    assert [len(points) for points in left.values()] == [1, 1]
    assert left["c1"] != left["c5"]


def test_scenarios_over_time_are_on_one_scale_and_what_is_uneven_stands_out(small: ReportData) -> None:
    minute = ("2026-05-01T12:00:00Z", "2026-05-01T12:01:00Z")
    uneven, even = (
        replace(small.scenarios[0], name=name, load=(WindowLoad(*minute, "c1", many, 50.0),))
        for name, many in (("uneven", 100), ("even", 50))
    )
    drawn = draw_panels((uneven, even), find_time_frame(small), build_palette(small))
    heights = [[min(map(float, re.findall(r",([\d.]+)", path))) for path in re.findall(r' d="M([^Z]*)', one.load)]
               for one in drawn.values()]  # fmt: skip
    assert heights == [[0.0, TALL / 2], [TALL / 2, TALL / 2]]  # the busiest, and before it a fair share


def test_of_many_consumers_a_flow_names_the_largest_and_the_others_together(small: ReportData) -> None:
    flows = tuple(Flow("old", f"c{i}", 100 - i, (100 - i) / 65_536) for i in range(30))
    drawn = draw_flow_chart(replace(small.scenarios[0], flows=flows), build_palette(small))
    assert drawn.count('class="flow ') == MAX_ENDS
    assert "old → others: " in drawn
    assert "c0 " in drawn
    assert "c29 " not in drawn


def test_what_is_over_its_limit_stands_out_but_not_what_is_over_a_bound() -> None:
    bars = (PlanBar("in", 0.5, None, "50%", "in", True), PlanBar("out", 0.9, None, "90%", "out", False))
    limited = PlanBars("Utilisation", "used", "", bars, 0.7, "at most 70%")
    assert re.findall(r'<rect class="(\w+)"', draw_bars_chart(limited)) == ["u3", "o2"]
    assert re.findall(r'<rect class="(\w+)"', draw_bars_chart(replace(limited, bound=True))) == ["u3", "u2"]


def test_policies_at_one_place_of_the_front_share_a_letter() -> None:
    at = FrontPoint("a", 2.0, 0.1, True, True)
    found = assign_letters((at, replace(at, label="b"), FrontPoint("c", 1.0, 0.5, False, True)))
    assert {letter: [point.label for point in points] for letter, points in found.items()} == {
        "A": ["c"],
        "B": ["a", "b"],
    }


def test_partitions_that_one_group_shares_are_rows_of_one_map(failover: ReportData) -> None:
    epoch = failover.range_maps[0].epochs[0]
    shared = replace(epoch, bands=(Band(0, 1, "A"), Band(2, 2, "B")))
    drawn = draw_partition_map(
        [RangeMap("g", "partition", 0, 2, (shared,), 0)], find_time_frame(failover), build_palette(failover)
    )
    assert re.findall(r"<title>(partition \d: \w)", drawn.svg) == ["partition 0: A", "partition 1: A", "partition 2: B"]


def test_a_cause_label_omits_its_epoch_and_time(failover: ReportData) -> None:
    marks = build_epoch_marks(failover.range_maps, find_time_frame(failover))
    assert [text for _, text in marks.labels] == ["first consumer", "C joined", "B left"]


def test_keys_without_a_slot_are_not_tied_to_a_consumer(small: ReportData) -> None:
    keys = tuple(replace(key, slot=None) for key in small.hot_keys)
    assert build_page_view(replace(small, hot_keys=keys)).ceiling is None


def test_the_ceiling_is_one_over_the_hottest_keys_share(small: ReportData) -> None:
    assert build_page_view(small).ceiling == pytest.approx(1 / 0.083)
    assert build_page_view(replace(small, hot_keys=())).ceiling is None


def test_long_names_keep_both_ends() -> None:
    assert shorten_name("short") == "short"
    assert shorten_name("consumer-eu-west-1-pod-42", 11) == "consu…od-42"
