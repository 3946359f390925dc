"""What a retention policy would have kept of the traffic, at the moment of its last message.

Each topic partition is by itself, as in both systems: Kafka's ``retention.ms`` and ``retention.bytes``, Pulsar's
retention time and size. Brokers delete whole segments or ledgers, and Pulsar only what is acknowledged: so what is told
here is the least that they keep.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from subreplay.rows.model.rows import Scope
from subreplay.whatif.traffic.traffic_profile import TrafficProfile


@dataclass(frozen=True)
class Retention:
    """What is older than ``time`` (ns), or before the last ``size`` bytes, is deleted; None: no such limit."""

    time: int | None = None
    size: int | None = None


class Kept(NamedTuple):
    """What is kept of one topic partition: ``messages`` of ``of``, their ``bytes``, and ``since`` when (ns) they were
    published; None where nothing is kept."""

    scope: Scope
    messages: int
    of: int
    bytes: int
    since: int | None


def kept(profile: TrafficProfile, retention: Retention) -> tuple[Kept, ...]:
    """What is kept of each topic partition, in their order. A message that is cut by the size is not kept."""
    _, last = profile.extent
    scope = profile.runs.scope[profile.run_of]
    order = np.lexsort((-profile.entry, -profile.at, scope))  # the latest first
    bounds = np.searchsorted(scope[order], np.arange(len(profile.scopes) + 1))
    found = []
    for number, (begin, end) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
        mine = order[begin:end]
        at, sizes = profile.at[mine], np.cumsum(profile.size[mine])
        stays = end - begin if retention.time is None else int(np.searchsorted(-at, retention.time - last, "right"))
        if retention.size is not None:
            stays = min(stays, int(np.searchsorted(sizes, retention.size, "right")))
        size, since = (int(sizes[stays - 1]), int(at[stays - 1])) if stays else (0, None)
        found.append(Kept(profile.scopes[number], stays, end - begin, size, since))
    return tuple(found)
