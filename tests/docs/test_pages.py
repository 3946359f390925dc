"""What the pages name is there: commands, options, targets, files, rules, run files. The README stays short."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from subreplay.audit.rules.registry import Code
from subreplay.cli.main import app
from subreplay.config import run as config
from tests.docs.pages import DOCS, ROOT, blocks, name, pages

TEXTS = {page: page.read_text(encoding="utf-8") for page in pages()}
WRITTEN = ("build/", "dist/", ".venv")  # by runs
MOST_BYTES = 10_000  # of the README
WORDS_A_MINUTE = 250
REFERENCE = (
    "reference",
    "incidents",
    "semantics.md",
    "predictions.md",
)  # long tables, which nobody reads from end to end
TARGETS = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def commands(page: Path) -> list[str]:
    """Calls of the program in shell blocks and in the text of a page."""
    in_blocks = [command for block in blocks(TEXTS[page]) if block.language == "sh" for command in block.commands]
    quoted = [quote for quote in re.findall(r"`(subreplay [^`\n]+)`", TEXTS[page]) if "…" not in quote]
    return sorted({*in_blocks, *quoted})


EVERY_COMMAND = [(page, command) for page in TEXTS for command in commands(page)]


@pytest.mark.parametrize(
    ("page", "command"), EVERY_COMMAND, ids=lambda each: each if isinstance(each, str) else name(each)
)
def test_a_command_on_a_page_exists_with_its_options(page: Path, command: str) -> None:
    words = shlex.split(command)[1:]
    called: Any = typer.main.get_command(app)
    while words and hasattr(called, "commands") and words[0] in called.commands:
        called = called.commands[words.pop(0)]
    assert not words or words[0].startswith("--") or not hasattr(called, "commands"), f"no such command: {command}"
    options = {option for parameter in called.params for option in parameter.opts} | {"--help", "--install-completion"}
    assert {word for word in words if word.startswith("--")} <= options


def test_every_command_is_on_a_page() -> None:
    named = {command.split()[1] for _, command in EVERY_COMMAND}
    assert set(typer.main.get_command(app).commands) <= named  # type: ignore[attr-defined]


@pytest.mark.parametrize("page", TEXTS, ids=name)
def test_a_make_target_on_a_page_exists(page: Path) -> None:
    in_blocks = "\n".join(block.text for block in blocks(TEXTS[page]) if block.language == "sh")
    named = re.findall(r"^make ([a-z-]+)", in_blocks, re.MULTILINE) + re.findall(r"`make ([a-z-]+)", TEXTS[page])
    assert set(named) <= set(TARGETS)


@pytest.mark.parametrize("page", TEXTS, ids=name)
def test_a_file_that_a_page_names_exists(page: Path) -> None:
    text = re.sub(r"```.*?^```|^`[^`]+`, new:$", "", TEXTS[page], flags=re.DOTALL | re.MULTILINE)
    named = {word for quote in re.findall(r"`([^`\n]+)`", text) for word in quote.split()}
    files = {w for w in named if re.fullmatch(r"[\w./-]+/[\w.-]+\.(py|yaml|yml|md|toml|txt|gz)", w)}
    files = {file for file in files if not file.startswith(WRITTEN)}
    places = (ROOT, ROOT / "src" / "subreplay")
    assert {file for file in files if not any((place / file).exists() for place in places)} == set()


@pytest.mark.parametrize("page", TEXTS, ids=name)
def test_a_run_file_on_a_page_is_legal(page: Path) -> None:
    for block in blocks(TEXTS[page]):
        if block.language == "yaml" and "part" not in block.notes:
            config.parse(yaml.safe_load(block.text), name(page))


@pytest.mark.parametrize("page", TEXTS, ids=name)
def test_code_on_a_page_compiles(page: Path) -> None:
    for block in blocks(TEXTS[page]):
        if block.language == "python":
            compile(block.text, name(page), "exec")


@pytest.mark.parametrize("page", TEXTS, ids=name)
def test_rules_on_a_page_are_called_by_their_names(page: Path) -> None:
    named = set(re.findall(r"`([A-Z]+_[A-Z_]+|LOST|UNSEEN|UNACKED|REDELIVERED|UNROUTABLE|STUCK)`", TEXTS[page]))
    others = {"POLICIES", "ADAPTERS", "NON_KEY", "MESSAGES", "SCHEMA_VERSION", "BASED_ON", "PROFILE_OF"}
    assert {each for each in named if not re.match(r"SUBREPLAY|SPARK|HADOOP|REAL_|ORIGIN_|KAFKA|OTEL", each)} <= {
        code.name for code in Code
    } | others


@pytest.mark.parametrize("page", TEXTS, ids=name)
def test_a_page_is_read_in_five_minutes(page: Path) -> None:
    if not any(part in REFERENCE for part in page.parts):
        prose = re.sub(r"```.*?^```|^\|.*$", "", TEXTS[page], flags=re.DOTALL | re.MULTILINE)
        assert len(prose.split()) <= 5 * WORDS_A_MINUTE


@pytest.mark.parametrize("page", [page for page in TEXTS if page.is_relative_to(DOCS)], ids=name)
def test_a_page_begins_with_what_its_reader_can_do_afterwards(page: Path) -> None:
    assert "After reading this page" in TEXTS[page].split("\n## ")[0]


def test_the_readme_has_at_most_ten_kilobytes() -> None:
    assert (ROOT / "README.md").stat().st_size <= MOST_BYTES


def test_the_readme_of_the_package_has_absolute_addresses_and_no_notes() -> None:
    tomllib = pytest.importorskip("tomllib")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    text = TEXTS[ROOT / "README.md"]
    for step in settings["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(step["pattern"], step["replacement"], text)
    assert "<!--" not in text
    assert re.findall(r"\]\((?!https://)[^)]+\)", text) == []
    assert "subreplay/main/.github/incident.png)" in text


def test_the_readme_begins_with_make_run_and_make_test_for_a_clone() -> None:
    first = TEXTS[ROOT / "README.md"][:2_500]
    assert re.search(r"^make run\b.*\nmake test\b", first, re.MULTILINE)


@pytest.mark.parametrize("page", TEXTS, ids=name)
def test_no_page_names_a_machine(page: Path) -> None:
    assert not re.findall(r"/root/|/home/|/tmp/|/work/", TEXTS[page])


def test_every_example_of_a_run_file_is_run_or_named_on_a_page() -> None:
    named = {found for text in TEXTS.values() for found in re.findall(r"examples/(\w+)\.yaml", text)}
    assert named == {path.stem for path in (ROOT / "conf/examples").glob("*.yaml")}
