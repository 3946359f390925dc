"""Notebooks run as they are: their code cells in one namespace, as the platform runs them."""

import ast
import os
from pathlib import Path
from typing import Any

import pytest

from subreplay.rows.model.rows import Verdict
from tests.support.ipynb import as_ipynb, cells

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.py"))
each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@each
def test_a_notebook_is_in_source_format(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# Databricks notebook source"
    assert lines[1].startswith("# MAGIC %md")
    mixed = [cell for cell in path.read_text(encoding="utf-8").split("# COMMAND ----------") if "# MAGIC" in cell]
    assert all(line.startswith("# ") or not line for cell in mixed for line in cell.splitlines() if line != "# MAGIC")


@each
def test_its_ipynb_has_the_same_cells(path):
    """``SUBREPLAY_SNAPSHOTS=write`` in the environment rewrites it."""
    file = path.with_suffix(".ipynb")
    if os.environ.get("SUBREPLAY_SNAPSHOTS") == "write":
        file.write_text(as_ipynb(path), encoding="utf-8")
    assert file.read_text(encoding="utf-8") == as_ipynb(path)


def code_cells(path: Path) -> list[str]:
    return [text for kind, text in cells(path.read_text(encoding="utf-8")) if kind == "code"]


def run(path: Path, platform: dict[str, Any]) -> dict[str, Any]:
    """Execute the code cells one after the other in the namespace that a platform provides."""
    for number, cell in enumerate(code_cells(path)):
        exec(compile(ast.parse(cell), f"{path.name}, code cell {number}", "exec"), platform)  # noqa: S102
    return platform


@pytest.mark.spark
def test_auditing_a_recording_on_the_platform(spark, here, capsys):
    shown: list[Any] = []
    pages: list[str] = []
    platform = {"spark": spark, "display": lambda frame: shown.append(frame.toPandas()), "displayHTML": pages.append}
    after = run(NOTEBOOKS[0], platform)
    assert after["result"].verdict is Verdict.VALID
    assert [list(frame.columns[:2]) for frame in shown] == [
        ["file", "rows_in"], ["code", "status"], ["code", "verdict"], ["epoch", "from"], ["epoch", "start"],
        ["epoch", "cause"], ["window_start", "consumer"], ["name", "policy"],
    ]  # fmt: skip
    assert all(len(frame) for frame in shown)
    said = capsys.readouterr().out
    assert said.startswith("valid: Every guarantee of pulsar.key_shared.consistent_hash under pulsar-4.0 was kept.")
    assert "  epoch 1: c1 joined at " in said
    assert "<html" in pages[0]
    assert not (here / "build" / "notebook" / "report").exists()


@pytest.mark.spark
def test_finding_a_violation(spark, here, capsys):
    shown: list[Any] = []
    pages: list[str] = []
    platform = {"spark": spark, "display": lambda frame: shown.append(frame.toPandas()), "displayHTML": pages.append}
    after = run(NOTEBOOKS[1], platform)
    assert after["result"].verdict is Verdict.INVALID
    tumbling, sliding, loads, words = shown
    assert tumbling["code"].tolist() == ["WRONG_OWNER", "DUP_DELIVERY"]
    assert sorted(sliding["code"]) == ["DUP_DELIVERY"] * 4 + ["WRONG_OWNER"] * 4
    assert loads["messages"].sum() == 4003
    assert words["code"].tolist() == ["WRONG_OWNER", "DUP_DELIVERY"]
    said = capsys.readouterr().out
    assert said.startswith("invalid: 1 of 4,003 deliveries went to consumer c3, which did not own the message.")
    moved = after["moved"]
    assert f"delivered to {moved['consumer']}; its owner was " in said
    assert said.count(f"WRONG_OWNER (invalid): {moved['ledger']}:{moved['entry']} of key ") == 2
    assert 'id="filter"' in pages[0]


@pytest.mark.spark
def test_elsewhere_a_notebook_provides_for_itself(spark, here, capsys):
    namespace: dict[str, Any] = {}
    exec(code_cells(NOTEBOOKS[0])[0], namespace)  # noqa: S102
    assert namespace["spark"] is spark  # the active session
    namespace["display"](spark.range(1).selectExpr("'shown' AS what"))
    assert "|shown|" in capsys.readouterr().out


def test_trying_set_ups_needs_nothing_but_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    source = NOTEBOOKS[2].read_text(encoding="utf-8")
    imported = [line for line in source.splitlines() if line.startswith(("import subreplay", "from subreplay"))]
    assert imported == ["import subreplay"]
    after = run(NOTEBOOKS[2], {})
    said = capsys.readouterr().out
    assert "Use 6 consumers under pulsar.key_shared.consistent_hash" in said
    assert "rolling restart: " in said
    assert "<iframe" in after["compared"]._repr_html_()
