"""Which scenario is best by each measure: those that never drain or deliver too early are behind the others."""

from __future__ import annotations

from dataclasses import replace

from subreplay.reports.assemble.whatif_answers import find_best_scenarios
from subreplay.reports.data import Answer, ReportData
from subreplay.reports.dispatch_data import Drain, Early, Latency
from subreplay.reports.formatting import format_worst
from subreplay.reports.text import to_text

SECOND = 10**9


def found(data: ReportData, **changes: object) -> dict[str, Answer]:
    """The answers by title, where the first replay has these changes; without them it is the best."""
    first, second = data.dispatch
    calm = replace(first, to_delivered=Latency(9, 1, 1, 1), backlog_max=1, drain=Drain(1, 1, (), ""), blocked_ns=0)
    return {one.title: one for one in find_best_scenarios(data.scenarios, (replace(calm, **changes), second))}  # type: ignore[arg-type]


def test_the_best_has_the_lowest_figure(dispatched: ReportData) -> None:
    best = found(dispatched)
    assert best["Lowest latency, 99%"].scenarios == best["Fastest drain"].scenarios == (dispatched.dispatch[0].name,)
    assert not {"Never drains", "Delivers too early"} & best.keys()


def test_a_scenario_that_never_drains_is_last_by_every_measure(dispatched: ReportData) -> None:
    first, second = (view.name for view in dispatched.dispatch)
    never = found(dispatched, drain=Drain(1, None, (), ""), to_delivered=Latency(9, 1, None, None, 4))
    for title in ("Lowest latency, 99%", "Smallest backlog", "Fastest drain", "Least blocked"):
        assert never[title].scenarios == (second,)
    assert never["Lowest latency, 99%"].worst == never["Fastest drain"].worst == "never"
    assert never["Never drains"].scenarios == (first,)


def test_others_that_drain_are_not_said_to_take_for_ever(dispatched: ReportData) -> None:
    views = [
        replace(dispatched.dispatch[0], name=str(took), drain=Drain(1, took, (), ""))
        for took in (SECOND, 3 * SECOND, None)
    ]
    drain = {one.title: one for one in find_best_scenarios(dispatched.scenarios, views)}["Fastest drain"]
    assert (drain.best, format_worst(drain.worst, drain.best)) == ("1 s", " (others up to 3 s or never)")


def test_a_scenario_that_delivers_too_early_is_no_best_one(dispatched: ReportData) -> None:
    first, second = (view.name for view in dispatched.dispatch)
    early = found(dispatched, early=Early(40, 40, SECOND, 12 * SECOND))
    assert early["Lowest latency, 99%"].scenarios == early["Smallest backlog"].scenarios == (second,)
    assert (early["Delivers too early"].scenarios, early["Delivers too early"].best) == (
        (first,), "40 of 40 delayed messages"
    )  # fmt: skip
    shown = replace(dispatched, dispatch=(replace(dispatched.dispatch[0], early=Early(40, 40, SECOND, 12 * SECOND)),))
    assert f"{first}: 40 of 40 delayed messages come 1 s to 12 s too early" in to_text(shown)


def test_a_scenario_that_drops_messages_is_no_best_one(dispatched: ReportData) -> None:
    first, second = (view.name for view in dispatched.dispatch)
    drops = found(dispatched, outcomes=replace(dispatched.dispatch[0].outcomes, published=200, dropped=129))
    assert drops["Lowest latency, 99%"].scenarios == drops["Fastest drain"].scenarios == (second,)
    assert (drops["Drops messages"].scenarios, drops["Drops messages"].best) == ((first,), "129 of 200 messages")


def test_where_no_scenario_drains_all_are_alike(dispatched: ReportData) -> None:
    never = [replace(view, drain=Drain(1, None, (), "")) for view in dispatched.dispatch]
    (drain,) = (one for one in find_best_scenarios(dispatched.scenarios, never) if one.title == "Fastest drain")
    assert (drain.best, drain.worst, len(drain.scenarios)) == ("never", "never", 2)


def test_a_long_name_keeps_a_readable_width(dispatched: ReportData) -> None:
    long = replace(dispatched.dispatch[0], name="a scenario of many words", blocked_ns=834 * SECOND,
                   to_delivered=Latency(9, *[834 * SECOND] * 3), drain=Drain(1, 834 * SECOND, (), ""))  # fmt: skip
    assert "  a scenario of many words  " in to_text(replace(dispatched, dispatch=(long,)))
