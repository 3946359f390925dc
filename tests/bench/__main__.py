"""``python -m tests.bench [--quick]``: every benchmark, one after the other."""

import sys

from tests.bench import dispatch, membership

membership.main(1_000)
dispatch.main(quick="--quick" in sys.argv)
