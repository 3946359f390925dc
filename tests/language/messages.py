"""Collect every string of the package that a user may see: ``make messages`` prints them with their place.

A string counts as visible when it contains two words in a row and is not a docstring. That rule finds errors, progress
lines, findings, headings and help without a list to maintain. It also finds a few patterns and upstream
log lines, which is cheaper than missing a sentence.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

PACKAGE: Final = Path(__file__).parents[2] / "src" / "subreplay"
TWO_WORDS: Final = re.compile(r"[A-Za-z]{2,}[,;:.]? [A-Za-z{]")
TEMPLATE_MARKUP: Final = re.compile(r"{%.*?%}|{#.*?#}|<[^>]*>", re.DOTALL)
SCRIPT_STRING: Final = re.compile(r"""(["'`])((?:(?!\1)[^\\\n]|\\.)*)\1""")


class Message(NamedTuple):
    """A visible string: the file in the package, the line on which it begins, its text with ``{expressions}``."""

    file: str
    line: int
    text: str


def collect_messages(package: Path = PACKAGE) -> list[Message]:
    """Return the visible strings of every module, template and script below a folder, in the order of their places."""
    messages: list[Message] = []
    for path in sorted(package.rglob("*")):
        name = path.relative_to(package).as_posix()
        if path.suffix == ".py":
            found = _read_module(path.read_text(encoding="utf-8"))
        elif path.name.endswith(".html.j2"):
            found = _read_template(path.read_text(encoding="utf-8"))
        elif path.suffix == ".js":
            found = _read_script(path.read_text(encoding="utf-8"))
        else:
            continue
        messages += [Message(name, line, text) for line, text in found if TWO_WORDS.search(text)]
    return messages


def _read_module(source: str) -> Iterator[tuple[int, str]]:
    tree = ast.parse(source)
    docstrings = {
        id(statement.value)
        for node in ast.walk(tree)
        if isinstance(body := getattr(node, "body", None), list)
        for statement in body
        if isinstance(statement, ast.Expr)
    }
    yield from _read_strings(tree, docstrings)


def _read_strings(node: ast.AST, docstrings: set[int]) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.JoinedStr):
        parts = (
            part.value if isinstance(part, ast.Constant) else f"{{{ast.unparse(part.value)}}}"  # type: ignore[attr-defined]
            for part in node.values
        )
        yield node.lineno, "".join(map(str, parts))
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
        yield node.lineno, node.value
    children = node.values if isinstance(node, ast.JoinedStr) else ast.iter_child_nodes(node)
    for child in children:
        if not (isinstance(node, ast.JoinedStr) and isinstance(child, ast.Constant)):
            yield from _read_strings(child, docstrings)


def _read_template(source: str) -> Iterator[tuple[int, str]]:
    visible = TEMPLATE_MARKUP.sub(lambda markup: "\n" * markup.group().count("\n") + "\0", source)
    line = 1
    for text in re.split("(\0)", visible):
        stripped = " ".join(text.split())
        if stripped and text != "\0":
            yield line + len(text[: len(text) - len(text.lstrip())].splitlines()[1:]), stripped
        line += text.count("\n")


def _read_script(source: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(source.splitlines(), 1):
        if not line.lstrip().startswith(("//", "*", "/*")):
            yield from ((number, match.group(2)) for match in SCRIPT_STRING.finditer(line))


def format_messages(messages: list[Message], *, lines: bool = True) -> str:
    """Return one line for each message; without line numbers an unrelated edit does not change the list."""
    places = (f"{message.file}:{message.line}" if lines else message.file for message in messages)
    return "".join(
        f"{place}: {' '.join(message.text.split())}\n" for place, message in zip(places, messages, strict=True)
    )
