"""Installed without Spark, the commands and the API work on files of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_ABSENT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pyspark", "py4j", "delta", "pandas", "grpc"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""
_COMMANDS = """
from subreplay.cli.main import main
for command in (
    ["demo", "--out", "demo"],
    ["inspect", "demo/input/messages", "--to", "inspected.yaml"],
    ["audit", "--config", "run.yaml"],
    ["whatif", "--config", "run.yaml"],
    ["explain", "--config", "run.yaml", "--key", "key-1"],
    ["plan", "policy", "--messages", "demo/input/messages", "--out", "plan"],
    ["audit", "--config", "run.yaml", "--engine", "spark"],
):
    print("exit", command[0], main([*command]), flush=True)
"""
_API = """
import subreplay
given = {name: {"path": f"demo/input/{name}"} for name in ("messages", "deliveries", "membership")}
asked = {"policy": "pulsar.key_shared.consistent_hash", "subscription": "sub", "profile": "pulsar-4.0"}
with subreplay.audit(**given, **asked) as result:
    print(result.verdict, type(result.violations).__module__)
print(len(subreplay.explain(**given, **asked, key="key-1").lines) > 5)
"""
_RUN = """
traffic: {path: demo/input}
subscription: {name: sub, policy: pulsar.key_shared.consistent_hash, profile: pulsar-4.0}
output: {tables: tables, report: report}
scenarios: [{name: others, policy: pulsar.key_shared.auto_split, profile: pulsar-4.0}]
"""


@pytest.mark.long
def test_commands_and_api_work_without_spark(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(_RUN)
    program = f"{_ABSENT}\n{_COMMANDS}\n{_API}"
    outside = {name: value for name, value in os.environ.items() if "SPARK" not in name}
    ended = subprocess.run(
        [sys.executable, "-c", program], env=outside, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    said = ended.stdout.splitlines()
    assert [line for line in said if line.startswith("exit ")] == [
        "exit demo 0", "exit inspect 0", "exit audit 0", "exit whatif 0", "exit explain 0", "exit plan 0",
        "exit audit 4",
    ]  # fmt: skip
    assert said[-2:] == ["valid pyarrow.lib", "True"]
    refused = next(line for line in ended.stderr.splitlines() if line.startswith("subreplay: "))
    assert "package pyspark, which is not installed: pip install 'subreplay[spark]'" in refused
