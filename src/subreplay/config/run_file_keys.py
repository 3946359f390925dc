"""The keys of a run file as ``default.yaml`` explains them. The reference page and the JSON Schema are made of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from importlib.resources import files
from typing import Final, NamedTuple

_KEY: Final = re.compile(r"^( *)([A-Za-z_.]+):(?: (.*))?$")


class RunFileKey(NamedTuple):
    """A key: its path, its default as written (None: a section), and the lines of the comment above it."""

    path: tuple[str, ...]
    default: str | None
    remarks: tuple[str, ...]


class KeyExample(NamedTuple):
    """Lines of YAML that stand there as a comment: entries of the list at the key before them."""

    lines: tuple[str, ...]


def read_default_file() -> str:
    """Return the file of every key with its default."""
    return (files("subreplay") / "default.yaml").read_text(encoding="utf-8")


def read_keys(lines: Iterable[str]) -> Iterator[RunFileKey | KeyExample]:
    """Read the keys of a commented run file, in order."""
    remarks: list[str] = []
    path: list[tuple[int, str]] = []  # with the indentation of each
    left = iter(lines)
    for line in left:
        if not line.strip():
            remarks = []
        elif line.lstrip().startswith("# ") or line.strip() == "#":
            remarks.append(line.strip()[2:])
        elif line.startswith("#"):
            yield KeyExample((line[1:], *_read_commented(left)))
            remarks = []
        elif found := _KEY.match(line):
            while path and path[-1][0] >= len(found[1]):
                path.pop()
            path.append((len(found[1]), found[2]))
            yield RunFileKey(tuple(name for _, name in path), found[3], tuple(remarks))
            remarks = []


def read_entry_keys(example: KeyExample) -> Iterator[tuple[int, RunFileKey]]:
    """Read the keys of each entry of an example, with the number of the entry."""
    entries: list[list[str]] = []
    for line in example.lines:
        if line.startswith("- "):
            entries.append([])
        entries[-1].append(line.replace("- ", "  ", 1) if line.lstrip().startswith("- ") else line)
    for number, entry in enumerate(entries):
        for key in read_keys(line[2:] for line in entry):
            if isinstance(key, RunFileKey):
                yield number, key


def _read_commented(lines: Iterator[str]) -> Iterator[str]:
    """Read the rest of a block that is commented out."""
    for line in lines:
        if not line.startswith("#"):
            return
        yield line[1:]
