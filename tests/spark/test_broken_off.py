"""Runs that are ended from outside, as programs of their own: exit code, sentence, children, tables."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from subreplay.cli.main import main
from tests.support.recordings import ROOT

pytestmark = pytest.mark.long

AUDIT = """
import sys
from subreplay.cli.main import main
sys.exit(main(['audit', '--engine', 'spark', '--config', sys.argv[1], '--out', 'out']))
"""
SLOW = """
import sys, time
from subreplay.pipeline import story
sum_audit = story.sum_audit
def wait_and_sum(*given):
    time.sleep(int(sys.argv[2]))
    return sum_audit(*given)
story.sum_audit = wait_and_sum
"""
"""An audit that is not at its end before the signal comes, however slow this machine is."""
SIGNALLED = """
import os, signal, threading
from pyspark.sql import SparkSession
made = SparkSession.__init__
def make(*given, **named):
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    made(*given, **named)
SparkSession.__init__ = make
"""
"""A signal in the second in which Spark's context is there, and Java makes its session."""


def environment() -> dict[str, str]:
    """Where settings of Spark are looked for elsewhere, a command starts it at once; few rows would need none."""
    source = Path(main.__code__.co_filename).parents[2]
    return os.environ | {"PYTHONPATH": str(source), "SPARK_CONF_DIR": str(Path.cwd())}


@pytest.fixture(scope="module")
def run_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording as tables, with the run file that ingest writes."""
    folder = tmp_path_factory.mktemp("input")
    assert main(["ingest", str(ROOT / "4.0.8/s1f_key_shared_default_batching"), "--to", str(folder), "--quiet"]) == 0
    return folder / "audit.yaml"


@pytest.fixture
def ended(run_file: Path, here: Path) -> Callable[..., tuple[int, list[str]]]:
    """Run an audit and do something to it while it judges; the exit code, and what it said after its stages."""

    def run(done_to: Callable[[psutil.Process], None], waits: int = 30) -> tuple[int, list[str]]:
        audit = subprocess.Popen(
            [sys.executable, "-c", SLOW + AUDIT, str(run_file), str(waits)],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env=environment(),
            start_new_session=True,
        )
        assert audit.stderr is not None
        for line in audit.stderr:
            if line.rstrip().endswith("judging every delivery"):
                break
        children = psutil.Process(audit.pid).children(recursive=True)
        done_to(psutil.Process(audit.pid))
        said = [line.rstrip() for line in audit.stderr]
        code = audit.wait(60)
        _, alive = psutil.wait_procs(children, timeout=20)
        assert not alive
        return code, [line for line in said if not line.startswith(" ")]

    return run


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_run_and_its_children(ended, here, number, code):
    returned, said = ended(lambda audit: os.killpg(audit.pid, number) if number == signal.SIGINT else audit.terminate())
    assert (returned, said) == (code, ["subreplay: interrupted; each table is either unchanged or complete"])
    assert not list(here.rglob("report.html"))


def test_a_signal_while_spark_makes_its_session_ends_the_run(run_file, here):
    command = [sys.executable, "-c", SIGNALLED + AUDIT, str(run_file)]
    audit = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=120)
    assert audit.returncode == 130
    assert audit.stderr.endswith("subreplay: interrupted; each table is either unchanged or complete\n")


def test_a_run_whose_java_process_is_killed_is_the_environments_failure(ended, here):
    def kill(audit: psutil.Process) -> None:
        next(p for p in audit.children(recursive=True) if p.name() == "java").kill()

    returned, said = ended(kill, waits=3)
    assert returned == 4
    assert said[-2:] == [  # before them may stand what a thread of pyspark says about its connection
        "subreplay: Spark's Java process ended during the run; run it again; if memory ran out, give it more "
        "(spark.driver_memory)",
        f"log: {here}/out/report/subreplay.log",
    ]
