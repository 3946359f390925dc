"""The filter of the findings: what it offers, what it counts, how large it may get; and that its script does it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from subreplay.reports.data import ReportData
from subreplay.reports.finding_data import CodeSummary, FindingPoint, FindingView
from subreplay.reports.page import finding_filter
from subreplay.reports.page.chart_canvas import find_time_frame
from subreplay.reports.page.chart_time import select_named_consumers
from subreplay.reports.page.finding_filter import (
    MAX_FINDING_ROWS,
    MAX_TALLIES,
    MAX_WINDOWS,
    FilteredFindings,
    build_findings,
)
from subreplay.reports.page.html import to_html
from subreplay.reports.page.page_view import STATUS_ORDER
from tests.reports.made_reports import at, replayed, report

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


def build_filter(data: ReportData) -> FilteredFindings:
    return build_findings(data, STATUS_ORDER)


def crowded(
    data: ReportData, rules: int, consumers: int, rows: int, words: str = "a sentence", each: int = 1
) -> ReportData:
    """Every rule finds ``each`` at every consumer in every one of 240 windows, and some are in words."""
    names = [f"c{i}" for i in range(consumers)]
    summaries, points = [], []
    for rule in range(rules):
        code = f"RULE_{rule}"
        views = tuple(
            FindingView(at(i), f"{words} {i}", "orders", "3fa9", names[i % consumers], "unexplained", (), at(i % 240))
            for i in range(rows)
        )
        summaries.append(
            CodeSummary(code, code, "It means that.", "violated", "invalid", 240 * consumers * each, views)
        )
        points += [FindingPoint(at(window), code, name, each) for window in range(240) for name in names]
    return replace(data, codes=tuple(summaries), findings_over_time=tuple(points))


def test_a_row_is_found_by_the_numbers_of_its_choices(small: ReportData) -> None:
    found = build_filter(small)
    card = found.cards[0]
    source, code, consumer, window = map(int, card.shown[2].numbers.split())
    finding = card.shown[2].view
    assert (found.sources[source], found.codes[code]) == ("observed", "KEY_TWO_OWNERS")
    assert found.consumers[consumer] == finding.consumer == "c1"
    assert found.windows[window] == (finding.window, finding.window)


def test_all_findings_are_counted_whether_shown_or_not(small: ReportData) -> None:
    found = build_filter(small)
    numbers = list(map(int, found.tallies.split()))
    sums: Counter[str] = Counter()
    for source, code, _, _, count in zip(*[iter(numbers)] * 5, strict=True):
        assert source == 0
        sums[found.codes[code]] += count
    expected: Counter[str] = Counter()
    for point in small.findings_over_time:
        expected[point.code] += point.count
    assert sums == expected
    assert (found.rows, found.found) == (12, 1_204 + 37 + 512)


def test_recorded_and_predicted_findings_have_different_sources(small: ReportData) -> None:
    found = build_filter(replayed(small))
    assert found.sources == ("observed", "predicted: as recorded", "predicted: 10 consumers")
    assert [(card.source, card.scenario) for card in found.cards] == [
        *[(0, "")] * 3, *[(1, "as recorded")] * 2, *[(2, "10 consumers")] * 2
    ]  # fmt: skip
    assert 'name="source"' not in to_html(small)


def test_a_finding_without_a_known_window_is_in_none(small: ReportData) -> None:
    worst = tuple(replace(finding, window="") for finding in small.codes[0].worst)
    found = build_filter(replace(small, codes=(replace(small.codes[0], worst=worst),)))
    assert {row.numbers.split()[3] for row in found.cards[0].shown} == {"-1"}


@pytest.mark.long
def test_windows_are_taken_together_where_there_are_many_counts(small: ReportData) -> None:
    found = build_filter(crowded(small, rules=20, consumers=50, rows=50))
    assert len(found.tallies.split()) // 5 == 20 * 50 * len(found.windows) <= MAX_TALLIES
    assert len(found.windows) <= MAX_WINDOWS
    assert (found.windows[0][0], found.windows[-1][1]) == (at(0), at(239))
    assert sum(map(int, found.tallies.split()[4::5])) == 20 * 50 * 240


def test_counts_that_are_too_many_are_left_to_the_cards(small: ReportData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding_filter, "MAX_TALLIES", 5)
    found = build_filter(crowded(small, rules=2, consumers=3, rows=9))
    assert found.tallies == ""
    assert len(found.windows) == 80  # as many as there would have been otherwise


@pytest.mark.long
def test_a_page_with_a_million_findings_stays_small(small: ReportData) -> None:
    data = crowded(small, rules=32, consumers=13, rows=90, words="a sentence as long as they usually are " * 4, each=11)
    assert sum(point.count for point in data.findings_over_time) == 1_098_240
    found, page = build_filter(data), to_html(data)
    assert len(page.encode()) < 1_500_000
    assert page.count('class="finding"') == found.rows <= MAX_FINDING_ROWS
    assert found.rows + found.left_out == 32 * 90
    assert {len(card.shown) for card in found.cards} <= {found.rows // 32, found.rows // 32 + 1}
    assert "of 1,098,240 findings are listed here" in page


@pytest.mark.long
def test_a_month_with_a_million_findings_has_a_page_below_one_and_a_half_megabytes() -> None:
    month = report(consumers=24, epochs=60, points=100, windows=720, seconds=30 * 86_400)
    data = crowded(month, rules=32, consumers=24, rows=90, words="a sentence as long as they usually are " * 4, each=6)
    data = replace(data, moves=data.moves[:60])  # a report has no more
    assert sum(point.count for point in data.findings_over_time) > 1_000_000
    page = to_html(data)
    assert len(page.encode()) < 1_500_000
    assert page.count('class="finding"') > 200


def test_names_cannot_make_the_page_large(small: ReportData) -> None:
    data = crowded(small, rules=3, consumers=3, rows=600, words='<"&' * 2_000)
    found = build_filter(data)
    assert 20 < found.rows < 100
    assert len(to_html(data).encode()) < 1_500_000


@pytest.mark.long
def test_many_consumers_share_a_colour_in_the_chart(small: ReportData) -> None:
    data = crowded(small, rules=10, consumers=60, rows=1)
    named = select_named_consumers(data.findings_over_time, find_time_frame(data))
    assert 0 < len(named) < 60
    page = to_html(data)
    assert f"{60 - len(named)} smaller together" in page
    assert "at others, " in page
    assert select_named_consumers(small.findings_over_time, find_time_frame(small)) == {"c1", "c2", "c3"}


def test_without_its_script_the_page_shows_all_and_no_filter(small: ReportData) -> None:
    page = to_html(small)
    assert "<noscript><style>.filter { display: none }</style></noscript>" in page
    assert not re.search(r'class="(finding|code)[^>]*\bhidden\b', page)
    assert page.count('class="finding"') == 12
    labels = re.findall(r"<label>(\w[\w ]*) <(?:select|input)", page[page.index('<form id="filter"') :])
    assert labels == ["Rule", "Consumer", "Window from", "Containing"]


PROBE = """
<script>
var form = document.getElementById("filter"), said = [];
function note() {
  var open = document.querySelectorAll(".finding:not([hidden])").length;
  said.push(open + ": " + document.getElementById("filter-count").textContent);
}
function choose(name, value) { form.elements[name].value = value; form.dispatchEvent(new Event("input")); note(); }
note(); choose("consumer", "1"); choose("code", "0"); choose("window", "WINDOW"); choose("words", "no such word");
form.reset(); window.setTimeout(function () { note(); document.body.textContent = said.join(";"); }, 10);
</script></body>"""


@pytest.mark.long
@pytest.mark.skipif(CHROMIUM is None, reason="no browser")
def test_the_script_narrows_the_rows_and_counts_all(small: ReportData, tmp_path: Path) -> None:
    found = build_filter(small)
    window = next(i for i, (first, _) in enumerate(found.windows) if first == small.codes[0].worst[0].window)
    html = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", to_html(small))  # it allows no other script
    (tmp_path / "page.html").write_text(html.replace("</body>", PROBE.replace("WINDOW", str(window))))
    done = subprocess.run(
        [str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
         "--virtual-time-budget=5000", "--dump-dom", (tmp_path / "page.html").as_uri()],
        capture_output=True, check=True, timeout=120, text=True,
    )  # fmt: skip
    mine = [p for p in small.findings_over_time if p.consumer == "c2"]
    here = [p for p in mine if p.code == "KEY_TWO_OWNERS"]
    then = [p for p in here if p.window_start == small.codes[0].worst[0].window]
    said = re.findall(r"(?:<body>|;)(\d+: [^;<]*(?:; [^;<]*in all)?)", done.stdout)
    assert said == [
        "12: 12 of 12 rows shown; 1,753 such findings in all",
        f"4: 4 of 12 rows shown; {sum(p.count for p in mine):,} such findings in all",
        f"3: 3 of 12 rows shown; {sum(p.count for p in here):,} such findings in all",
        f"1: 1 of 12 rows shown; {sum(p.count for p in then):,} such findings in all",
        "0: 0 of 12 rows shown",
        "12: 12 of 12 rows shown; 1,753 such findings in all",
    ]
