"""``python -m tests.bench [--quick]``: every benchmark, one after the other, and their figures in build/bench."""

import sys
from pathlib import Path

from tests.bench import audit, dispatch, figures, kafka, keys, membership, nights, planning, report, whatif

quick = "--quick" in sys.argv
membership.main(1_000)
report.main(2_000)
planning.main()
dispatch.main(quick=quick)
kafka.main()
nights.main()
keys.main()
whatif.main()
audit.main(1_000_000 if quick else 10_000_000)
path = Path("build/bench") / f"{figures.found()['commit']}.json"
figures.write(path)
print(f"figures: {path}")
