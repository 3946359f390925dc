"""``python -m tests.bench``: every benchmark, one after the other."""

from tests.bench import membership

membership.main(1_000)
