"""Public incident reports, rebuilt as small inputs, are answered rightly by the command.

Each file ``<system>/<case>.yaml`` beside this module states what the commands of the case's ``run.sh`` must answer. The
inputs are in ``tests/data/incidents.tar.xz``. A case file has these keys, all optional but ``exits``:

exits       the exit code of each ``subreplay`` command of ``run.sh``, in order
findings    rule code -> number of findings in ``report.json`` (of the last command with a report); 0 for none
verdict     the verdict in ``report.json``
shows       sentences, or parts of them, that the commands print or write to ``report.txt`` (white space and line breaks
            do not count)
hides       texts that the commands must neither print nor write to it
files       file below the case's folder -> texts that it contains
commands    arguments of ``subreplay``, one string a command, instead of ``run.sh``
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

HERE = Path(__file__).parent
CASES = sorted(path.relative_to(HERE).with_suffix("").as_posix() for path in HERE.glob("*/*.yaml"))
KEYS = {"exits", "findings", "verdict", "shows", "hides", "files", "commands"}
ROOT = HERE.parents[1]

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def incidents(tmp_path_factory) -> Path:
    """The unpacked inputs."""
    folder = tmp_path_factory.mktemp("incidents")
    with tarfile.open(ROOT / "tests" / "data" / "incidents.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "incidents"


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    """The environment of ``run.sh``: its ``subreplay`` is this source tree's, and notes each exit code."""
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "subreplay"
    command = f"{shlex.quote(sys.executable)} -m subreplay.cli.main"
    program.write_text(f'#!/bin/sh\n{command} "$@"\ncode=$?\necho $code >>"$EXITS"\nexit $code\n')
    program.chmod(0o755)
    paths = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src")}
    return os.environ | paths | {"COLUMNS": "200", "NO_COLOR": "1"}


@pytest.mark.parametrize("case", CASES)
def test_the_command_answers_a_public_incident_report_rightly(case, incidents, environment, tmp_path):
    expected: dict[str, Any] = yaml.safe_load((HERE / f"{case}.yaml").read_text(encoding="utf-8"))
    assert expected.keys() <= KEYS
    folder = incidents / case
    exits = tmp_path / "exits"
    exits.touch()
    script = "\n".join(f"subreplay {line}" for line in expected["commands"]) if "commands" in expected else "sh run.sh"
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment | {"EXITS": str(exits)}, capture_output=True, text=True
    )
    written = [path.read_text(encoding="utf-8") for path in sorted(folder.rglob("report.txt"))]
    printed = joined("\n".join([done.stdout, done.stderr, *written]))

    assert [int(line) for line in exits.read_text().split()] == expected["exits"], printed
    missing = [text for text in expected.get("shows", ()) if joined(text) not in printed]
    assert not missing, printed
    assert not [text for text in expected.get("hides", ()) if joined(text) in printed], printed
    for name, texts in expected.get("files", {}).items():
        content = joined((folder / name).read_text(encoding="utf-8"))
        assert [text for text in texts if joined(text) not in content] == [], content
    if "findings" in expected or "verdict" in expected:
        report = json.loads(max(folder.rglob("report.json"), key=lambda path: path.stat().st_mtime).read_text())
        counts = {rule["code"]: rule["count"] for rule in report["codes"]}
        assert {code: counts.get(code) for code in expected.get("findings", {})} == expected.get("findings", {})
        assert report["verdict"] == expected.get("verdict", report["verdict"])


def joined(text: str) -> str:
    """The text with each run of white space as one space."""
    return re.sub(r"\s+", " ", text).strip()
