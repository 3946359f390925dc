"""``python -m tests.bench``: every benchmark, one after the other."""

from tests.bench import audit, membership

membership.main(1_000)
audit.main(10_000_000)
