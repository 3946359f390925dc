"""The figures of the page are those of the command for the saved run file, to the last digit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from subreplay.cli.main import main
from subreplay.errors import SubreplayError
from subreplay.studio.state import StudioRun
from subreplay.studio.workbench import Workbench
from tests.support.studio import draw_state

LEFT_OUT = ("utilisation", "dispatch")  # the page adds one, and the command the other


def check_state(seed: int, workbench: Workbench, run: StudioRun, folder: Path, capsys: Any) -> None:
    state = draw_state(seed)
    found = workbench.evaluate(state, 0, 0)
    shown = {card["name"]: card["figures"] for card in found["cards"]}
    kept = [setup for setup in state["scenarios"] if shown[setup["name"]] is not None]
    if not kept:
        return
    (folder / "run.yaml").write_text(run.write_run_file({**state, "scenarios": kept}), encoding="utf-8")
    assert main(["whatif", "--config", f"{folder}/run.yaml", "--out", f"{folder}/out", "--json", "--quiet"]) in (0, 3)
    reported = json.loads(capsys.readouterr().out)["scenarios"]
    assert len(reported) == len(kept)
    for figures in reported:
        mine = json.loads(json.dumps(shown[figures["name"]]))
        assert {k: v for k, v in mine.items() if k not in LEFT_OUT} == {
            k: v for k, v in figures.items() if k not in LEFT_OUT
        }


@pytest.mark.parametrize("seed", range(4))
def test_figures_are_those_of_the_command_for_the_saved_run_file(
    seed: int, workbench: Workbench, run: StudioRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_state(seed, workbench, run, tmp_path, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 200))
def test_figures_are_those_of_the_command_for_200_random_states(
    seed: int, workbench: Workbench, run: StudioRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_state(seed, workbench, run, tmp_path, capsys)


def test_the_utilisation_is_that_of_the_planner(workbench: Workbench) -> None:
    state = draw_state(0) | {"scenarios": [{"name": "a", "policy": "pulsar.key_shared.auto_split"}]}
    state["scenarios"][0]["members"] = [{"consumer": f"c{number:05}"} for number in range(1, 5)]
    plan = {"service": {"model": "fixed", "time": "10ms"}, "sizing": {"utilisation": 0.7}}
    state |= {"plan": plan, "windows": {"width": "500ms"}}
    answer = workbench.plan(state, 0, "consumers")
    (planned,) = answer["setups"]
    assert answer["choice"].startswith(f"Use {len(planned['members'])} consumers")
    most = workbench.evaluate({**state, "scenarios": [planned]}, 0, 0)["cards"][0]["figures"]["utilisation"]
    assert f"{most:.1%}" in answer["reason"]
    assert most <= 0.7
    fewer = {**planned, "members": planned["members"][:-1]}
    assert workbench.evaluate({**state, "scenarios": [fewer]}, 0, 0)["cards"][0]["figures"]["utilisation"] > 0.7


def test_windows_change_the_worst_window_and_not_the_whole(workbench: Workbench) -> None:
    state = draw_state(1)
    wide, narrow = (
        workbench.evaluate({**state, "windows": {"width": width}}, 0, 0)["cards"][0]["figures"]
        for width in ("5s", "100ms")
    )
    assert wide["messages"] == narrow["messages"]
    assert wide["keys_moved"] == narrow["keys_moved"]


@pytest.mark.parametrize("question", ["consumers", "ranges", "rollout"])
def test_a_plan_can_be_applied(question: str, workbench: Workbench) -> None:
    state = draw_state(2) | {
        "plan": {"service": {"model": "fixed", "time": "10ms"}, "rollout": {"away": "1s", "pause": "1s"}}
    }
    state["scenarios"] = [{"name": "a", "policy": "pulsar.key_shared.sticky", "members": [
        {"consumer": "a", "ranges": [[0, 9_999]]}, {"consumer": "b", "ranges": [[10_000, 65_535]]}]}]  # fmt: skip
    if question != "ranges":
        state["scenarios"][0] |= {"policy": "pulsar.key_shared.consistent_hash", "profile": "pulsar-4.0"}
        state["scenarios"][0]["members"] = [{"consumer": "a"}, {"consumer": "b"}]
    found = workbench.plan(state, 0, question)
    assert found["choice"]
    assert found["bound"] or question == "rollout"
    after = workbench.evaluate({**state, "scenarios": found["setups"]}, 0, 0)
    assert not after["cards"][0]["error"]


def test_a_set_up_that_cannot_be_evaluated_leaves_the_others(workbench: Workbench, monkeypatch: Any) -> None:
    state = draw_state(0)
    state["scenarios"] = [{"name": name, "policy": "pulsar.shared"} for name in ("good", "bad")]
    state["scenarios"][1]["policy"] = "pulsar.failover"
    evaluate = workbench.evaluator.evaluate

    def fail(scenario: Any, config: Any) -> Any:
        if scenario.name == "bad":
            raise SubreplayError("no such luck")
        return evaluate(scenario, config)

    monkeypatch.setattr(type(workbench.evaluator), "evaluate", lambda self, scenario, config: fail(scenario, config))
    workbench._kept.clear()
    good, bad = workbench.evaluate(state, 0, 0)["cards"]
    assert (good["error"], bad["error"]) == ("", "no such luck")
    assert bad["figures"] is None


def test_the_program_that_is_copied_prints_the_figures(
    workbench: Workbench, run: StudioRun, capsys: pytest.CaptureFixture[str]
) -> None:
    state = draw_state(3)
    exec(compile(run.write_python(state), "copied.py", "exec"), {})  # noqa: S102
    printed = capsys.readouterr().out.splitlines()
    cards = workbench.evaluate(state, 0, 0)["cards"]
    assert printed == [
        f"{c['name']}: busiest consumer {c['figures']['max_share']:.1%}, skew {c['figures']['skew']:.2f}" for c in cards
    ]


def test_the_run_file_has_the_state_and_no_secret(run: StudioRun) -> None:
    secret = StudioRun({**run.sections, "keys": {"secret": "in the clear", "show": True}}, "x")
    text = secret.write_run_file(draw_state(0))
    assert "in the clear" not in text
    assert yaml.safe_load(text)["scenarios"] == draw_state(0)["scenarios"]
