"""Build plain-text tables with right-aligned numbers; long lists are cut, and the rest is counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from subreplay.reports.formatting import format_count

MIN_NAME_WIDTH = 24  # characters of a name column
MAX_TABLE_ROWS = 20  # rows shown; the page and the JSON contain all
Cell = str | Text


def build_table(columns: Sequence[tuple[str, bool]], rows: Iterable[Sequence[Cell]]) -> Table:
    """Build a plain table; ``True`` marks a column of numbers."""
    cells = [*rows]
    plain = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim", padding=(0, 1))
    for at, (title, number) in enumerate(columns):
        least = None if at else find_min_width([str(row[0]) for row in cells])
        plain.add_column(title, justify="right" if number else "left", no_wrap=number, overflow="fold", min_width=least)
    for row in cells:
        plain.add_row(*[Text(cell) if isinstance(cell, str) else cell for cell in row])
    return plain


def find_min_width(texts: Iterable[str]) -> int:
    """Find the minimum width of a column with these texts."""
    return min(max(map(len, texts), default=0), MIN_NAME_WIDTH)


def format_alarm(number: int) -> Text:
    """Format a count that should be zero; other values are yellow."""
    return Text(format_count(number), style="yellow" if number else "")


def add_rest_count(cut: Table, total: int, shown: int = MAX_TABLE_ROWS, where: str = " in report.json") -> Table:
    """Add a caption that counts the rows left out."""
    if total > shown:
        cut.caption = Text(f"and {format_count(total - shown)} more{where}")
        cut.caption_justify = "left"
    return cut
