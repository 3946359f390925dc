"""The command: it prints an address that answers, and ends when it is interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

import subreplay
from subreplay.cli.commands import studio as studio_command
from subreplay.cli.main import main
from subreplay.engine.local.engine import LocalEngine
from subreplay.pipeline.attempts import run_tables
from subreplay.pipeline.source import read_profile
from subreplay.studio.state import StudioRun
from subreplay.studio.workbench import Workbench
from tests.support.studio import RunningStudio, open_workbench

ROOT = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_the_bundled_recording_until_it_is_interrupted(number: int, tmp_path: Path) -> None:
    program = subprocess.Popen(
        [sys.executable, "-m", "subreplay", "studio", "--no-open", "--quiet"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    with program:
        assert program.stdout is not None
        address = program.stdout.readline().split()[-1]
        assert address.startswith("http://127.0.0.1:")
        with urlopen(address.split("#")[0]) as answer:
            assert b"subreplay studio" in answer.read()
        program.send_signal(number)
        assert program.wait(30) == 0


def test_only_one_source_of_traffic_is_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["studio", "--config", "x.yaml", "--messages", "y.csv"]) == 2
    assert "pass one of --config, --messages and --profile" in capsys.readouterr().err
    assert main(["studio", "--profile", str(tmp_path), "--no-open"]) == 2
    assert "Write it with `subreplay profile`" in capsys.readouterr().err


def test_a_port_in_use_is_named(
    capsys: pytest.CaptureFixture[str], studio: RunningStudio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    port = studio.origin.rpartition(":")[2]
    assert main(["studio", "--no-open", "--port", port]) == 4
    assert f"--port {port}: cannot listen there" in capsys.readouterr().err


def test_a_kept_profile_has_the_figures_of_its_messages(run: StudioRun, tmp_path: Path) -> None:
    folder = run.sections["traffic"]["path"]
    subreplay.profile({"path": f"{folder}/messages", "format": "parquet"}, to=tmp_path)
    kept = StudioRun({"traffic": {"profile": str(tmp_path)}}, "kept")
    members = [{"consumer": f"c{number}"} for number in range(5)]
    setups = [{"name": policy, "policy": policy, "members": members} for policy in ("pulsar.shared", "pulsar.failover")]
    setups.append({**setups[0], "name": "ring", "policy": "pulsar.key_shared.consistent_hash", "partitions": 3})
    state = {"scenarios": setups, "windows": {"width": "1s"}}
    with LocalEngine(cores=1) as engine:
        source = read_profile(engine, kept.parse({}), run_tables(engine, kept.parse({}), kept=True))
        found = Workbench(kept, source).evaluate(state, 0, 0)
    with open_workbench(run) as whole:
        assert found == whole.evaluate(state, 0, 0)


def test_messages_alone_begin_with_one_set_up(tmp_path: Path) -> None:
    run = studio_command.build_run(None, str(ROOT / "tests/data/sources/orders.parquet"), None, None)
    with open_workbench(run) as workbench:
        first = workbench.describe()
        assert len(first["state"]["scenarios"]) == 1
        assert first["messages"] == "6,000"
        assert not workbench.evaluate(first["state"], 0, 0)["cards"][0]["error"]
