"""For each delivery: the epoch, who should have got it, and the session of who did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from subreplay.columns import NEVER, Ints
from subreplay.policies.base import Policy
from subreplay.rules.deliveries import Flags
from subreplay.rules.sessions import STRANGER

if TYPE_CHECKING:
    from subreplay.rules.judge import Dispatcher

_NO_NAME, _UNKNOWN_NAME = -1, -2


@dataclass(frozen=True)
class Owners:
    """Columns beside deliveries; ``expected`` is a consumer's index, -1 for nobody."""

    epoch: Ints
    expected: Ints
    session: Ints
    left: Ints
    wrong: Flags
    in_transition: Flags


def owners_at(
    policy: Policy,
    dispatcher: Dispatcher,
    slots: Ints,
    hashes: NDArray[np.uint32],
    at: Ints,
    seq: Ints,
    names: pa.Array,
) -> Owners:
    """Expected owner against observed consumer.

    While a change is under way (asked for, not yet complete) the owner before it and the owner after it are both
    right; outside such instants there is exactly one.
    """
    timeline, sessions = dispatcher.timeline, dispatcher.sessions
    observed = names.dictionary_encode()
    session = sessions.find(observed, at, seq)
    epoch = timeline.epoch_at(at, seq)
    last = timeline.last_candidate(at, seq)
    expected = timeline.owner_at(slots, hashes, epoch)
    right = np.ones(len(at), np.bool_)
    if policy.routing != "any":
        number = {name: i for i, name in enumerate(sessions.names)}  # one number a name, whoever had it last
        of_consumer = np.array([*(number[name] for name in sessions.names), _NO_NAME], np.int64)
        of_word = [number.get(word, _UNKNOWN_NAME) for word in observed.dictionary.to_pylist()]
        served = np.array([*of_word, _UNKNOWN_NAME], np.int64)[np.asarray(observed.indices.fill_null(-1))]
        right = of_consumer[expected] == served
        for step in range(1, int((last - epoch).max(initial=0)) + 1):
            again = np.flatnonzero(~right & (epoch + step <= last))
            candidates = timeline.owner_at(slots[again], hashes[again], epoch[again] + np.int32(step))
            right[again] = of_consumer[candidates] == served[again]
    left = np.append(np.array([end.at for end in sessions.left], np.int64), NEVER)[session]
    return Owners(
        epoch.astype(np.int64), expected.astype(np.int64), session, left, ~right & (session != STRANGER), last > epoch
    )
