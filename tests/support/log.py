"""The log of a topic, as the dispatcher of a policy sees it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from subreplay.hashing.murmur3 import MASK_31
from subreplay.semantics.policies.base import Policy
from subreplay.simulation.pulsar.broker.broker_records import NO_CHUNK, Records, create_records
from subreplay.simulation.pulsar.broker.dispatch_rules import DispatcherKind
from subreplay.simulation.pulsar.clients.log_intake import PUBLISHED
from subreplay.simulation.pulsar.dispatcher_choice import choose_dispatcher


def log_of(policy: Policy, at: NDArray[np.int64], hashes: NDArray[np.uint32]) -> Records:
    """``PUBLISHED`` rows of single messages, at once due, of 0 bytes and unknown producers; all of that may be changed.

    ``at`` (ns) must not fall; ``hashes`` are the unsigned 32-bit Murmur3 hashes of the sticky keys.
    """
    rows = create_records(len(at), PUBLISHED)
    rows.at, rows.messages, rows.chunked, rows.producer = at, 1, NO_CHUNK, -1
    rows.slot = policy.compute_slots(hashes)
    of_slots = choose_dispatcher(policy) == DispatcherKind.KEY_SHARED_DRAINING
    rows.hash = rows.slot if of_slots else hashes & np.uint32(MASK_31)
    return rows
