"""Check publication: what producers put into the log, before any consumer receives it."""

from __future__ import annotations

from typing import Final

import numpy as np

from subreplay.audit.codes import BY_SLOT, EVERY, FILTERED, Code, Rule
from subreplay.audit.needs import Need
from subreplay.kernels.inlining import hot
from subreplay.rows.model.columns import UNKNOWN, Ints

RULES = (
    Rule(
        Code.PRODUCER_ORDER,
        "Stored after a later message of its producer",
        "Within a partition, the sequence ids of one producer increase (in batches, those of one key). A decrease to "
        "the lowest known id or below means that the producer restarted.",
        "ProducerImpl.msgIdGenerator (3.2.3, 4.0.8); row L-ROUTE-3",
        sentence="{message} was stored after the later message {twin} of its producer",
        evidence="twin",
        cause="its producer sent it late or sets its own sequence ids",
        promised=EVERY,
        needs=frozenset({Need.PRODUCERS}),
    ),
    Rule(
        Code.DUP_PUBLISH,
        "Published twice",
        "A sequence id of a producer occurs once in a partition (among the latest 65,536 messages; all chunks of a "
        "message have one id). Producers with that name in other clusters, and messages with another key or size, are "
        "distinct.",
        "MessageDeduplication (3.2.3, 4.0.8); row L-DEDUP-1",
        sentence="{message} has the producer and the sequence id of {twin}",
        evidence="twin",
        cause="its producer sent it twice, and the topic did not deduplicate",
        promised=EVERY,
        needs=frozenset({Need.PRODUCERS}),
    ),
    Rule(
        Code.DIVERGENT_ID,
        "One position, two contents",
        "A position of the log names one message.",
        "ManagedLedgerImpl (3.2.3, 4.0.8): a ledger id and an entry id name one entry",
        sentence="{message} is in the log with two different contents",
        promised=EVERY,
        uncertain=True,
    ),
    Rule(
        Code.UNKNOWN_MESSAGE,
        "Delivery of a message that is not in the log",
        "Every delivery is of a message in the messages table.",
        "ManagedCursorImpl.readEntries (3.2.3, 4.0.8): the broker reads messages from the log before it dispatches "
        "them",
        sentence="{message}, delivered to {consumer} at {at}, is not in the messages table",
        promised=EVERY,
        uncertain=True,
        needs=frozenset({Need.DELIVERIES}),
    ),
    Rule(
        Code.MIXED_BATCH,
        "A batch mixes keys",
        "A broker reads one key per batch, so a batch must contain a single key. Its other keys reach the wrong "
        "consumer.",
        "Commands.peekStickyKey, BatchMessageContainerImpl.add (3.2.3, 4.0.8); row L-BATCH-3",
        sentence="the batch {entry}, delivered to {consumer} at {at}, contains other keys than its routing key",
        cause="the producer batched by time and size, not by key",
        promised=BY_SLOT | FILTERED,
        needs=frozenset({Need.KEYS, Need.SOME_KEY}),
    ),
)

# The state of a producer: the lowest sequence id since it started (anew), how often it started; and of a stream: the
# start it is of, highest id since then, its position. A producer is a stream too.
_LOWEST, _STARTS, _START, _HIGHEST, _POSITION = range(5)
STREAM_STATE: Final = 7
MEMORY: Final = 1 << 16
# A recent message: its producer, the start it is of, sequence id, publish time, position (three columns), content
_OF_PRODUCER, _OF_START, _ID, _PUBLISHED, _AT_POSITION, _CONTENT = 0, 1, 2, 3, 4, 7
RECENT_STATE: Final = 8

# The columns of a message, as the rows of a matrix in order of position. PRODUCER and STREAM are identities, then
# indices of states; a stream is what is promised to be in order: a producer's messages, or, of those it batched, the
# ones of one key, since batches by key overtake one another. SEQUENCE is negative where it counts for nothing: a later
# chunk, or none known. CONTENT is an identity of its key and size, RECENT the index of the recent message that this one
# replaces.
STREAM, PRODUCER, SEQUENCE, PUBLISHED, LEDGER, ENTRY, BATCH_INDEX, CONTENT, RECENT = range(9)
MESSAGE: Final = 9


def choose_places(producer: Ints, sequence: Ints) -> Ints:
    """Return the place at which each message is remembered, out of ``MEMORY`` places; -1: not remembered."""
    # ids of one producer follow one another; producers are kept apart
    return np.where(sequence < 0, -1, (sequence + 7919 * producer) & (MEMORY - 1))


_ORDER, _DUP = Code.PRODUCER_ORDER.bit, Code.DUP_PUBLISH.bit


@hot
def judge_sequence(
    streams: Ints, recent: Ints, m: Ints, i: int, p: Ints, twin: int, at: int
) -> int:  # pragma: no cover - compiled
    """Return the bit PRODUCER_ORDER or DUP_PUBLISH if message ``i`` breaks the rule.

    The position of the conflicting message goes to ``p[twin:, at]``. A sequence id with another key or size belongs to
    another producer with that name: a replicated message keeps the name of its producer in its source cluster.
    """
    sequence, q, s = m[SEQUENCE, i], m[PRODUCER, i], m[STREAM, i]
    if sequence < 0:
        return 0
    r = m[RECENT, i]
    if recent[r, _OF_PRODUCER] == q and recent[r, _ID] == sequence:
        going_on = recent[r, _OF_START] == streams[q, _STARTS] and sequence > streams[q, _LOWEST]
        if recent[r, _CONTENT] != m[CONTENT, i]:
            if going_on:
                return 0
        elif going_on or recent[r, _PUBLISHED] == m[PUBLISHED, i]:
            for w in range(3):
                p[twin + w, at] = recent[r, _AT_POSITION + w]
            return _DUP
    if streams[q, _LOWEST] == UNKNOWN or sequence <= streams[q, _LOWEST]:
        streams[q, _LOWEST], streams[q, _STARTS] = sequence, max(streams[q, _STARTS], 0) + 1
    if streams[s, _START] != streams[q, _STARTS]:
        streams[s, _START], streams[s, _HIGHEST] = streams[q, _STARTS], UNKNOWN
    recent[r, _OF_PRODUCER], recent[r, _OF_START], recent[r, _ID] = q, streams[q, _STARTS], sequence
    recent[r, _PUBLISHED], recent[r, _CONTENT] = m[PUBLISHED, i], m[CONTENT, i]
    for w in range(3):
        recent[r, _AT_POSITION + w] = m[LEDGER + w, i]
    if sequence < streams[s, _HIGHEST]:
        for w in range(3):
            p[twin + w, at] = streams[s, _POSITION + w]
        return _ORDER
    streams[s, _HIGHEST] = sequence
    for w in range(3):
        streams[s, _POSITION + w] = m[LEDGER + w, i]
    return 0
