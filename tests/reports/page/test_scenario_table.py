"""The comparison of scenarios on the page: its columns, its finalists, and how it sorts and fits in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from subreplay.reports.data import ReportData
from subreplay.reports.dispatch_data import Drain
from subreplay.reports.page.html import to_html
from subreplay.reports.page.scenario_table import build_scenario_table, select_finalists
from tests.support.chromium import CHROMIUM, Browser, start_browser

NAMES = """[...document.querySelectorAll(".compare tbody th a")].map(link => link.textContent)"""


def click(column: int) -> str:
    return f"document.querySelectorAll('.compare thead button')[{column}].click(), {NAMES}"


def test_columns_without_any_figure_are_left_out(small: ReportData, dispatched: ReportData) -> None:
    plain, replayed = ([c.heading for c in build_scenario_table(data).columns] for data in (small, dispatched))
    assert {"99% within", "Drain", "Dead letters"} <= {*replayed} - {*plain}
    assert "Too early" not in replayed
    shared = replace(dispatched, scenarios=tuple(replace(s, traffic_moved=None, ceiling=0.0) for s in small.scenarios))
    headings = [column.heading for column in build_scenario_table(shared).columns]
    assert not {"Traffic moved", "Keys moved", "Ceiling"} & {*headings}


def test_the_bar_of_the_busiest_consumer_has_a_mark_at_the_fair_share(small: ReportData) -> None:
    table = build_scenario_table(small)
    (at,) = (i for i, column in enumerate(table.columns) if column.heading == "Busiest consumer")
    alone = table.rows[-1].cells[at]  # a single consumer gets everything, which is its fair share
    assert (alone.text, alone.bar, alone.mark) == ("100%", 1.0, 1.0)
    assert all(row.cells[at].mark == row.view.even_share for row in table.rows)


def test_a_backlog_that_never_drains_sorts_last_and_stands_out(dispatched: ReportData) -> None:
    first, *others = dispatched.dispatch
    table = build_scenario_table(replace(dispatched, dispatch=(replace(first, drain=Drain(9, None, (), "")), *others)))
    (at,) = (i for i, column in enumerate(table.columns) if column.heading == "Drain")
    never, ends, missing = (row.cells[at] for row in (table.rows[0], table.rows[3], table.rows[1]))
    assert (never.text, never.warn, float(never.order) > float(ends.order)) == ("never", True, True)
    assert (missing.text, missing.order) == ("–", "")


def test_the_recommended_scenario_and_the_baseline_are_marked(dispatched: ReportData) -> None:
    assert [row.role for row in build_scenario_table(dispatched).rows] == ["baseline", "recommended", "", "", ""]
    unknown = replace(dispatched, recommendation=replace(dispatched.recommendation, scenario="gone", finalists=()))  # type: ignore[type-var]
    assert [row.role for row in build_scenario_table(unknown).rows] == ["baseline", "", "", "", ""]


def test_only_finalists_are_drawn_and_the_others_are_counted(dispatched: ReportData) -> None:
    assert [view.name for view in select_finalists(dispatched)] == list(dispatched.recommendation.finalists)  # type: ignore[union-attr]
    page = to_html(dispatched)
    assert "1 other scenario is not drawn." in page
    assert "one consumer, c1: " not in page  # a bar of the scenario that is not drawn


@pytest.fixture(scope="module")
def browser(dispatched: ReportData, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Browser, Path]]:
    if CHROMIUM is None:
        pytest.skip("no browser is installed")
    page = tmp_path_factory.mktemp("page") / "report.html"
    page.write_text(to_html(dispatched), encoding="utf-8")
    with start_browser() as started:
        yield started, page


def test_a_click_on_a_heading_sorts_and_missing_figures_stay_last(browser: tuple[Browser, Path]) -> None:
    started, page = browser
    started.open(page, 1280)
    order = started.evaluate(NAMES)
    assert started.evaluate(click(2)) == ["10 consumers", "1,000 points", "as recorded", "auto split", "one consumer"]
    assert started.evaluate(click(2))[0] == "one consumer"
    assert started.evaluate(click(5)) == ["10 consumers", "as recorded", "1,000 points", "auto split", "one consumer"]
    assert sorted(order) == sorted(started.evaluate(click(0)))
    assert started.evaluate("document.querySelectorAll('[aria-sort]').length") == 1


def test_a_name_opens_the_details_of_its_scenario(browser: tuple[Browser, Path]) -> None:
    started, page = browser
    started.open(page, 1280)
    opened = "document.querySelector('.compare tbody a').click(), new Promise(done => setTimeout(() => done("
    opened += "document.querySelectorAll('#details > details[open]').length), 100))"
    assert started.evaluate(opened) == 1


@pytest.mark.parametrize("width", [1280, 820, 420])
def test_only_the_table_scrolls_sideways_and_no_name_is_one_letter_wide(
    browser: tuple[Browser, Path], width: int
) -> None:
    started, page = browser
    started.open(page, width)
    assert started.evaluate("document.documentElement.scrollWidth") == width
    assert (
        started.evaluate("Math.min(...[...document.querySelectorAll('.compare th')].map(head => head.clientWidth))")
        > 48
    )
