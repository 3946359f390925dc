"""Lay out plain text: paragraphs wrap at words, and the columns of a table fit the width.

Widths are cells of a terminal: a character of a wide script takes two.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

from rich.cells import cell_len
from rich.text import Text

from subreplay.reports.formatting import format_count

MAX_TABLE_ROWS: Final = 20  # rows of the full text; the page and the JSON contain all
ALARM: Final = "bold magenta"
NAME_WIDTH: Final = 24  # a column of names keeps this width as long as others can be left out
_LEAST_NAME: Final = 8
_WORD_WIDTH: Final = 32  # a column of sentences keeps its longest word whole up to this width
_GAP: Final = "  "
_UNITS: Final = "(?:ns|µs|ms|s|min|h|d|B|kB|MB|GB|TB)(?![^\\W_])"
_WORD: Final = re.compile(rf"\S*\d {_UNITS}(?: \d+ {_UNITS})*\S*|\S+")  # a figure stays with its unit

Cell = str | Text
ColumnKind = Literal["name", "number", "text"]


class Column(NamedTuple):
    """A column of a table. The one with the highest ``rank`` is left out first; one with rank 0 never is."""

    title: str
    kind: ColumnKind = "number"  # a name is shortened, and a text wraps
    rank: int = 0


class TextPage:
    """The lines of a text of one width, and the titles of the columns for which it is too narrow."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.lines: list[Text] = []
        self.dropped: dict[str, None] = {}

    def add(self, text: Cell, *, indent: int = 0, hang: int = 0, most: int | None = None) -> None:
        """Add a paragraph; ``hang`` more columns indent its lines after the first. It has at most ``most`` lines."""
        self.lines += wrap_text(text, self.width, indent=indent, hang=hang, most=most)

    def add_heading(self, title: str) -> None:
        """Add a title, and an empty line above it unless it is the first line."""
        if self.lines:
            self.lines.append(Text())
        self.add(Text(title, style="bold"))

    def add_pairs(self, pairs: Iterable[tuple[str, Cell]], *, most: int | None = None) -> None:
        """Add paragraphs of at most ``most`` lines that begin with a name, in a column of names."""
        shown = [(name, value) for name, value in pairs if str(value)]
        hang = min(max((cell_len(name) for name, _ in shown), default=0), max(NAME_WIDTH, self.width // 3)) + len(_GAP)
        for name, value in shown:
            padded = shorten_middle(name, hang - len(_GAP)).ljust(hang)
            self.add(Text.assemble(padded, value), indent=2, hang=hang, most=most)

    def add_table(
        self,
        columns: Sequence[Column],
        rows: Iterable[Sequence[Cell]],
        *,
        total: int | None = None,
        where: str = " in report.json",
        indent: int = 2,
        most: int | None = None,
    ) -> None:
        """Add a table of at most ``most`` lines.

        ``total`` is the number of all rows. A last line counts the missing ones and says ``where`` they are.
        """
        cells = [[Text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
        widths, dropped = _fit_columns(columns, cells, self.width - indent)
        self.dropped |= dict.fromkeys(dropped)
        head = _format_row([Text(column.title, style="bold") for column in columns], columns, widths, head=True)
        body = [_format_row(row, columns, widths) for row in cells]
        total = len(body) if total is None else total
        if most is not None and (total > len(body) or len(head) + sum(map(len, body)) > most):
            space = most - len(head) - 1
            body = [lines for number, lines in enumerate(body) if sum(map(len, body[: number + 1])) <= space]
        for line in (*head, *(line for lines in body for line in lines)):
            self.lines.append(_strip(Text(" " * indent) + line))
        if total > len(body):
            self.add(f"and {format_count(total - len(body))} more{where}", indent=indent, most=1)


def wrap_text(text: Cell, width: int, *, indent: int = 0, hang: int = 0, most: int | None = None) -> list[Text]:
    """Wrap a text between words; only a word that is longer than a line is broken.

    All lines are indented, and those after the first by ``hang`` more columns. If there are more than ``most`` lines,
    the last one ends with an ellipsis.

    >>> [line.plain for line in wrap_text("waits for 8 min 12 s", 14, hang=2)]
    ['waits for', '  8 min 12 s']
    """
    whole = Text(text) if isinstance(text, str) else text
    margins = [" " * indent, " " * (indent + hang)]
    lines: list[Text] = []
    begin = end = 0

    def space() -> int:
        return width - len(margins[bool(lines)])

    def close(begin: int, end: int) -> None:
        lines.append(_strip(Text(margins[bool(lines)]) + whole[begin:end]))

    for word in _WORD.finditer(whole.plain):
        if cell_len(whole.plain[begin : word.end()]) > space():
            if end > begin:
                close(begin, end)
            begin = word.start()
            while cell_len(whole.plain[begin : word.end()]) > space():
                cut = begin + max(1, len(_take_cells(whole.plain[begin : word.end()], space())))
                close(begin, cut)
                begin = cut
        end = word.end()
    close(begin, end)
    if most is not None and len(lines) > most:
        lines = [*lines[: most - 1], _end_with_ellipsis(lines[most - 1], width)] if most > 0 else []
    return lines


def shorten_middle(name: str, width: int) -> str:
    """Shorten a name to a width by leaving out its middle.

    >>> shorten_middle("orders-worker-17", 10), shorten_middle("c1", 10)
    ('order…r-17', 'c1')
    """
    if cell_len(name) <= width:
        return name
    head = _take_cells(name, width // 2)
    return head + "…" + _take_cells(name[::-1], width - cell_len(head) - 1)[::-1]


def format_alarm(number: int) -> Text:
    """Format a count that should be zero; other values stand out."""
    return Text(format_count(number), style=ALARM if number else "")


def _take_cells(text: str, width: int) -> str:
    """Return the longest beginning of a text that is not wider than ``width``."""
    taken = 0
    for position, character in enumerate(text):
        taken += cell_len(character)
        if taken > width:
            return text[:position]
    return text


def _end_with_ellipsis(line: Text, width: int) -> Text:
    """Append an ellipsis, and remove the last words if there is no space for it."""
    while cell_len(line.plain) + 2 > width:
        words = line.plain.rstrip().rfind(" ")
        line = line[:words] if line.plain[:words].strip() else line[: len(_take_cells(line.plain, width - 2))]
    return _strip(line) + Text(" …")


def _strip(line: Text) -> Text:
    line.rstrip()
    return line


def _fit_columns(
    columns: Sequence[Column], rows: Sequence[Sequence[Text]], space: int
) -> tuple[dict[int, int], list[str]]:
    """Return the width of each column that fits, and the titles of the others."""
    natural = [
        max([_measure_word(column.title), *(cell_len(row[at].plain) for row in rows)])
        for at, column in enumerate(columns)
    ]
    widths = {at: natural[at] for at in range(len(columns))}
    for at, column in enumerate(columns):
        if column.kind == "name":
            widths[at] = min(natural[at], max(NAME_WIDTH, _measure_word(column.title)))
        elif column.kind == "text":
            longest = max((_measure_word(row[at].plain) for row in rows), default=0)
            widths[at] = min(natural[at], max(_measure_word(column.title), min(longest, _WORD_WIDTH)))

    def find_spare() -> int:
        return space - sum(widths.values()) - len(_GAP) * (len(widths) - 1)

    dropped = []
    while find_spare() < 0 and (droppable := [at for at in widths if columns[at].rank]):
        least = max(droppable, key=lambda at: columns[at].rank)
        del widths[least]
        dropped.append(columns[least].title)
    for kind in ("text", "name"):
        for at in widths:
            if columns[at].kind == kind and find_spare() < 0:
                widths[at] = max(_LEAST_NAME, widths[at] + find_spare())
    for at in widths:
        if columns[at].kind == "name":
            widths[at] += max(0, min(natural[at] - widths[at], find_spare()))
    titles = {at: max(0, cell_len(columns[at].title) - widths[at]) for at in widths}
    if sum(titles.values()) <= find_spare():  # then the titles take one line
        widths = {at: width + titles[at] for at, width in widths.items()}
    for at in widths:
        if columns[at].kind == "text":
            widths[at] += max(0, min(natural[at] - widths[at], find_spare()))
    return widths, dropped


def _measure_word(text: str) -> int:
    """Return the width of the longest word."""
    return max((cell_len(word[0]) for word in _WORD.finditer(text)), default=0)


def _format_row(
    row: Sequence[Text], columns: Sequence[Column], widths: dict[int, int], *, head: bool = False
) -> list[Text]:
    """Format a row as one line, or as more if a text or a title wraps. Titles stand at the bottom of their lines."""
    cells = []
    for at, width in widths.items():
        if columns[at].kind == "name" and not head:
            cells.append([Text(shorten_middle(row[at].plain, width), style=row[at].style, spans=row[at].spans)])
        else:
            cells.append(wrap_text(row[at], width) if head or columns[at].kind == "text" else [row[at]])
    height = max(map(len, cells))
    lines = [Text() for _ in range(height)]
    for (at, width), parts in zip(widths.items(), cells, strict=True):
        missing = [Text()] * (height - len(parts))
        for line, part in zip(lines, [*missing, *parts] if head else [*parts, *missing], strict=True):
            padding = " " * (width - cell_len(part.plain))
            gap = _GAP if at != next(iter(widths)) else ""
            line.append_text(
                Text.assemble(gap, *((padding, part) if columns[at].kind == "number" else (part, padding)))
            )
    return lines
