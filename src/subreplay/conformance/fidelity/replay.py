"""A recording re-enacted: the same log, the same consumers, the same deeds; who gets what is decided anew.

A deed follows a delivery: nobody acknowledges or rejects what was not handed out. Where the re-enactment hands an entry
out later than the broker did, the deed waits for that; where it hands it to somebody else, that consumer rejects it.

Deliveries depend on the deeds before them, so this is repeated until nothing changes: each time the first deed that was
misplaced is right from then on.
"""

from __future__ import annotations

import numpy as np

from subreplay.conformance.fidelity.inputs import Inputs
from subreplay.conformance.fidelity.reads import Ints
from subreplay.conformance.fidelity.recording import RecordedDispatcher
from subreplay.dispatch.broker.records import DISPATCHED, Records, empty_records
from subreplay.dispatch.broker.state import new_broker
from subreplay.dispatch.reenact import Deed, reenact

_NOT_YET = 2**62
_ON_ENTRIES = (Deed.ACK, Deed.ACK_SOME, Deed.ACK_UP_TO, Deed.NACK)


def reenacted(recorded: RecordedDispatcher, given: Inputs) -> Records:
    """What is dispatched, as ``DISPATCHED`` records in order."""
    deeds = given.deeds
    for _ in range(len(deeds) + 1):
        dispatched = _once(recorded, given, deeds)
        following = _following(given, dispatched)
        if np.array_equal(following, deeds):
            break
        deeds = following
    return dispatched


def _once(recorded: RecordedDispatcher, given: Inputs, deeds: Records) -> Records:
    in_time = deeds[np.argsort(deeds.at, kind="stable")]
    parts = [*reenact(new_broker(recorded.broker), given.changes, [given.entries], [in_time], given.until)]
    return np.concatenate([empty_records(0, DISPATCHED), *parts]).view(np.recarray)


def _following(given: Inputs, dispatched: Records) -> Records:
    """The deeds as given, each no earlier than the delivery that it answers, rejections by the consumer that got it.

    A deed answers the last delivery before it, but not one that an earlier rejection has answered.
    """
    deeds = given.deeds.copy()
    answers = np.isin(deeds.kind, _ON_ENTRIES) & np.isin(deeds.ordinal, given.dispatched.ordinal)
    mine = deeds[answers]
    order = np.lexsort((dispatched.at, dispatched.ordinal))
    begin = np.searchsorted(dispatched.ordinal[order], mine.ordinal)
    end = np.searchsorted(dispatched.ordinal[order], mine.ordinal, "right")
    answered = np.maximum(_count_before(dispatched, mine) - 1, begin + _rejections_before(mine))
    there = answered < end
    delivery = dispatched[order[answered[there]]]
    mine.at[~there] = _NOT_YET
    mine.at[there] = np.maximum(mine.at[there], delivery.at + 1)
    rejected = there & (mine.kind == Deed.NACK)
    mine.consumer[rejected] = delivery.consumer[rejected[there]]
    deeds[answers] = mine
    return deeds


def _count_before(dispatched: Records, deeds: Records) -> Ints:
    """How many deliveries are before each deed, in the order of entries and then of time."""
    ordinals = np.concatenate([dispatched.ordinal, deeds.ordinal])
    times = np.concatenate([dispatched.at, deeds.at])
    is_delivery = np.arange(len(ordinals)) < len(dispatched)
    order = np.lexsort((is_delivery, times, ordinals))  # what a deed brings about at once is not before it
    counts = np.empty(len(ordinals), np.int64)
    counts[order] = np.cumsum(is_delivery[order])
    return counts[len(dispatched) :]


def _rejections_before(deeds: Records) -> Ints:
    """How many earlier rejections of its entry each deed has before it."""
    order = np.argsort(deeds.ordinal, kind="stable")  # of one entry, in order of time
    rejections = (deeds.kind == Deed.NACK)[order]
    before = np.cumsum(rejections) - rejections
    firsts = np.searchsorted(deeds.ordinal[order], deeds.ordinal[order])
    counts = np.empty(len(deeds), np.int64)
    counts[order] = before - before[firsts]
    return counts
