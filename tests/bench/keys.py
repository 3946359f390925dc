"""What audits of messages with large keys cost: ``python -m tests.bench.keys`` prints a table.

Each row is an audit by the local engine, from its start to its end; memory is that of all processes together.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from tests.bench import figures
from tests.bench.audit import measured
from tests.support import large_keys

ROWS = ((20_000, 10_000), (600, 1_000_000))  # messages, bytes of each key


def audit(run_file: str, out: str) -> dict[str, float]:
    """Seconds of an audit."""
    from subreplay.cli.main import main as subreplay

    began = time.perf_counter()
    if code := subreplay(["audit", "--config", run_file, "--out", out]):
        raise SystemExit(code)
    return {"seconds": time.perf_counter() - began}


def main() -> None:
    print(f"{'audit of large keys':32}{'seconds':>9}{'MiB':>7}")
    for messages, size in ROWS:
        with tempfile.TemporaryDirectory() as scratch:
            run_file = large_keys.write(Path(scratch) / "in", messages, size)
            found = measured("tests.bench.keys", str(run_file), scratch)
        print(f"{f'{messages:,} keys of {size:,} bytes':32}{found.found['seconds']:9.1f}{found.peak:7.0f}")
        figures.tell(f"{messages:,} keys of {size:,} bytes", seconds=found.found["seconds"], MiB=found.peak)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        print(json.dumps(audit(*sys.argv[1:])))
    else:
        main()
