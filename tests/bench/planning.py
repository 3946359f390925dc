"""What plans cost: ``python -m tests.bench.planning`` prints a table.

The traffic is drawn: keys are as skewed as Zipf's law, over a month by the hour. What is timed is the answer alone, in
seconds of this process on a core, with the profile in memory and compiled code warm.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from subreplay.rows.model.rows import Scope
from subreplay.semantics.policies import make_policy
from subreplay.whatif.planning.consumer_count import PolicyCandidate, UtilisationLimit, find_consumer_count
from subreplay.whatif.planning.growing_membership import build_key_membership, iterate_growth
from subreplay.whatif.planning.loads import WorkLoads
from subreplay.whatif.planning.sticky_ranges import plan_ranges
from tests.bench import figures

SLOTS, WINDOWS, HOUR = 65_536, 720, 3_600 * 10**9
KEYS, MESSAGES = 100_000, 1_000_000
POLICIES = ("pulsar.key_shared.auto_split", "pulsar.key_shared.consistent_hash")


def _seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _growing(policy: str, hashes: np.ndarray) -> Callable[[int], Iterator[np.ndarray]]:
    return lambda first: iterate_growth(
        build_key_membership(make_policy(policy, "pulsar-4.0"), hashes, Scope("orders")), first
    )


def _timed(name: str, work: Callable[[], object]) -> None:
    seconds = _seconds(work)
    print(f"{name:60}{seconds:9.2f}")
    figures.tell(f"plan {name}", seconds=seconds)


def main() -> None:
    draws = np.random.default_rng(0)
    hot = (draws.pareto(1.2, (SLOTS, 1)) * 3).astype(np.int64)
    loads = hot * draws.integers(0, 5, (SLOTS, WINDOWS))
    plan_ranges(loads[:100, :10], 3)
    print(f"{'plan':60}{'seconds':>9}")
    for consumers in (8, 100):
        plan = plan_ranges(loads, consumers)
        name = f"ranges of {consumers} consumers, {SLOTS:,} slots, {WINDOWS} windows (gap {plan.gap:.1%})"
        _timed(name, lambda consumers=consumers: plan_ranges(loads, consumers))  # type: ignore[misc]
    key = np.minimum(draws.zipf(1.3, MESSAGES), KEYS) - 1
    at = draws.integers(0, WINDOWS * HOUR, MESSAGES)
    work = WorkLoads.from_messages(key, at, np.full(MESSAGES, 10**9), KEYS, HOUR)
    hashes = draws.integers(0, 2**32, KEYS, dtype=np.uint32)
    hashes[1] = hashes[0]  # the two hottest keys are never parted, so no number of consumers is enough
    for policy in POLICIES:
        # just above what the hottest key needs alone: every number is tried
        limit = UtilisationLimit(work, float(work.hottest.max()) / HOUR * 1.0001)
        candidate = PolicyCandidate(policy, "key", _growing(policy, hashes))
        found = find_consumer_count(limit, candidate, 1_000)
        name = f"consumers up to {found.consumers or found.tried:,}, {policy.rsplit('.', 1)[1]}, {KEYS:,} keys"
        _timed(name, lambda c=candidate, limit=limit: find_consumer_count(limit, c, 1_000))  # type: ignore[misc]


if __name__ == "__main__":
    main()
