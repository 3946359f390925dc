"""The functions of the package: traffic is loaded once, and scenarios over it have a what-if's figures."""

from __future__ import annotations

import pydoc
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

import subreplay
from subreplay.adapters import Options
from subreplay.api import TrafficProfile
from subreplay.cli.commands.sources import ingest_folder
from subreplay.errors import ConfigError

FIVE = [{"consumer": f"c{number}"} for number in range(1, 6)]
SCENARIOS: list[dict[str, Any]] = [
    {"name": "hash ring", "policy": "pulsar.key_shared.consistent_hash", "profile": "pulsar-3.2", "members": FIVE},
    {"name": "recorded", "policy": "pulsar.key_shared.auto_split", "profile": "pulsar-4.0"},
    {"name": "turns", "policy": "pulsar.shared", "profile": "pulsar-4.0", "members": FIVE},
    {"name": "more partitions", "policy": "pulsar.failover", "members": [*FIVE, {"consumer": "c6", "join": "4s"}],
     "partitions": 12},
]  # fmt: skip


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled recording as tables."""
    folder = tmp_path_factory.mktemp("tables")
    with as_file(files("subreplay.demo") / "recording") as recording:
        ingest_folder(recording, str(folder), "pulsar-recording", "parquet", {}, Options())
    return folder


@pytest.fixture
def sections(tables: Path) -> dict[str, Any]:
    return {name: {"path": str(tables / name), "format": "parquet"} for name in ("messages", "membership")}


@pytest.fixture
def profile(sections: dict[str, Any]) -> Iterator[TrafficProfile]:
    with subreplay.TrafficProfile.load(**sections, windows={"width": "500ms"}) as profile:
        yield profile


def test_an_evaluated_scenario_has_the_figures_of_the_what_if(
    sections: dict[str, Any], profile: TrafficProfile
) -> None:
    with subreplay.whatif(**sections, scenarios=SCENARIOS, windows={"width": "500ms"}) as found:
        for scenario, view in zip(SCENARIOS, found.report.scenarios, strict=True):
            assert profile.evaluate(scenario).figures == view
        compared = profile.compare(SCENARIOS)
        assert compared.report.scenarios == found.report.scenarios
        assert "<iframe" in compared._repr_html_()


def test_windows_have_every_message_once(profile: TrafficProfile) -> None:
    found = profile.evaluate(SCENARIOS[0])
    assert pc.sum(found.windows["messages"]).as_py() == found.figures.messages == len(profile)
    assert found.width == 500_000_000
    assert {start % found.width for start in found.windows["window"].to_pylist()} == {0}


def test_a_scenario_without_a_name_is_evaluated_and_a_wrong_key_is_named(profile: TrafficProfile) -> None:
    nameless = {key: value for key, value in SCENARIOS[0].items() if key != "name"}
    named = profile.evaluate(SCENARIOS[0]).figures
    assert replace(profile.evaluate(nameless).figures, name=named.name) == named
    with pytest.raises(ConfigError, match="polcy"):
        profile.evaluate({"polcy": "pulsar.shared"})


def test_a_plan_and_a_profile_and_an_inspection_answer_in_python(tables: Path, tmp_path: Path) -> None:
    messages = {"path": str(tables / "messages"), "format": "parquet"}
    with subreplay.plan("capacity", messages, plan={"service": {"model": "fixed", "time": "5ms"}}) as found:
        assert found.report.plans[0].question == "capacity"
    days = subreplay.profile(messages, to=tmp_path / "profile")
    with subreplay.TrafficProfile.load(messages, traffic={"profile": str(tmp_path / "profile")}) as kept:
        assert sum(days.values()) == len(kept)
    assert not subreplay.inspect(tables / "messages").open
    with pytest.raises(ConfigError, match="unknown question 'size'"):
        subreplay.plan("size", messages)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["audit", "whatif", "plan", "inspect", "profile", "explain"])
def test_help_shows_the_function(name: str) -> None:
    shown = pydoc.render_doc(getattr(subreplay, name), renderer=pydoc.plaintext)
    assert f"{name}(" in shown
    assert pydoc.getdoc(getattr(subreplay.api, name)).splitlines()[0] in shown
    assert name in dir(subreplay)
