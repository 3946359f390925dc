"""The command line as a program of its own: how it leaves, what it brings along, and what it imports."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from subreplay import __version__
from subreplay.cli import command, main
from subreplay.config.run import load
from tests.support import recordings

ROOT = Path(__file__).parents[1]
PROGRAM = os.environ | {"PYTHONPATH": str(ROOT / "src")}


def program(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, check=False, env=PROGRAM, cwd=ROOT
    )


class Gone(Exception):
    """An exception of Java whose process has ended: who asks what it says is refused."""

    def __str__(self):
        raise ConnectionRefusedError(111, "Connection refused")


Gone.__module__ = "py4j.protocol"


def test_an_error_sets_the_exit_code_even_if_its_output_is_closed(capsys):
    assert command._report_failure(Gone()) == 4
    assert "Spark failed: Gone" in capsys.readouterr().err


@pytest.mark.long
def test_the_module_runs_as_a_program():
    done = program("-m", "subreplay.cli.main", "--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"subreplay {__version__}\n", "")


@pytest.mark.long
@pytest.mark.parametrize(("job", "command"), [("nightly_audit", "audit"), ("what_if", "whatif")])
def test_a_job_is_its_command_and_leaves_with_its_exit_code(job, command):
    usage = program(f"jobs/{job}.py", "--help")
    assert (usage.returncode, f"Usage: subreplay {command} " in usage.stdout) == (0, True)
    failed = program(f"jobs/{job}.py", "--config", "nowhere.yaml")
    said = "subreplay: nowhere.yaml: cannot be read: No such file or directory; check the name\n"
    assert (failed.returncode, failed.stdout, failed.stderr) == (2, "", said)


@pytest.mark.long
def test_the_other_commands_work_without_spark():
    hidden = "import sys; sys.modules['pyspark'] = sys.modules['delta'] = None; from subreplay.cli.main import main; "
    for arguments, code in (
        (["--version"], 0),
        (["config"], 0),
        (["audit", "--config", "conf/default.yaml", "--engine", "spark"], 4),
    ):
        done = program("-c", f"{hidden} sys.exit(main({[*arguments, *(['--out', 'build/x'] * (code == 4))]}))")
        assert done.returncode == code, done.stderr
    assert "pyspark is not installed. Install it: pip install 'subreplay[spark]'" in done.stderr


@pytest.mark.parametrize(("words", "found"), [("subreplay pl", "plan"), ("subreplay plan roll", "rollout")])
def test_shell_completion_lists_the_continuations_of_a_command(monkeypatch, capsys, words, found):
    requested = {"_SUBREPLAY_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    for name, value in requested.items():
        monkeypatch.setenv(name, value)
    assert (main.main([]), capsys.readouterr().out.strip()) == (0, found)


@pytest.mark.long
def test_a_reader_that_leaves_is_no_verdict():
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-c", "import sys; from subreplay.cli.main import main; sys.exit(main(['config']))"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False, env=PROGRAM)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_the_bundled_recording_is_whole():
    folder = Path(main.__file__).parents[1] / "demo" / "recording"
    with gzip.open(folder / "broker_events.jsonl.gz", "rt", encoding="utf-8") as file:
        events = [json.loads(line)["ev"] for line in file]
    assert {"subscribe", "dispatch", "ack", "consumer_closed"} <= set(events)
    assert load(folder.parent / "demo.yaml").scenarios


SLOW = {"numba", "pandas"}
HEAVY = SLOW | {"numpy", "pyarrow", "pydantic", "pyspark", "rich", "yaml"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "unwelcome"),
    [
        ("--help", HEAVY),
        ("explain --key k --config run.yaml", SLOW | {"pyspark", "rich"}),
        ("ingest {recordings}/4.0.8/s9_delayed_shared --to in", SLOW),
    ],
)
def test_a_command_imports_no_more_than_it_needs(here, arguments, unwelcome):
    """Seconds of a person's time: usage is told without what computes, a key is explained without Spark and without
    styles, both and files are read without what compiles and without pandas. Who asks Arrow for a frame of pandas has
    one all the same."""
    Path("run.yaml").write_text("scenarios: [{name: a, policy: pulsar.exclusive, members: [{consumer: c1}]}]")
    code = f"""
import sys
from subreplay.cli.main import main
sys.argv[1:] = {[part.format(recordings=recordings.ROOT) for part in arguments.split()]}
assert main() == 0
print(sorted({unwelcome} & set(sys.modules)))
import pyarrow
print(pyarrow.table({{"a": [1, 2]}}).to_pandas().shape)
"""
    command = [sys.executable, "-c", code]
    reported = subprocess.run(command, capture_output=True, text=True, check=True, env=PROGRAM).stdout
    assert reported.splitlines()[-2:] == ["[]", "(2, 1)"]
