"""The text of a run file as plain values: YAML as ``yaml.safe_load`` reads it, within limits, without duplicate keys.

The limits hold before anything is built. What an alias stands for counts each time, so that a few lines cannot stand
for millions of values.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from subreplay import failures
from subreplay.errors import ConfigError

MOST_BYTES = 1_000_000
MOST_VALUES = 100_000
DEEPEST = 50


Lines = Mapping[tuple[str | int, ...], int]
"""In which line, from 1, a key or an entry of a list stands, by its path."""

REMEDIES = (
    ("'\\t' that cannot start", "indent with spaces, not with tabs"),
    ("cannot start any token", "put the value into quotes"),
    (
        "mapping values are not allowed",
        "indent the line as its neighbours are, or put what has a colon into quotes",
    ),
    ("<block mapping start>", "indent the line as its neighbours are"),
    ("expected <block end>", "indent the line as its neighbours are"),
    ("expected ',' or", "close the bracket or the brace"),
    ("unexpected end of stream", "close the quotes"),
    ("could not find expected ':'", "write a colon behind the key"),
    ("undefined alias", "put a value that begins with * into quotes"),
    ("determine a constructor", "write a plain value: tags are not read"),
    ("another document", "write one document: leave out the line ---"),
    ("unhashable key", "write a word as the key"),
)


class Document(NamedTuple):
    """What a run file holds, and where."""

    values: Any
    lines: Lines


def read(path: Path) -> Document:
    """The values of a file. Raises ``ConfigError`` naming file, line, reason and remedy."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise failures.describe_os_error(error, path, "read") from error
    if len(text) > MOST_BYTES:
        raise ConfigError(f"{path}: longer than {MOST_BYTES:,} bytes; is this a run file?")
    try:
        loader = _Loader(text.decode("utf-8"))
        root = loader.get_single_node()
        if root is None:
            return Document(None, {})
        return Document(loader.construct_document(root), dict(_lines(root, (), ())))
    except yaml.MarkedYAMLError as error:
        raise ConfigError(_sentence(path, error)) from error
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count(b"\n") + 1
        raise ConfigError(f"{path}:{line}: not YAML: a character {chr(error.character)!r} is not allowed") from error
    except UnicodeDecodeError as error:
        line = text[: error.start].count(b"\n") + 1
        raise ConfigError(f"{path}:{line}: not YAML: byte {error.object[error.start]:#x} is no UTF-8") from error


def _sentence(path: Path, error: yaml.MarkedYAMLError) -> str:
    """An error of the syntax; what is never closed is blamed where it begins."""
    problem = str(error.problem)
    unclosed = "stream" in problem or problem.startswith("expected ',' or")
    mark = error.context_mark if unclosed and error.context_mark else error.problem_mark
    what = f"{error.context}, {problem}" if problem.startswith("but ") else problem
    remedy = next((f"; {remedy}" for sign, remedy in REMEDIES if sign in problem), "")
    return f"{path}:{mark.line + 1}: not YAML: {what} (column {mark.column + 1}){remedy}"


def _lines(
    node: yaml.Node, path: tuple[str | int, ...], within: tuple[int, ...]
) -> Iterator[tuple[tuple[str | int, ...], int]]:
    """``Lines`` of what a node holds; ``within`` are the nodes around it, as a value may hold itself."""
    if id(node) in within:
        return
    pairs: list[tuple[Any, yaml.Node, yaml.Node]] = []
    if isinstance(node, yaml.MappingNode):
        pairs = [(key.value, key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)]
    elif isinstance(node, yaml.SequenceNode):
        pairs = [(number, value, value) for number, value in enumerate(node.value)]
    for name, marked, value in pairs:
        yield (*path, name), marked.start_mark.line + 1
        yield from _lines(value, (*path, name), (*within, id(node)))


class _Refused(yaml.MarkedYAMLError):  # type: ignore[misc]  # yaml ships no types
    """A limit is passed, a key is there twice, or there is no such value."""


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._sizes: dict[int, int] = {}  # values in what a node stands for, by the node's identity
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node:
        mark = self.peek_event().start_mark
        self._depth += 1
        if self._depth > DEEPEST:
            raise _Refused(None, None, f"nested more than {DEEPEST} deep", mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if id(node) not in self._sizes:
            self._sizes[id(node)] = 1 + sum(self._sizes.get(id(part), 0) for part in _parts(node))
        if self._sizes[id(node)] > MOST_VALUES:
            raise _Refused(None, None, f"stands for more than {MOST_VALUES:,} values, aliases included", mark)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except ValueError as error:  # a day that never was, a number without end
            raise _Refused(None, None, f"{str(node.value)[:40]!r}: {error}", node.start_mark) from error

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise _Refused(None, None, f"key {key.value!r} is there twice", key.start_mark)
                seen.add(key.value)
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return mapping


def _parts(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []
