"""What many small units cost: ``python -m tests.bench.units [deliveries]`` prints a table.

The same deliveries lie in 8, 1,000 and 5,000 topic partitions, and go to 1,000 consumers instead of eight. They also
lie in 64 topics of one table, which one run audits as 64 subscriptions, and in the 64 partitions of one topic. Each
audit is a program of its own on the local engine. It runs once before it is measured, so that compiled code is there.
Counted are CPU seconds of the program and of the processes that it has started. The last column is how many times as
many they are as those of another row: of 8 partitions, and of 64 topics those of 64 partitions.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.bench import figures
from tests.bench.commands import AUDIT, cpu_seconds, write_run

CONSUMERS: Final = 1_000
FIRST: Final = "audit, 8 partitions"
OF_64: Final = "audit, 64 partitions"
ROWS: Final[dict[str, dict[str, Any]]] = {
    FIRST: {},
    "audit, 1,000 partitions": {"partitions": 1_000},
    "audit, 5,000 partitions": {"partitions": 5_000},
    "audit, 1,000 consumers": {
        "members": [(1 + number * 99 // CONSUMERS, "join", f"c{number + 1}") for number in range(CONSUMERS)]
    },
    OF_64: {"partitions": 64},
    "audit, 64 topics": {"partitions": 64, "topics": 64, "several": True},
}
MOST: Final = {
    "audit, 1,000 partitions": 1.5,
    "audit, 5,000 partitions": 3.0,
    "audit, 1,000 consumers": 2.0,
    "audit, 64 topics": 2.0,
}
"""How many times as much as the row that it is compared with each may cost."""


def main(deliveries: int = 500_000) -> None:
    spent: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for number, (row, made) in enumerate(ROWS.items()):
            folder = Path(scratch, str(number))
            run_file = str(write_run(folder, deliveries, **made))
            cpu = min(cpu_seconds(*AUDIT, run_file) for _ in range(2))
            spent[row] = cpu
            figures.tell(row, cpu=cpu)
            goal = f", at most {MOST[row]:g}" if row in MOST else ""
            times = cpu / spent[OF_64 if "topics" in made else FIRST]
            print(f"{row:30} {cpu:7.1f} s CPU {times:6.1f} x{goal}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
