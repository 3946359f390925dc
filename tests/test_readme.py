"""What the README says is there: commands, options, targets, files, names, run files."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from subreplay.audit.rules.registry import Code
from subreplay.cli.command import EXIT_CODES
from subreplay.cli.interruption import SIGNALS
from subreplay.cli.main import app
from subreplay.config import run as config
from subreplay.errors import ConfigError, EnvironmentFailed, InputError
from subreplay.hashing.profiles import KEYLESS
from subreplay.rows.model.tables import INPUTS
from subreplay.semantics.policies import REGISTRY

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)
WRITTEN = ("build/", "dist/")  # by runs


def commands(program: str) -> list[str]:
    """Calls of a program in shell blocks and in the text, without the comment that follows them."""
    shell = "\n".join(text for kind, text in BLOCKS if kind == "sh").replace("\\\n", " ")
    lines = [*shell.splitlines(), *re.findall(r"`([^`\n]+)`", README)]
    return sorted({line.split("  #")[0].strip() for line in lines if re.match(rf"(\.venv/bin/)?{program}\b", line)})


def of_command_line(name: str) -> Any:
    return typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]


@pytest.mark.parametrize("command", [c for c in commands("subreplay") if " " in c])
def test_a_command_exists_with_its_options_and_arguments(command):
    _, name, *words = command.split()
    called = of_command_line(name)
    while words and hasattr(called, "commands"):  # a command of commands
        called = called.commands[words.pop(0)]
    parameters = called.params
    options = {option: p for p in parameters for option in p.opts}
    given = [word for word in words if word.startswith("--")]
    assert set(given) <= set(options)
    if words:  # a whole call, not only the name of a command
        values = [words[words.index(option) + 1] for option in given]
        arguments = [word for word in words if word not in given and word not in values]
        taken = [p for p in parameters if p.param_type_name == "argument"]
        assert len(arguments) >= len(taken) if any(p.nargs < 0 for p in taken) else len(arguments) == len(taken)
        assert {p.opts[0] for p in parameters if p.required and p.param_type_name == "option"} <= set(given)


def test_every_command_is_there():
    named = {command.split()[1] for command in commands("subreplay") if " " in command}
    assert named == set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("command", commands("make"))
def test_a_make_target_exists(command):
    targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert re.match(r"make ?([a-z-]*)", command)[1] in ["", *targets]


def test_the_first_commands_are_make_run_and_make_test():
    assert [line.split("  #")[0].strip() for line in BLOCKS[0][1].splitlines()] == ["make run", "make test"]


def names_of_files() -> list[str]:
    quoted = re.findall(r"`([^`\n]+)`|\]\(([^)\n]+)\)", README)
    words = {word for pair in quoted for part in pair for word in part.split()}
    words |= {word for kind, text in BLOCKS if kind == "sh" for word in text.split()}
    return sorted(
        w for w in words if "/" in w and re.fullmatch(r"[\w./-]+", w) and not w.startswith((*WRITTEN, ".venv"))
    )


@pytest.mark.parametrize("name", names_of_files())
def test_a_named_file_exists(name):
    assert any((folder / name).exists() for folder in (ROOT, ROOT / "src" / "subreplay"))


@pytest.mark.parametrize("text", [text for kind, text in BLOCKS if kind == "yaml"])
def test_a_run_file_is_legal(text):
    config.parse(yaml.safe_load(text), "README.md")


@pytest.mark.parametrize("text", [text for kind, text in BLOCKS if kind == "python"])
def test_a_piece_of_code_compiles(text):
    compile(text, "README.md", "exec")


def section(title: str) -> str:
    return README.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_every_policy_and_profile_is_in_the_table():
    rows = re.findall(r"^\| `((?:pulsar|kafka)\.[a-z_.]+)` ", section("Policies and profiles"), re.MULTILINE)
    assert sorted(rows) == sorted(REGISTRY)
    assert all(f"`{profile}`" in section("Policies and profiles") for profile in KEYLESS)


def test_the_columns_that_tables_require_are_listed():
    for name, schema in INPUTS.items():
        (row,) = re.findall(rf"^\| `{name}` \|.*$", section("Tables"), re.MULTILINE)
        required, more = row.split(" | ")[2:4]
        assert re.findall(r"`(\w+)`", required) == [field.name for field in schema if not field.nullable]
        assert set(re.findall(r"`(\w+)`", more)) <= {field.name for field in schema if field.nullable}


def test_every_exit_code_is_in_the_table():
    codes = re.findall(r"^\| ([\d, ]+) \|", section("Verdict and exit code"), re.MULTILINE)
    signals = {128 + number for number in SIGNALS}
    errors = {ConfigError.exit_code, InputError.exit_code, EnvironmentFailed.exit_code}
    assert [int(code) for part in codes for code in part.split(", ")] == sorted(
        {*EXIT_CODES.values(), *errors, *signals}
    )


def test_rules_are_called_by_their_names():
    named = set(re.findall(r"`([A-Z]+_[A-Z_]+|LOST|UNSEEN|UNACKED|REDELIVERED|UNROUTABLE)`", README))
    assert named <= {code.name for code in Code} | {"POLICIES", "ADAPTERS"}


def test_nothing_names_a_machine_or_a_registry():
    assert not re.findall(r"https?://|/root/|/home/|/tmp/", README)
