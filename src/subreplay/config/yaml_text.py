"""The text of a run file as plain values: YAML as ``yaml.safe_load`` reads it, within limits, without duplicate keys.

The limits hold before anything is built. What an alias stands for counts each time, so that a few lines cannot stand
for millions of values.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from subreplay import failures
from subreplay.errors import ConfigError

MOST_BYTES = 1_000_000
MOST_VALUES = 100_000
DEEPEST = 50
_SECRET = re.compile("secret|password", re.IGNORECASE)


def read(path: Path) -> Any:
    """The values of a file. Raises ``ConfigError`` naming file, line and reason."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise failures.of_system(error, path, "read") from error
    if len(text) > MOST_BYTES:
        raise ConfigError(f"{path}: longer than {MOST_BYTES:,} bytes; is this a run file?")
    try:
        return yaml.load(text.decode("utf-8"), _Loader)  # noqa: S506  a SafeLoader
    except (yaml.YAMLError, ValueError) as error:  # a ValueError: bytes that are no UTF-8, a date that never was
        for mark in (getattr(error, "context_mark", None), getattr(error, "problem_mark", None)):
            if mark is not None and _SECRET.search(mark.get_snippet() or ""):
                mark.buffer = None  # the line number tells enough
        raise ConfigError(f"{path}: not YAML: {error}") from error


class _TooMuch(yaml.MarkedYAMLError):  # type: ignore[misc]  # yaml ships no types
    """A limit is passed, or a key is there twice."""


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._sizes: dict[int, int] = {}  # values in what a node stands for, by the node's identity
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node:
        mark = self.peek_event().start_mark
        self._depth += 1
        if self._depth > DEEPEST:
            raise _TooMuch(None, None, f"nested more than {DEEPEST} deep", mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if id(node) not in self._sizes:
            self._sizes[id(node)] = 1 + sum(self._sizes.get(id(part), 0) for part in _parts(node))
        if self._sizes[id(node)] > MOST_VALUES:
            raise _TooMuch(None, None, f"stands for more than {MOST_VALUES:,} values, aliases included", mark)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise _TooMuch(None, None, f"key {key.value!r} is there twice", key.start_mark)
                seen.add(key.value)
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return mapping


def _parts(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []
