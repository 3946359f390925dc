"""The recipes for continuous integration: a parser reads them, and their calls of the program are right."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer
import yaml

from subreplay.cli.main import app
from tests.docs.pages import DOCS, blocks

PAGES = {
    name: (DOCS / "guides" / f"{name}.md").read_text(encoding="utf-8")
    for name in ("continuous-integration", "prometheus")
}
RECIPES = {
    block.notes["part"]: yaml.safe_load(block.text)
    for page in PAGES.values()
    for block in blocks(page)
    if block.language == "yaml"
}


def lines_of(value: Any) -> Iterator[str]:
    """Every text of a recipe."""
    if isinstance(value, dict):
        yield from (line for part in value.values() for line in lines_of(part))
    elif isinstance(value, list):
        yield from (line for part in value for line in lines_of(part))
    elif isinstance(value, str):
        yield value


@pytest.mark.parametrize("recipe", ["a workflow", "a pipeline"])
def test_a_recipe_calls_the_program_with_options_that_exist(recipe: str) -> None:
    (command,) = [line for line in lines_of(RECIPES[recipe]) if line.startswith("subreplay ")]
    _, name, *words = shlex.split(command)
    called: Any = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    parsed = called.make_context(name, [word.replace("$(date -u +%F)", "2026-11-22") for word in words]).params
    assert (parsed["fail_on"], parsed["junit"]) == ("new", "build/junit.xml")
    assert "build/junit.xml" in [*lines_of(RECIPES[recipe])]


def test_the_workflow_keeps_tables_and_report_also_when_the_audit_fails() -> None:
    workflow = RECIPES["a workflow"]
    assert workflow[True]["schedule"]  # YAML 1.1 reads the key `on` as true
    (job,) = workflow["jobs"].values()
    audit = next(number for number, step in enumerate(job["steps"]) if "subreplay audit" in step.get("run", ""))
    assert [step.get("if") for step in job["steps"][audit + 1 :]] == ["always()"] * 3
    paths = [step["with"]["path"] for step in job["steps"] if "cache" in step.get("uses", "")]
    assert paths == ["build/out", "build/out"]
    assert all(re.fullmatch(r"[\w-]+(/[\w-]+)+@v\d+", step["uses"]) for step in job["steps"] if "uses" in step)


def test_the_pipeline_keeps_tables_and_report_also_when_the_audit_fails() -> None:
    (job,) = RECIPES["a pipeline"].values()
    assert job["cache"] == {"key": "audit", "paths": ["build/out"], "when": "always"}
    assert job["artifacts"]["when"] == "always"
    assert job["artifacts"]["reports"]["junit"] == "build/junit.xml"
    assert job["allow_failure"] == {"exit_codes": [3]}


def test_rules_of_prometheus_name_gauges_that_exist() -> None:
    from subreplay.reports.open_metrics import GAUGES

    expressions = [rule["expr"] for group in RECIPES["rules of Prometheus"]["groups"] for rule in group["rules"]]
    named = {name for each in expressions for name in re.findall(r"subreplay_(\w+)", each)}
    assert named
    assert named <= {*GAUGES}
