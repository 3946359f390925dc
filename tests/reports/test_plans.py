"""Plans in words: every question's answer has its tables, and every renderer shows them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from markupsafe import escape

from subreplay.config.run import RunConfig, parse
from subreplay.errors import ConfigError
from subreplay.pipeline.plan_questions import PlanInput, answer, build_finalists
from subreplay.reports.assemble.plan_views import build_plan_view
from subreplay.reports.assemble.recommendations import recommend_plan
from subreplay.reports.data import ReportData
from subreplay.reports.json_report import from_json, to_json
from subreplay.reports.page.html import to_html
from subreplay.reports.plan_data import PlanView
from subreplay.reports.text import to_text
from subreplay.whatif.planning.questions.answer import QUESTIONS, Question
from tests.reports.made_reports import scenario as make_scenario
from tests.support.planning import build_group_events, build_traffic, refuse_fit

PULSAR = {"subscription": {"policy": "pulsar.key_shared.consistent_hash"}}
KAFKA = {"subscription": {"policy": "kafka.cooperative_sticky", "profile": "kafka-4.0"}}
WORK = {"service": {"model": "fixed", "time": "2s"}, "window": "1m", "sizing": {"most": 20}}


def given(run: dict[str, object], events: bool = False) -> PlanInput:
    profile = build_traffic(np.random.default_rng(3).zipf(1.5, 400) % 50, partitions=3, every=10**9)
    story = {scope: build_group_events(scope) if events else () for scope in profile.scopes}
    return PlanInput(parse(run, "here"), profile, story, refuse_fit)


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("own", [PULSAR, KAFKA])
def test_every_question_has_an_answer_that_every_renderer_shows(
    question: Question, own: dict[str, object], small: ReportData
) -> None:
    requested = given(own | {"plan": WORK}, events=own is KAFKA)
    if question == "static" and own is PULSAR:
        with pytest.raises(ConfigError, match="no membership events"):
            answer(requested, question)
        return
    found = answer(requested, question)
    if found.value is not None and found.bound is not None:
        assert found.bound <= found.value * (1 + 1e-9)
    view = build_plan_view(found)
    assert view.tables
    assert view.assumed
    assert view.choice
    assert all(text == "" or text.endswith(".") for text in (view.reason, view.price, view.bound_meaning))
    advice = recommend_plan(view, small.scenarios)
    assert (advice.choice, advice.reason, advice.price) == (view.choice, view.reason, view.price)
    shown = replace(small, run=replace(small.run, kind="whatif"), plans=(view,), recommendation=advice)
    assert from_json(to_json(shown)) == shown
    assert view.tables[0].title in to_text(shown)
    page = to_html(shown)
    assert view.tables[0].title in page
    assert f"Plan: {small.run.title}</h1>" in page
    for text in (view.choice, view.reason, view.price, view.bound_meaning):
        assert str(escape(text)) in page.replace("<wbr>", "")
    assert (view.bars is not None) == (question not in ("ranges", "policy"))
    for bar in view.bars.bars if view.bars else ():
        assert escape(bar.text) in page
    for point in view.front:
        assert f"{point.label}" in page


def test_finalists_are_replayed_in_time_if_a_service_model_is_set() -> None:
    requested = given(PULSAR | {"plan": WORK})
    found = build_finalists(requested.config, [answer(requested, "consumers"), answer(requested, "rollout")])
    assert found
    assert all(one.dispatch.consumers.service.time == 2_000_000 for one in found)  # type: ignore[attr-defined]
    requested = given(PULSAR)
    assert [one.dispatch for one in build_finalists(requested.config, [answer(requested, "ranges")])] == [None, None]  # type: ignore[attr-defined]


@pytest.mark.parametrize("question", ["consumers", "capacity"])
def test_without_a_service_model_nobody_knows_how_busy_a_consumer_is(question: Question) -> None:
    with pytest.raises(ConfigError, match=r"plan\.service"):
        answer(given(PULSAR), question)


def test_a_plan_changes_neither_what_is_audited_nor_its_run_id() -> None:
    plain = RunConfig()
    assert parse({"plan": WORK}, "here").run_id == plain.run_id


def find_consumers(**sizing: object) -> PlanView:
    """The answer about consumers that work two seconds on each message, one message a second."""
    return build_plan_view(answer(given(PULSAR | {"plan": WORK | {"sizing": {"most": 20} | sizing}}), "consumers"))


def test_the_number_of_consumers_has_its_bound_and_its_gap_in_a_sentence() -> None:
    view = find_consumers(p99="2m")
    assert view.choice == f"Use {view.value_text} under {view.scenario.split(' under ')[1]}"
    assert view.reason.startswith("99.0% of the messages are done within ")
    assert "2 min is allowed. With one consumer less it would be " in view.reason
    assert f"Fewer than {view.bound_text} cannot" in view.bound_meaning


def test_without_a_number_that_is_enough_the_answer_says_what_is_in_the_way() -> None:
    view = find_consumers(utilisation=0.1)
    assert view.choice == "No number of consumers up to 20 is enough"
    assert "because each key has one owner." in view.reason
    assert view.scenario == ""


def test_a_scenario_of_several_questions_is_found_by_its_question() -> None:
    view = find_consumers(p99="2m")
    scenario = replace(make_scenario("a", "pulsar.exclusive", "pulsar-4.0", [1]), name=f"consumers: {view.scenario}")
    assert recommend_plan(view, (scenario,)).scenario == scenario.name
