"""Tables of the plain text: numbers right, long lists cut and counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from subreplay.reports import words

LEAST = 24  # characters of a column of names
MOST_ROWS = 20  # of consumers and of scenarios; the page and the JSON have all
Cell = str | Text


def table(columns: Sequence[tuple[str, bool]], rows: Iterable[Sequence[Cell]]) -> Table:
    """A plain table; ``True`` marks a column of numbers."""
    cells = [*rows]
    plain = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim", padding=(0, 1))
    for at, (title, number) in enumerate(columns):
        least = None if at else readable([str(row[0]) for row in cells])
        plain.add_column(title, justify="right" if number else "left", no_wrap=number, overflow="fold", min_width=least)
    for row in cells:
        plain.add_row(*[Text(cell) if isinstance(cell, str) else cell for cell in row])
    return plain


def readable(texts: Iterable[str]) -> int:
    """The width that a column of these texts has at least, however narrow the table is."""
    return min(max(map(len, texts), default=0), LEAST)


def alarm(number: int) -> Text:
    """A count that should be zero."""
    return Text(words.count(number), style="yellow" if number else "")


def with_rest(cut: Table, total: int, shown: int = MOST_ROWS, where: str = " in report.json") -> Table:
    """The table, with what it leaves out counted below."""
    if total > shown:
        cut.caption = Text(f"and {words.count(total - shown)} more{where}")
        cut.caption_justify = "left"
    return cut
