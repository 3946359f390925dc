"""Read the YAML of a run file as ``yaml.safe_load`` does, within limits and without duplicate keys.

The limits apply before values are built. The target of an alias counts each time, so that a few lines cannot expand to
millions of values.
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
"""The line, from 1, of each key and of each entry of a list, by its path."""

REMEDIES = (
    ("'\\t' that cannot start", "indent with spaces, not with tabs"),
    ("cannot start any token", "put the value into quotes"),
    (
        "mapping values are not allowed",
        "indent the line like its neighbours, or put a value with a colon into quotes",
    ),
    ("<block mapping start>", "indent the line like its neighbours"),
    ("expected <block end>", "indent the line like its neighbours"),
    ("expected ',' or", "close the bracket or the brace"),
    ("unexpected end of stream", "close the quotes"),
    ("could not find expected ':'", "write a colon after the key"),
    ("undefined alias", "put a value that begins with * into quotes"),
    ("determine a constructor", "write a plain value: tags are not read"),
    ("another document", "write one document, without the line ---"),
    ("unhashable key", "write a word as the key"),
)


class Document(NamedTuple):
    """The values of a run file and their lines."""

    values: Any
    lines: Lines


def read_yaml(path: Path) -> Document:
    """Read the values of a file. Raises ``ConfigError`` with file, line, reason and remedy."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise failures.describe_os_error(error, path, "read") from error
    if len(text) > MOST_BYTES:
        raise ConfigError(
            f"{path} is longer than {MOST_BYTES:,} bytes, so it is probably not a run file; check the name"
        )
    try:
        loader = _Loader(text.decode("utf-8"))
        root = loader.get_single_node()
        if root is None:
            return Document(None, {})
        return Document(loader.construct_document(root), dict(_number_lines(root, (), ())))
    except yaml.MarkedYAMLError as error:
        raise ConfigError(_describe_syntax_error(path, error)) from error
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count(b"\n") + 1
        raise ConfigError(f"{path}:{line}: not YAML: the character {chr(error.character)!r} is not allowed") from error
    except UnicodeDecodeError as error:
        line = text[: error.start].count(b"\n") + 1
        raise ConfigError(f"{path}:{line}: not YAML: byte {error.object[error.start]:#x} is not UTF-8") from error


def _describe_syntax_error(path: Path, error: yaml.MarkedYAMLError) -> str:
    """Describe a syntax error; an unclosed bracket or quote is reported at its beginning."""
    problem = str(error.problem)
    unclosed = "stream" in problem or problem.startswith("expected ',' or")
    mark = error.context_mark if unclosed and error.context_mark else error.problem_mark
    what = f"{error.context}, {problem}" if problem.startswith("but ") else problem
    remedy = next((f"; {remedy}" for sign, remedy in REMEDIES if sign in problem), "")
    return f"{path}:{mark.line + 1}: not YAML: {what} (column {mark.column + 1}){remedy}"


def _number_lines(
    node: yaml.Node, path: tuple[str | int, ...], within: tuple[int, ...]
) -> Iterator[tuple[tuple[str | int, ...], int]]:
    """Yield the ``Lines`` of a node; ``within`` are the nodes around it, because a value can contain itself."""
    if id(node) in within:
        return
    pairs: list[tuple[Any, yaml.Node, yaml.Node]] = []
    if isinstance(node, yaml.MappingNode):
        pairs = [(key.value, key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)]
    elif isinstance(node, yaml.SequenceNode):
        pairs = [(number, value, value) for number, value in enumerate(node.value)]
    for name, marked, value in pairs:
        yield (*path, name), marked.start_mark.line + 1
        yield from _number_lines(value, (*path, name), (*within, id(node)))


class _RefusedYaml(yaml.MarkedYAMLError):  # type: ignore[misc]  # yaml ships no types
    """The document exceeds a limit, repeats a key, or contains an impossible value."""


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._sizes: dict[int, int] = {}  # the number of values that a node expands to, by the node's identity
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node:
        mark = self.peek_event().start_mark
        self._depth += 1
        if self._depth > DEEPEST:
            raise _RefusedYaml(None, None, f"nested more than {DEEPEST} deep", mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if id(node) not in self._sizes:
            self._sizes[id(node)] = 1 + sum(self._sizes.get(id(part), 0) for part in _parts(node))
        if self._sizes[id(node)] > MOST_VALUES:
            raise _RefusedYaml(None, None, f"expands to more than {MOST_VALUES:,} values, aliases included", mark)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except ValueError as error:  # an impossible day, or an infinite number
            raise _RefusedYaml(None, None, f"{str(node.value)[:40]!r}: {error}", node.start_mark) from error

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise _RefusedYaml(None, None, f"key {key.value!r} appears twice", key.start_mark)
                seen.add(key.value)
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return mapping


def _parts(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []
