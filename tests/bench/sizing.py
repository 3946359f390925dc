"""How large a cluster a day needs: ``python -m tests.bench.sizing FIGURES.json [deliveries a day]`` prints Markdown.

It takes what ``make bench`` measured: the core seconds of a million deliveries, and the seconds of a million in one
topic partition, which no number of cores makes shorter. Of one audit it prints the seconds in which no task runs, by
stage. ``docs/explanation/performance.md`` has the figures.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.cores import DRIVER, MILLION, WHOLE

BILLION = 1_000_000_000
CORES = (4, 16, 64)
SHARES = (1 / 64, 0.1, 0.5)
"""Of a day's deliveries, those of its busiest topic partition."""


def hours(figures: dict[str, float], millions: float, cores: int, share: float) -> float:
    """Hours of an audit of so many million deliveries, of which one topic partition has ``share``: the work of all,
    evenly on all cores, or that of its busiest partition on one, whichever takes longer."""
    return max(millions * figures["core_seconds"] / cores, millions * share * figures["hot_seconds"]) / 3600


def lines(reported: dict[str, Any], deliveries: int = BILLION) -> Iterator[str]:
    """Two tables: what a million costs, and a day."""
    machine, figures, millions = reported["machine"], reported["figures"][MILLION], deliveries / 1e6
    yield f"Measured at commit {reported['commit']} with {machine['cores']} cores of {machine['cpu']}:"
    yield ""
    yield "| a million deliveries more | |"
    yield "|---|--:|"
    yield f"| work of all tasks | {figures['core_seconds']:.1f} core seconds |"
    yield f"| shuffled | {figures['shuffled_MB']:.0f} MB |"
    yield f"| the same in one topic partition | {figures['hot_seconds']:.1f} s, on however many cores |"
    yield ""
    day = f"{millions / 1e3:g} billion" if deliveries >= BILLION else f"{millions:g} million"
    yield f"| {day} deliveries: the busiest topic partition has | " + " | ".join(f"{c} cores" for c in CORES) + " |"
    yield "|---|" + "--:|" * len(CORES)
    for share in SHARES:
        cells = (f"{hours(figures, millions, cores, share):.1f} h" for cores in CORES)
        yield f"| {share:.1%} of them | " + " | ".join(cells) + " |"


def driver_lines(reported: dict[str, Any]) -> Iterator[str]:
    """A table of the largest audit: by stage of the story the seconds in which no task ran, and those of its tasks on
    some cores."""
    every = {name: row for name, row in reported["figures"].items() if name.startswith(DRIVER)}
    largest = list(every)[-1].partition(":")[0]
    rows = {name.partition(": ")[2]: row for name, row in every.items() if name.startswith(largest)}
    yield f"| {largest.removeprefix(DRIVER)} | no task, first | no task, later |" + "".join(
        f" tasks, {cores} cores |" for cores in CORES
    )
    yield "|---|--:|--:|" + "--:|" * len(CORES)
    for stage, row in rows.items():
        cells = (row["first"], row["later"], *(row[f"tasks_{cores}"] for cores in CORES))
        yield f"| {stage} | " + " | ".join(f"{each:.1f} s" for each in cells) + " |"
    whole = rows[WHOLE]
    yield "| share of it in which no task runs | | |" + "".join(
        f" {whole['later'] / (whole['later'] + whole[f'tasks_{cores}']):.0%} |" for cores in CORES
    )


def main(path: str, deliveries: str = str(BILLION)) -> None:
    reported = json.loads(Path(path).read_text(encoding="utf-8"))
    for line in (*lines(reported, int(deliveries)), "", *driver_lines(reported)):
        print(line)


if __name__ == "__main__":
    main(*sys.argv[1:])
