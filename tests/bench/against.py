"""Two source trees side by side: ``python -m tests.bench.against OLD [NEW]`` prints CPU seconds and their ratio.

``make bench-against OLD=commit`` puts the tree of the commit below ``build``. Both audit the same files in turn, on the
local engine; of each audit the least counts, so the first round may compile. The last column is new over old.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.bench import compare, figures
from tests.bench.commands import AUDIT, cpu_seconds, write_run
from tests.support.commands import write_inputs

ROUNDS: Final = 3
MILLIONS: Final = (2, 10)


def main(old: str, new: str = ".", *, millions: tuple[float, ...] = MILLIONS, rounds: int = ROUNDS) -> None:
    trees = {"old": old, "new": new}
    spent: dict[str, dict[str, dict[str, float]]] = {side: {} for side in trees}
    with tempfile.TemporaryDirectory() as scratch:
        (recording,) = write_inputs(Path(scratch, "recording"), "s")
        audits = {"audit of a recording, 4,000 messages": recording}
        for each in millions:
            audits[f"audit of {each:g} M deliveries"] = write_run(Path(scratch, str(each)), round(each * 1e6))
        for _ in range(rounds):
            for audit, run_file in audits.items():
                for side, tree in trees.items():
                    out = str(Path(scratch, side, audit))  # of each tree its own: layouts of tables may differ
                    source = {"PYTHONPATH": str(Path(tree, "src").resolve(strict=True))}
                    cpu = cpu_seconds(*AUDIT, str(run_file), "--out", out, environment=source)
                    before = spent[side].get(audit, {"CPU s": cpu})
                    spent[side][audit] = {"CPU s": min(cpu, before["CPU s"])}
    machine = figures.found()
    sides = (machine | {"commit": tree, "figures": spent[side], "ratios": {}} for side, tree in trees.items())
    for line in compare.lines(*sides):
        print(line)


if __name__ == "__main__":
    main(*sys.argv[1:])
