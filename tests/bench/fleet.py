"""What a run of many subscriptions costs beside a run of one: ``python -m tests.bench.fleet [millions] [engine]``.

The same deliveries belong to one subscription on a topic of 200 partitions, or to 200 subscriptions on topics of one
partition each. Counted are CPU seconds of all processes; of each run the least of the rounds counts.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.bench import figures
from tests.bench.commands import AUDIT, cpu_seconds, write_run

ROUNDS: Final = 2
SUBSCRIPTIONS: Final = 200
MOST_TIMES: Final = 2
"""How many times the CPU seconds of one subscription the same rows of ``SUBSCRIPTIONS`` may take."""
ONE, SEVERAL = "one subscription", f"{SUBSCRIPTIONS} subscriptions"


def main(millions: float = 20, engine: str = "local") -> None:
    spent: dict[str, float] = {}
    deliveries = round(millions * 1e6)
    with tempfile.TemporaryDirectory() as scratch:
        runs = {
            ONE: write_run(Path(scratch, "one"), deliveries, partitions=SUBSCRIPTIONS),
            SEVERAL: write_run(
                Path(scratch, "several"), deliveries, partitions=SUBSCRIPTIONS, topics=SUBSCRIPTIONS, several=True
            ),
        }
        for path in runs.values():
            path.write_text(json.dumps(json.loads(path.read_text()) | {"engine": engine}), encoding="utf-8")
        for _ in range(ROUNDS):
            for name, path in runs.items():
                cpu = cpu_seconds(*AUDIT, str(path))
                spent[name] = min(cpu, spent.get(name, cpu))
                print(f"  {name:20}{millions:8g} M {engine:8}{cpu:8.1f} s CPU", flush=True)
    times = spent[SEVERAL] / spent[ONE]
    figures.tell(f"fleet, {engine}", one_cpu=spent[ONE], several_cpu=spent[SEVERAL], times=times)
    print(f"{SEVERAL} take {times:.2f} times the CPU seconds of {ONE}, at most {MOST_TIMES}")


if __name__ == "__main__":
    main(*(float(each) for each in sys.argv[1:2]), *sys.argv[2:3])
