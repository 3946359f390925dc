"""Tables of the plain text: numbers right, long lists cut and counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from subreplay.reports.formatting import format_count

MIN_NAME_WIDTH = 24  # characters of a column of names
MAX_TABLE_ROWS = 20  # of consumers and of scenarios; the page and the JSON have all
Cell = str | Text


def build_table(columns: Sequence[tuple[str, bool]], rows: Iterable[Sequence[Cell]]) -> Table:
    """A plain table; ``True`` marks a column of numbers."""
    cells = [*rows]
    plain = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim", padding=(0, 1))
    for at, (title, number) in enumerate(columns):
        least = None if at else find_min_width([str(row[0]) for row in cells])
        plain.add_column(title, justify="right" if number else "left", no_wrap=number, overflow="fold", min_width=least)
    for row in cells:
        plain.add_row(*[Text(cell) if isinstance(cell, str) else cell for cell in row])
    return plain


def find_min_width(texts: Iterable[str]) -> int:
    """The width that a column of these texts has at least, however narrow the table is."""
    return min(max(map(len, texts), default=0), MIN_NAME_WIDTH)


def format_alarm(number: int) -> Text:
    """A count that should be zero."""
    return Text(format_count(number), style="yellow" if number else "")


def add_rest_count(cut: Table, total: int, shown: int = MAX_TABLE_ROWS, where: str = " in report.json") -> Table:
    """The table, with what it leaves out counted below."""
    if total > shown:
        cut.caption = Text(f"and {format_count(total - shown)} more{where}")
        cut.caption_justify = "left"
    return cut
