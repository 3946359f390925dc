"""What a user of a prediction wants to know of a run: loads, moved keys, latencies, pauses and the time to drain.

The same figures are taken of a recording and of its prediction, so that they can be compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from subreplay.semantics.policies.base import Policy


class Receipt(NamedTuple):
    """An application received a message: which one (``message`` is its position) and with which key.

    Times are in ns. It was done with the message (acknowledged it, or had worked on the record) at ``done_at``.
    """

    message: Hashable
    key: Hashable
    published_at: int
    consumer: str
    done_at: int | None


@dataclass(frozen=True)
class RunFigures:
    """The figures of one run, recorded or predicted.

    ``loads`` are each consumer's fraction of all receipts. ``moved`` are the keys that more than one consumer received.
    ``latency`` is the median and the 99th percentile (ns) from the publication of a message until an application had
    done it. ``drained`` is the time (ns) from the first publication until the last message was done, and ``pause`` the
    median time (ns) in which a partition had no owner between two owners (None: no partition had a pause).
    """

    loads: Mapping[str, float]
    moved: frozenset[Hashable]
    latency: tuple[float, float]
    drained: int
    pause: float | None = None


def measure_run(receipts: Sequence[Receipt], pauses: Sequence[int] = ()) -> RunFigures:
    """Measure a run from its ``receipts`` in any order; ``pauses`` (ns) are those of its partitions."""
    counts = Counter(row.consumer for row in receipts)
    owners = Counter(key for key, _ in {(row.key, row.consumer) for row in receipts if row.key is not None})
    published: dict[Hashable, int] = {}
    done: dict[Hashable, int] = {}
    for row in receipts:
        published[row.message] = row.published_at
        if row.done_at is not None:
            done[row.message] = min(row.done_at, done.get(row.message, row.done_at))
    median, high = np.quantile([at - published[message] for message, at in done.items()] or [0], (0.5, 0.99))
    return RunFigures(
        {name: count / len(receipts) for name, count in sorted(counts.items())},
        frozenset(key for key, consumers in owners.items() if consumers > 1),
        (float(median), float(high)),
        max(done.values(), default=0) - min(published.values(), default=0) if done else 0,
        float(np.median(pauses)) if len(pauses) else None,
    )


@dataclass(frozen=True)
class RunComparison:
    """A recorded run of a real broker beside its prediction.

    ``broker`` is its system and version, ``kind`` that of the policy (``find_kind``). ``complete`` is whether the plan
    says all that applications did.
    """

    broker: str
    kind: str
    recorded: RunFigures
    predicted: RunFigures
    complete: bool = True

    @property
    def load_error(self) -> float:
        """The largest error of a consumer's load, in percentage points of all messages."""
        one, two = self.recorded.loads, self.predicted.loads
        return 100 * max((abs(one.get(name, 0.0) - two.get(name, 0.0)) for name in {*one, *two}), default=0.0)


def find_kind(policy: Policy | type[Policy]) -> str:
    """Return what decides how well runs of a policy can be predicted: its dispatcher, or its protocol of rebalances."""
    return str(getattr(policy, "rebalance", policy.serving))
