"""``python -m tests.bench``: every benchmark, one after the other."""

from tests.bench import kafka, membership

membership.main(1_000)
kafka.main()
