"""The timeline on the page: its pictures, its sentence, and the selection of a span of time."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from subreplay.reports.data import ReportData
from subreplay.reports.page.chart_canvas import TimeFrame, find_time_frame
from subreplay.reports.page.chart_timeline import TimelineDrawing, draw_timeline, summarize_traffic
from subreplay.reports.page.html import to_html
from subreplay.reports.timeline_data import Lane, LaneEvent, RunTimeline, TimelinePoint
from tests.reports.made_reports import incidents, us
from tests.support.chromium import CHROMIUM, start_browser

DAY = 86_400


def drawn(data: ReportData) -> TimelineDrawing:
    assert data.timeline is not None
    return draw_timeline(data.timeline, data.incidents, find_time_frame(data))


def point(start: float, waiting: int, delivered: int = 5, redelivered: int = 0, length: float = 10) -> TimelinePoint:
    return TimelinePoint(us(start), us(start + length), 5, delivered, redelivered, waiting)


def titles(svg: str) -> list[str]:
    return re.findall("<title>(.*?)</title>", svg)


def test_both_pictures_show_every_lane_event_and_incident(small: ReportData) -> None:
    pictures = drawn(small)
    for svg in (pictures.wide, pictures.narrow):
        found = titles(svg)
        assert "c1 disconnected at 12:00:18" in found
        assert "c2: connected 12:00:00.600 to 12:01:00" in found
        assert "c3: messages wait for it, incident 2, 12:00:30 to 12:01:00" in found
        assert "c2: is concerned, incident 3, 12:00:21 to 12:00:27" in found
        assert any(title.startswith("Incident 1: 1,204 messages of 311 keys") for title in found)
        assert "1,320 at 12:01:00" in svg
    assert len([title for title in titles(pictures.wide) if " published, " in title]) == 12
    assert (
        "12:00:30 to 12:00:35: 400 published, 180 delivered for the first time, 40 redelivered, 220 waiting"
        in titles(pictures.wide)
    )
    assert [sign.words for sign in pictures.signs] == ["joined", "disconnected"]


def test_the_picture_is_described_for_readers_who_do_not_see_it(small: ReportData) -> None:
    (label,) = re.findall('role="img" aria-label="([^"]*)"', drawn(small).wide)
    assert label == (
        "Timeline from 11:59:58 to 12:01:00. 1,320 messages wait when the data end, more than before. "
        "40 of 3,520 deliveries are redeliveries. 3 consumers, 7 incidents."
    )


def test_incidents_do_not_overlap_in_a_row_and_the_most_severe_come_first(small: ReportData) -> None:
    spans = re.findall(r'<rect class="t-span[^"]*" x="([\d.]+)" y="(\d+)" width="([\d.]+)"', drawn(small).wide)
    rows: dict[str, list[tuple[float, float]]] = {}
    for x, y, width in spans:
        rows.setdefault(y, []).append((float(x), float(x) + float(width)))
    assert all(before[1] < after[0] for row in rows.values() for before, after in pairwise(sorted(row)))
    shown = re.findall(r"<title>Incident (\d)", drawn(small).wide)
    assert {"1", "2", "3"} <= set(shown)
    assert len(shown) + drawn(small).spans_left_out == 7


@pytest.mark.parametrize(
    ("points", "sentence"),
    [
        ([], "Nothing was published or delivered."),
        ([point(0, 0), point(10, 0)], "No message waited longer than a column of the picture (10 s)."),
        ([point(0, 2), point(10, 9)], "9 messages wait when the data end, more than before."),
        ([point(0, 9), point(10, 0)], "At most 9 messages waited, at 12:00:10; none wait when the data end."),
        (
            [point(0, 9), point(10, 1, redelivered=1)],
            "At most 9 messages waited, at 12:00:10; 1 waits when the data end. 1 of 11 deliveries is a redelivery.",
        ),
    ],
)
def test_one_sentence_says_what_to_see(points: list[TimelinePoint], sentence: str) -> None:
    assert summarize_traffic(points, TimeFrame(us(0), us(20))) == sentence


def test_a_month_of_two_hundred_consumers_fits_on_the_page(small: ReportData) -> None:
    events = tuple(LaneEvent(us(i * DAY), "rebalance", "8 consumers rebalanced") for i in range(30))
    lanes = tuple(Lane(f"c{i} to c{i + 8}", 9, ((us(0), us(30 * DAY)),), events, 5) for i in range(24))
    points = tuple(point(i * DAY / 8, i % 90, length=DAY / 8) for i in range(240))
    run = replace(small.run, window_end=small.run.window_end.replace("05-01", "05-31"))
    data = replace(small, run=run, timeline=RunTimeline(points, lanes, 216), range_maps=(), load=())
    pictures = drawn(data)
    assert len(pictures.wide) + len(pictures.narrow) < 450_000
    assert "31 May" in pictures.wide
    assert pictures.groups
    assert pictures.events_left_out == 24 * 5
    assert "120 more events of consumers are not drawn." in to_html(data)


def test_a_run_without_traffic_or_consumers_has_a_picture(small: ReportData) -> None:
    empty = replace(small, timeline=RunTimeline((), (), 0), incidents=())
    assert "Nothing was published or delivered." in to_html(empty)
    assert not drawn(empty).signs


def test_every_chart_over_time_can_cover_the_time_that_is_not_selected(small: ReportData) -> None:
    page, at = to_html(small), find_time_frame(small)
    frames = re.findall(r'<g class="outside" data-frame="(\d+) (\d+) [\d.]+">', page)
    assert frames.count((str(at.start), str(at.end))) >= 6
    assert 'id="span" class="span"' in page
    assert re.search('<form id="span"[^>]* hidden>', page)  # without the script it could do nothing
    assert page.count('<button type="button" data-span=') == len(incidents())


ENDS = ("start", "end")
PRESS = """(function (query, key, shift) {
  document.querySelector(query).dispatchEvent(
    new KeyboardEvent("keydown", { key: key, shiftKey: shift, bubbles: true, cancelable: true }));
})"""
STATE = """(function () {
  var widths = Array.from(document.querySelectorAll("#load .outside rect")).map(r => Number(r.getAttribute("width")));
  return { rows: document.querySelectorAll(".finding:not([hidden])").length, widths: widths,
           count: document.getElementById("filter-count").textContent,
           note: document.getElementById("span-note").hidden ? "" : document.getElementById("span-note").textContent };
})()"""


@pytest.mark.long
@pytest.mark.skipif(CHROMIUM is None, reason="no browser")
def test_a_span_selected_by_keyboard_filters_the_findings_and_covers_the_rest(
    small: ReportData, tmp_path: Path
) -> None:
    (tmp_path / "page.html").write_text(to_html(small))
    with start_browser() as browser:
        browser.open(tmp_path / "page.html", 1280)
        everything = browser.evaluate(STATE)
        assert everything["widths"] == [0, 0]
        assert (everything["rows"], everything["note"]) == (12, "")

        for key, shift in (("ArrowRight", "false"), *[("ArrowRight", "true")] * 8, *[("ArrowRight", "false")] * 8):
            browser.evaluate(f'{PRESS}("#timeline .wide", "{key}", {shift})')
        narrowed = browser.evaluate(STATE)
        start, end = (
            browser.evaluate(f"Number(document.getElementById('span').elements.{name}.value)") for name in ENDS
        )
        assert 0 < start < end < 240
        assert 0 < narrowed["rows"] < 12
        assert "in the selected time" in narrowed["count"]
        assert min(narrowed["widths"]) > 0
        assert re.match(r"\s*Findings and charts show only 12:00:\d\d to 12:00:\d\d UTC\.", narrowed["note"])

        browser.evaluate(f'{PRESS}("#timeline .wide", "Escape", false)')
        assert browser.evaluate(STATE) == everything

        browser.evaluate('document.querySelector("#span [data-span]").click()')  # incident 1 lasts from 6 s to 54 s
        assert (
            browser.evaluate(STATE)["note"]
            .strip()
            .startswith("Findings and charts show only 12:00:03 to 12:00:56 UTC.")
        )
        browser.evaluate('document.querySelector("#span-note button").click()')
        assert browser.evaluate(STATE) == everything
