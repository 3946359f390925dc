"""The pages of the documentation, cut into their blocks of code.

Comments directly above a block say what the tests do with it; readers do not see them:

``<!-- setup: subreplay demo -->``   a command that the page supposes (anywhere on the page)
``<!-- exits: 1 -->``                the exit code of the last command of a ``sh`` block; 0 where it is missing
``<!-- not run: why -->``            of a ``sh`` or ``python`` block that no test can run
``<!-- shows: "Rules" 9 -->``        which lines a ``text`` block shows of what the last command printed: from a line
                                     that begins so, as many lines, up to another line (``to "Load"``), or up to the
                                     next empty line (``paragraph``).
                                     Several parts are separated by commas; without the note, all lines are shown
``<!-- file: build/run.yaml -->``    the file that the reader saves the block as
``<!-- part: why -->``               of a ``yaml`` block that is no run file
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
SKIPPED: Final = "…"
"""The line that stands for lines of an output which a page does not show."""

_BLOCK: Final = re.compile(r"^((?:<!-- .*? -->\n)*)```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NOTE: Final = re.compile(r"<!-- ([a-z ]+): (.*?) -->")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, where the text begins on the page, and the notes above it."""

    language: str
    text: str
    start: int
    notes: Mapping[str, str]

    @property
    def commands(self) -> list[str]:
        """The calls of the program in a shell block, without the comments behind them."""
        lines = [line.split("  #")[0].strip() for line in self.text.replace("\\\n", " ").splitlines()]
        return [line for line in lines if line.startswith("subreplay ")]


def pages() -> list[Path]:
    """Every page that people read."""
    return [*(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")), *sorted(DOCS.rglob("*.md"))]


def name(page: Path) -> str:
    """A page's path from the root of the repository."""
    return page.relative_to(ROOT).as_posix()


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    for found in _BLOCK.finditer(text):
        yield Block(found[2], found[3], found.start(3), dict(_NOTE.findall(found[1])))


def setups(text: str) -> list[str]:
    """The commands that a page supposes."""
    return [command for key, command in _NOTE.findall(text) if key == "setup"]


def shown(printed: str, pieces: str | None) -> str:
    """What a page shows of an output; ``pieces`` as in a note ``shows``."""
    lines = [line.rstrip() for line in printed.strip("\n").splitlines()]
    if pieces is None:
        return "".join(f"{line}\n" for line in lines)
    chosen: list[str] = []
    end = 0
    for start, count, stop in re.findall(r'"(.+?)" (?:(\d+)|to "(.+?)"|paragraph)', pieces):
        first = _find(lines, start, end)
        if chosen:
            chosen += [SKIPPED] if any(lines[end:first]) else [""] if not lines[first - 1] else []
        end = first + int(count) if count else _find(lines, stop, first + 1) if stop else _blank(lines, first)
        chosen += "\n".join(lines[first:end]).rstrip().splitlines()
    return "".join(f"{line}\n" for line in chosen)


def _blank(lines: Sequence[str], after: int) -> int:
    return next((n for n, line in enumerate(lines) if n > after and not line), len(lines))


def _find(lines: Sequence[str], start: str, after: int) -> int:
    found = next((n for n, line in enumerate(lines) if n >= after and line.strip().startswith(start)), None)
    assert found is not None, f"no line begins with {start!r}:\n" + "\n".join(lines)
    return found
