"""Find what a retention policy would have retained of the traffic, at the time of its last message.

Each topic partition is separate, as in both systems: Kafka's ``retention.ms`` and ``retention.bytes``, Pulsar's
retention time and size. Brokers delete whole segments or ledgers, and Pulsar only acknowledged ones, so the result is a
lower bound of what they retain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from subreplay.rows.model.rows import Scope
from subreplay.whatif.traffic.traffic_profile import TrafficProfile


@dataclass(frozen=True)
class Retention:
    """A retention policy.

    Messages older than ``time`` (ns), or before the last ``size`` bytes, are deleted; None: no limit.
    """

    time: int | None = None
    size: int | None = None


class RetainedPart(NamedTuple):
    """What is retained of one topic partition.

    ``messages`` of ``of`` messages with ``bytes`` are retained, published from ``since`` (ns) on; None if nothing is.
    """

    scope: Scope
    messages: int
    of: int
    bytes: int
    since: int | None


def find_retained(profile: TrafficProfile, retention: Retention) -> tuple[RetainedPart, ...]:
    """Return what is retained of each topic partition, in order. A message that the size limit cuts is not retained."""
    _, last = profile.extent
    scope = profile.runs.scope[profile.run_of]
    order = np.lexsort((-profile.entry, -profile.at, scope))  # the latest first
    bounds = np.searchsorted(scope[order], np.arange(len(profile.scopes) + 1))
    retained = []
    for number, (begin, end) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
        scope_order = order[begin:end]
        at, sizes = profile.at[scope_order], np.cumsum(profile.size[scope_order])
        count = end - begin if retention.time is None else int(np.searchsorted(-at, retention.time - last, "right"))
        if retention.size is not None:
            count = min(count, int(np.searchsorted(sizes, retention.size, "right")))
        size, since = (int(sizes[count - 1]), int(at[count - 1])) if count else (0, None)
        retained.append(RetainedPart(profile.scopes[number], count, end - begin, size, since))
    return tuple(retained)
