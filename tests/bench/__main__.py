"""``python -m tests.bench [--quick]``: every benchmark, one after the other."""

import sys

from tests.bench import audit, dispatch, kafka, keys, membership, nights, planning, report, whatif

membership.main(1_000)
report.main(2_000)
planning.main()
dispatch.main(quick="--quick" in sys.argv)
kafka.main()
nights.main()
keys.main()
whatif.main()
audit.main(10_000_000)
