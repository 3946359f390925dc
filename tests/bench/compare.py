"""Two files of figures side by side: ``python -m tests.bench.compare OLD NEW`` prints a table.

The last column is new over old: less than 1 is less time or memory. What one file lacks is left out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def lines(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    """The table, ratios last."""
    for name, reported in ("old", old), ("new", new):
        machine = reported["machine"]
        yield f"{name}: commit {reported['commit']}, {machine['cores']} cores of {machine['cpu']}"
    yield f"{'':56}{'old':>14}{'new':>14}{'new/old':>9}"
    rows = {row: old["figures"][row] for row in old["figures"] if row in new["figures"]}
    pairs = [
        (f"{row}, {figure}", before, new["figures"][row][figure])
        for row, figures in rows.items()
        for figure, before in figures.items()
        if figure in new["figures"][row]
    ]
    pairs += [(ratio, old["ratios"][ratio], new["ratios"][ratio]) for ratio in old["ratios"] if ratio in new["ratios"]]
    for row, before, after in pairs:
        times = f"{after / before:9.2f}" if before else f"{'–':>9}"
        yield f"{row:56}{before:14,.2f}{after:14,.2f}{times}"


def main(old: str, new: str) -> None:
    for line in lines(*(json.loads(Path(path).read_text(encoding="utf-8")) for path in (old, new))):
        print(line)


if __name__ == "__main__":
    main(*sys.argv[1:])
