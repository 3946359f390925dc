"""``docs/explanation/semantics.md`` holds every row that code and tests name, and every row of it has a test."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ID = re.compile(r"\b[DKLP](?:-[A-Z]+)+-\d+\b")
ROW = re.compile(r"^\| (\S+) \| (.+) \| .+ \| `(tests/\S+?)(?:::(\w+))?` \|$")
ROWS = [
    m.groups() for line in (ROOT / "docs/explanation/semantics.md").read_text().splitlines() if (m := ROW.match(line))
]
SOURCES = [path for part in ("src", "tests", "conf", "README.md") for path in sorted((ROOT / part).rglob("*"))]


def marked(tree):
    """The rows that a test module's marks name, by function; by None where the whole module is marked."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            name, marks = node.name, node.decorator_list
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            name, marks = None, [node.value]
        else:
            continue
        calls = [call for mark in marks for call in ast.walk(mark) if isinstance(call, ast.Call)]
        rows = [c.args[0].value for c in calls if ast.unparse(c.func) == "pytest.mark.row"]
        found.setdefault(name, set()).update(rows)
    return found


def test_rows_have_ids_of_their_own_and_say_something():
    ids = [row for row, *_ in ROWS]
    assert len(ids) == len(set(ids)) > 50
    assert all(len(text) > 40 for _, text, *_ in ROWS)


def test_every_row_that_anything_names_stands_there():
    named = {
        found
        for path in SOURCES
        if path.suffix in (".py", ".yaml", ".md", ".j2")
        for found in ID.findall(path.read_text(encoding="utf-8"))
    }
    assert named - {row for row, *_ in ROWS} == set()


@pytest.mark.parametrize(("row", "path", "name"), [(row, path, name) for row, _, path, name in ROWS])
def test_every_row_is_proved_by_the_test_it_names(row, path, name):
    marks = marked(ast.parse((ROOT / path).read_text(encoding="utf-8")))
    assert row in marks.get(name, set()) | marks.get(None, set())
