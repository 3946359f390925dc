"""Flow: no message before its time, no more messages than a consumer asked for."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from subreplay.columns import UNKNOWN, Ints
from subreplay.profiles import PULSAR_4_2
from subreplay.rules.codes import EVERY, MANY, Code, Excuse, Rule
from subreplay.rules.deliveries import AT, BATCH_INDEX, RECEIVED, SESSION, UNTIL
from subreplay.rules.steps import step

RULES = (
    Rule(
        Code.EARLY,
        "Delivered before its time",
        "A message published with a delay is not delivered more than one tick before its deliver-at time; one active "
        "consumer ignores delays.",
        "InMemoryDelayedDeliveryTracker.getCutoffTime (3.2.3, 4.0.8, 4.2.4); row L-DELAY-1",
        promised=MANY,
    ),
    Rule(
        Code.OVER_PERMITS,
        "More messages than the consumer's queue holds",
        "When a message is delivered, at least one of the queue-size-and-one deliveries before it to that consumer has "
        "been taken by the application, acknowledged or given back: a queue is first in, first out, and one message "
        "may be in the application's hands.",
        "Consumer.MESSAGE_PERMITS_UPDATER (3.2.3, 4.0.8); row D-FLOW-1",
        promised=EVERY,
    ),
)

# How much earlier than a tick a profile may be, ns: 4.2.4 cuts deliver-at to 512 ms (for a tick of 1000 ms)
_CUT: Final = {PULSAR_4_2: 512_000_000}

_OVER, _WHOLE_BATCH = Code.OVER_PERMITS.bit, Excuse.WHOLE_BATCH.bit


def early(at: Ints, published: Ints, due: Ints, tick: int, profile: str) -> Ints:
    """The bit EARLY where a delivery is too early; ``due`` is ``published``, or the later time it was delayed to."""
    return np.where((due > published) & (at < due - tick - _CUT.get(profile, 0)), Code.EARLY.bit, 0)


# The queue of a session, a ring: its first place, how many it has, its front, how many deliveries it holds, how many
# there were
_START, _PLACES, _FRONT, _LENGTH, _SERVED = range(5)
_ENDS, _NUMBERS = range(2)


class Queues(NamedTuple):
    """Per session, the latest deliveries that could still be untaken: in ``untaken``, their ends and numbers, the one
    that ends first in front."""

    rings: Ints
    untaken: Ints

    @classmethod
    def of(cls, sizes: Ints) -> Queues:
        """Empty queues of consumers with receiver queues of ``sizes`` messages."""
        places = np.maximum(sizes, 1) + 2
        rings = np.zeros((len(sizes), 5), np.int64)
        rings[:, _START], rings[:, _PLACES] = np.cumsum(places) - places, places
        return cls(rings, np.empty((2, int(places.sum())), np.int64))


@step
def within_permits(
    rings: Ints, untaken: Ints, d: Ints, i: int, codes: Ints, excuses: Ints
) -> None:  # pragma: no cover - compiled
    """OVER_PERMITS."""
    s = d[SESSION, i]
    start, places, number = rings[s, _START], rings[s, _PLACES], rings[s, _SERVED]
    front, length, window = rings[s, _FRONT], rings[s, _LENGTH], places - 1
    end = d[UNTIL, i] if d[RECEIVED, i] == UNKNOWN else min(d[UNTIL, i], d[RECEIVED, i])
    if length and untaken[_NUMBERS, start + front] < number - window:
        front = (front + 1) % places
        length -= 1
    if number >= window and untaken[_ENDS, start + front] > d[AT, i]:
        codes[i] |= _OVER
        if d[BATCH_INDEX, i] >= 0:
            excuses[i] |= _WHOLE_BATCH
    while length and untaken[_ENDS, start + (front + length - 1) % places] >= end:
        length -= 1
    place = start + (front + length) % places
    untaken[_ENDS, place], untaken[_NUMBERS, place] = end, number
    rings[s, _FRONT], rings[s, _LENGTH], rings[s, _SERVED] = front, length + 1, number + 1
