"""Faults injected into recorded Kafka groups: ``python -m tests.bench.group_faults [trials] [folder]``."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.support.group_faults import FAULTS, trial
from tests.support.groups import RECORDED, audited


def main(trials: int = 100, folder: str | None = None) -> None:
    """Print, of each fault, how many trials found it, and of each untouched recording what fails. The recordings are
    those of the tests, or the folders in ``folder``."""
    recorded = RECORDED if folder is None else sorted(p for p in Path(folder).iterdir() if p.is_dir())
    for each in recorded:
        found = audited(each)
        print(f"{each.name:28} untouched: {found.failing or 'nothing fails'}, {found.rejected} rejected", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        for fault in FAULTS:
            tried = [trial(fault, recorded, seed, Path(scratch)) for seed in range(trials)]
            caught = sum(one.caught for one in tried)
            others = Counter(code for one in tried if not one.caught for code in one.found or ["nothing"])
            missed = [(one.recording, one.expected) for one in tried if not one.caught][:3]
            print(f"{fault.__name__:40} {caught:4} of {trials}  {dict(others)} {missed}", flush=True)


if __name__ == "__main__":
    main(*(int(sys.argv[1]),) if len(sys.argv) > 1 else (), *sys.argv[2:3])
