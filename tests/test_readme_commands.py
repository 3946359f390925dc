"""Every command of the README, every example of conf and both jobs run; the README shows what its commands print."""

from __future__ import annotations

import io
import os
import re
import runpy
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from subreplay.cli import main
from subreplay.rows.model.rows import Verdict
from subreplay.rows.model.tables import INPUTS
from tests.pipeline import test_group_dispatch

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
INGEST = "subreplay ingest tests/data/recordings/4.0.8/s1f_key_shared_default_batching --to build/tables"
DEMO = "subreplay demo --out build/demo"
PARTITIONED = "subreplay ingest tests/data/recordings/4.0.8/s5_failover_partitioned --to build/partitioned"
INSPECT = "subreplay inspect tests/data/sources/orders.parquet --to build/orders.yaml"
NEEDS = {"build/orders.yaml": INSPECT, "build/demo/": DEMO, "build/tables/": INGEST, "build/partitioned": PARTITIONED}
CODES = {"audit": 1}  # the one recording with violations
# Which lines the README shows of a long output: their beginnings, and how many lines from there; others show all
SHOWN: dict[str, tuple[tuple[str, int], ...]] = {
    "subreplay audit": (("✗ INVALID", 1), ("", 1), ("Rules", 9)),
    "subreplay whatif --config conf/examples/what_if.yaml": (
        ("con-", 4),
        ("consistent hashing 3.2", 1),
        ("auto-split 4.0", 1),
        ("failover 4.0", 1),
        ("shared 4.0", 1),
    ),
    "subreplay whatif --config conf/examples/dispatch.yaml": (
        ("Dispatch replay (predicted)", 7),
        ("", 1),
        ("stuck on 4.0 (predicted): blocked consumers", 5),
    ),
    "subreplay explain --key Order-1466420": (("key ", 10),),
    "subreplay conformance": (("range.jsonl.gz", 1),),
}


def blocks() -> list[tuple[str, str]]:
    return re.findall(r"```(\w+)\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def commands(text: str) -> list[str]:
    """The calls of the program in a shell block, without the comments behind them."""
    lines = [line.split("  #")[0].strip() for line in text.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line.startswith("subreplay ")]


COMMANDS = [command for kind, text in blocks() if kind == "sh" for command in commands(text)]
PRINTED = [
    (commands(before)[-1], text)
    for (kind_before, before), (kind, text) in zip(blocks(), blocks()[1:], strict=False)
    if (kind_before, kind) == ("sh", "text")
]


class Workplace:
    """A folder as the README supposes it, in which each command is run once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said: dict[str, tuple[int, str]] = {}

    def run(self, command: str) -> tuple[int, str]:
        """Exit code and standard output, of a command that may need what another one wrote."""
        for needed in [other for folder, other in NEEDS.items() if folder in command and other != command]:
            assert self.run(needed)[0] == 0
        if command not in self.said:
            out, folder = io.StringIO(), f"{self.folder}/build/"
            with redirect_stdout(out):  # a Spark session started elsewhere takes relative paths from there
                code = main.main(shlex.split(command.replace("build/", folder))[1:])
            self.said[command] = code, out.getvalue().replace(folder, "build/")
        return self.said[command]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    folder = tmp_path_factory.mktemp("readme")
    for name in ("conf", "jobs", "tests"):
        (folder / name).symlink_to(ROOT / name)
    before = Path.cwd()
    os.chdir(folder)
    yield Workplace(folder)  # type: ignore[misc]
    os.chdir(before)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_readme_works(workplace, command):
    assert workplace.run(command)[0] == CODES.get(command.split()[1], 0)


@pytest.mark.parametrize(("command", "printed"), PRINTED, ids=[command for command, _ in PRINTED])
def test_the_readme_shows_what_a_command_prints(workplace, command, printed):
    code, said = workplace.run(command)
    assert code == CODES.get(command.split()[1], 0)
    now = shown(command, said)
    if os.environ.get("SUBREPLAY_SNAPSHOTS") == "write":
        README.write_text(README.read_text(encoding="utf-8").replace(printed, now), encoding="utf-8")
    else:
        assert now == printed


def shown(command: str, said: str) -> str:
    """What the README shows of an output."""
    lines = [line.rstrip() for line in said.strip("\n").splitlines()]
    pieces = next((pieces for start, pieces in SHOWN.items() if command.startswith(start)), None)
    chosen: list[str] = [] if pieces is not None else lines
    for start, many in pieces or ():
        first = next(i for i, line in enumerate(lines) if line.strip().startswith(start)) if start else len(lines)
        chosen += lines[first : first + many] if start else [""]
    return "\n".join(chosen) + "\n"


def test_explain_reads_the_tables_of_the_demo(workplace):
    command = next(c for c in COMMANDS if c.startswith("subreplay explain --key Order-1466420"))
    assert "judged by the audit that wrote build/demo/tables" in workplace.run(command)[1]


# Examples that the README only names
GROUPS = ("kafka_assignors", test_group_dispatch.EXAMPLE.stem)


def test_every_example_is_run():
    of_readme = {
        re.search(r"examples/(\w+)\.yaml", text)[1] for text in (*COMMANDS, spark_submit()) if "examples/" in text
    }
    assert of_readme | set(GROUPS) == {path.stem for path in (ROOT / "conf/examples").glob("*.yaml")}


def spark_submit() -> str:
    return next(text for kind, text in blocks() if kind == "sh" and "spark-submit " in text)


@pytest.mark.spark
@pytest.mark.slow
def test_the_nightly_job_runs_under_spark_submit(workplace):
    workplace.run(INGEST)
    python = Path(sys.executable)
    text = (
        spark_submit()
        .replace(".venv/bin/python", str(python))
        .replace("spark-submit", f"{python.parent}/spark-submit", 1)
    )
    source = str(Path(main.__file__).parents[2])
    done = subprocess.run(
        ["bash", "-c", text], capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": source}
    )
    assert done.returncode == 1, done.stderr  # mixed batches
    assert "report: " in done.stdout


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_the_job_of_a_what_if_is_its_command(workplace, monkeypatch):
    workplace.run(PARTITIONED)
    options = "--config conf/examples/kafka_assignors.yaml --tables build/partitioned --out build/kafka_assignors"
    given = options.replace("build/", f"{workplace.folder}/build/")
    monkeypatch.setattr(sys, "argv", ["jobs/what_if.py", *given.split()])
    with pytest.raises(SystemExit) as left:
        runpy.run_path("jobs/what_if.py", run_name="__main__")
    assert left.value.code == 0
    assert Path("build/kafka_assignors/report/report.html").is_file()


@pytest.mark.spark
def test_the_code_for_a_notebook_works(workplace, spark):
    workplace.run(INGEST)
    tables = f"{workplace.folder}/build/tables"
    held = {"spark": spark} | {name: spark.read.format("delta").load(f"{tables}/{name}") for name in INPUTS}
    for text in (text for kind, text in blocks() if kind == "python"):
        exec(text.replace("/Volumes/main/logs/tables", tables), held)  # noqa: S102
    assert held["found"].verdict is held["result"].verdict is Verdict.INVALID
