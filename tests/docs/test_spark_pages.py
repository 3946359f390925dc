"""What the pages show for Spark and notebooks works: spark-submit, the job of a what-if, the code."""

from __future__ import annotations

import os
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from subreplay.cli import main
from subreplay.rows.model.rows import Verdict
from subreplay.rows.model.tables import INPUTS
from tests.docs.pages import DOCS, ROOT, blocks

INGEST = "ingest tests/data/recordings/4.0.8/s1f_key_shared_default_batching --to {}/build/tables"
PARTITIONED = "ingest tests/data/recordings/4.0.8/s5_failover_partitioned --to {}/build/partitioned"
NOTEBOOKS = [*blocks((DOCS / "guides" / "notebooks.md").read_text(encoding="utf-8"))]


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder as a clone. Commands name it: a Spark session that started elsewhere takes relative paths from there."""
    for name in ("conf", "jobs", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(command: str, workplace: Path) -> None:
    assert main.main([*shlex.split(command.format(workplace)), "--quiet"]) == 0


@pytest.mark.spark
@pytest.mark.slow
def test_the_nightly_job_runs_under_spark_submit(workplace: Path) -> None:
    run(INGEST, workplace)
    page = (DOCS / "guides" / "spark.md").read_text(encoding="utf-8")
    (text,) = [block.text for block in blocks(page) if "conf/examples/nightly_audit.yaml" in block.text]
    python = Path(sys.executable)
    text = text.replace(".venv/bin/python", str(python)).replace("spark-submit", f"{python.parent}/spark-submit", 1)
    source = str(Path(main.__file__).parents[2])
    done = subprocess.run(
        ["bash", "-c", text], capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": source}
    )
    assert done.returncode == 1, done.stderr  # mixed batches
    assert "report: " in done.stdout


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_the_job_of_a_what_if_is_its_command(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(PARTITIONED, workplace)
    options = f"--tables {workplace}/build/partitioned --out {workplace}/build/kafka_assignors"
    monkeypatch.setattr(
        sys, "argv", ["jobs/what_if.py", "--config", "conf/examples/kafka_assignors.yaml", *options.split()]
    )
    with pytest.raises(SystemExit) as ended:
        runpy.run_path("jobs/what_if.py", run_name="__main__")
    assert ended.value.code == 0
    assert Path("build/kafka_assignors/report/report.html").is_file()


@pytest.mark.spark
def test_the_code_for_a_notebook_works_on_frames(workplace: Path, spark: Any) -> None:
    run(INGEST, workplace)
    tables = f"{workplace}/build/tables"
    names = {"spark": spark} | {name: spark.read.format("delta").load(f"{tables}/{name}") for name in INPUTS}
    for block in NOTEBOOKS:
        if block.notes.get("needs") == "spark":
            exec(block.text.replace("/Volumes/main/logs/tables", tables), names)  # noqa: S102
    assert names["found"].verdict is names["result"].verdict is Verdict.INVALID


@pytest.mark.long
def test_the_code_for_files_works_without_spark(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(INGEST, workplace)
    audit, profile = [block.text for block in NOTEBOOKS if block.notes.get("needs") == "tables"]
    exec(audit, {})  # noqa: S102
    assert capsys.readouterr().out.splitlines()[-1] == "invalid 118"
    exec(profile, {})  # noqa: S102
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[-3:]] == ["2", "4", "8"]
