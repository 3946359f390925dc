"""Read the log of a dispatcher once in order of position: each message with its deliveries.

Rules: those of ``redelivery``, PRODUCER_ORDER and DUP_PUBLISH of ``publication``, SKIP of ``order``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from subreplay.audit.acts import Act
from subreplay.audit.checkpoint import Arrays
from subreplay.audit.codes import Code
from subreplay.audit.context import NO_LOCKS, Dispatcher, RecordLocks
from subreplay.audit.ordinals import Ordinals
from subreplay.audit.passes.beginning import Beginning
from subreplay.audit.passes.patterns import Patterns, Seeks, note_message, note_seeks
from subreplay.audit.passes.states import StateTable
from subreplay.audit.rules.publication import (
    LEDGER,
    PRODUCER,
    RECENT,
    RECENT_STATE,
    SEQUENCE,
    STREAM,
    STREAM_STATE,
    choose_places,
    judge_sequence,
)
from subreplay.audit.rules.redelivery import AT, LEFT, OWNED, SESSION, judge_message
from subreplay.audit.rules.redelivery import CODES as ATTEMPT_CODES
from subreplay.audit.rules.shared_records import judge_record
from subreplay.kernels.inlining import hot, operation
from subreplay.rows.model.columns import NEVER, UNKNOWN, Ints

# The columns of a position, as the rows of a matrix in order. HEAD is its message (-1: none), its attempts are those
# from BEGIN to END; from LAPSES on it need not come (``UNKNOWN``: its absence proves nothing); ORDINAL rises with the
# log. The rest are results: its first delivery and acknowledgement, findings about its message, the position such a
# finding collides with (three rows), the message that was skipped before it (three rows), and whether others were, too.
HEAD, BEGIN, END, LAPSES, ORDINAL, FIRST, FIRST_ACK, CODES, TWIN, SKIPPED, OTHERS = 0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 14
POSITION: Final = 15

_ORDINAL, _DONE, _POSITION_AT = range(3)  # of a message that may have been skipped: ordinal, when it was done, position
# Of what a consumer left behind: when it left, whether anything was acknowledged up to here, position of the message
# (three columns), its ordinal
_GONE, _ACKED, _LEFT_AT, _LEFT_ORDINAL = 0, 1, 2, 5


class PositionState:
    """The state of one dispatcher's log between batches, and between daily runs, except open messages, which the next
    run reads again.

    ``open_``: messages that may have been skipped, the last to be done in front; ``opened[0]`` are used. ``behind``: of
    the messages never acknowledged, the one whose consumer left first. ``never``: the ordinals of the latest two
    messages never acknowledged. ``beginning``: the beginning of the data. ``acts``: those of operators and clients, and
    ``patterns``: their patterns in the log. ``seeks``: the seeks in the log of a Kafka group.
    """

    def __init__(
        self, joined: Ints, checkpoint: Arrays, beginning: Beginning | None = None, acts: Sequence[Act] = ()
    ) -> None:
        self.joined = joined  # when each session joined: the next daily run checks that this is unchanged
        self.acts, self.patterns, self.seeks = acts, Patterns(acts, len(joined)), Seeks()
        self.ordinals = Ordinals(checkpoint.get("ledgers"))
        self.streams = StateTable(STREAM_STATE)
        self.recent = StateTable(RECENT_STATE)
        self.reached = np.full(len(joined), -1, np.int64)  # latest ordinal of each session's stream
        self.open_ = np.empty((0, 5), np.int64)
        self.opened = np.zeros(1, np.int64)
        self.behind = np.array([NEVER, 0, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN], np.int64)
        self.never = np.full(2, UNKNOWN, np.int64)
        self.beginning = beginning or Beginning()
        if checkpoint:
            self.beginning = Beginning(*checkpoint["beginning"][0].tolist())
            self.streams = StateTable.of(STREAM_STATE, checkpoint["stream_ids"], checkpoint["streams"])
            recent = checkpoint["recent"]
            self.recent = StateTable.of(RECENT_STATE, recent[:, :1], recent[:, 1:])
            self.reached[: len(checkpoint["reached"])] = checkpoint["reached"][:, 0]

    def checkpoint(self) -> dict[str, Ints]:
        """Return the state for the next daily run."""
        ids, streams = self.streams.known
        places, recent = self.recent.known
        used = np.argsort(places[:, 0])
        return {
            "ledgers": self.ordinals.known,
            "stream_ids": ids,
            "streams": streams,
            "recent": np.column_stack([places[used], recent[used]]),
            "reached": self.reached[:, None],
            "joined": self.joined[:, None],
            "beginning": np.array([self.beginning], np.int64),
        }

    def ensure_capacity(self, positions: int) -> None:
        """Grow the arrays so that every one of the next positions may stay open."""
        missing = int(self.opened[0]) + positions - len(self.open_)
        if missing > 0:
            self.open_ = np.concatenate([self.open_, np.empty((max(missing, len(self.open_)), 5), np.int64)])


class ScopeLog(NamedTuple):
    """The log of a topic partition: its dispatcher, and what is carried from batch to batch."""

    dispatcher: Dispatcher
    state: PositionState


def read_positions(
    state: PositionState,
    positions: Ints,
    messages: Ints,
    attempts: Ints,
    my_messages: slice,
    mine: slice,
    receipts: bool,
    active: bool,
    group: bool,
    batch_redelivery_bit: int = 0,
    locks: RecordLocks | None = None,
) -> None:
    """Fill in the results of those ``positions`` that are of the dispatcher (``mine``), and of their ``attempts``.
    Identities in its ``messages`` are replaced by indices.

    ``receipts``: whether applications recorded their receipts. ``active``: whether only one consumer is active.
    ``group``: whether consumers are members of a Kafka group. ``batch_redelivery_bit`` and ``locks``: see ``Context``.
    """
    state.ensure_capacity(mine.stop - mine.start)
    for row in (PRODUCER, STREAM):
        messages[row, my_messages] = state.streams.indices(messages[row, my_messages])
    recent = choose_places(messages[PRODUCER, my_messages], messages[SEQUENCE, my_messages])
    messages[RECENT, my_messages] = state.recent.indices(recent)
    _read_positions(
        state.streams.rows, state.recent.rows, state.reached, state.open_, state.opened, state.behind, state.never,
        state.patterns.at, state.patterns.rows, state.patterns.last_served, state.seeks.open, state.seeks.complete,
        state.seeks.number, positions, messages, attempts, mine.start, mine.stop, receipts, active, group,
        batch_redelivery_bit, locks is not None, locks or NO_LOCKS,
    )  # fmt: skip


@operation
def _read_positions(
    streams: Ints, recent: Ints, reached: Ints, open_: Ints, opened: Ints, behind: Ints, never: Ints, acts: Ints,
    pattern: Ints, served: Ints, seeks: Ints, sought: Ints, number: Ints, p: Ints, m: Ints, a: Ints, begin: int,
    end: int, receipts: bool, active: bool, group: bool, batch_redelivery_bit: int, shared: bool, locks: RecordLocks,
) -> Any:  # fmt: skip  # pragma: no cover - compiled
    for i in range(begin, end):
        if p[BEGIN, i] < p[END, i]:
            if shared:
                p[FIRST, i], p[FIRST_ACK, i] = judge_record(
                    a, p[BEGIN, i], p[END, i], receipts, locks.duration, locks.limit, locks.end, locks.timed
                )
            else:
                p[FIRST, i], p[FIRST_ACK, i] = judge_message(
                    a, p[BEGIN, i], p[END, i], receipts, group, batch_redelivery_bit
                )
            if len(acts) and p[HEAD, i] >= 0:
                note_message(acts, pattern, served, a, p[BEGIN, i], p[END, i], m, p[HEAD, i], p[ORDINAL, i])
            if group:
                note_seeks(seeks, sought, number, a, p[BEGIN, i], p[END, i], p[ORDINAL, i])
        if p[HEAD, i] >= 0:
            p[CODES, i] |= judge_sequence(streams, recent, m, p[HEAD, i], p, TWIN, i)
        if active:
            if p[FIRST_ACK, i] != NEVER:
                behind[_ACKED] = 1
            _judge_skip(reached, open_, opened, behind, never, p, i, a)
            if p[HEAD, i] >= 0:
                done = _find_done_time(p, i, a)
                _note_open(open_, opened, p[ORDINAL, i], m, p[HEAD, i], done)
                if done == NEVER:
                    never[0], never[1] = never[1], p[ORDINAL, i]
                    _note_left_behind(behind, p, i, a, m)
    return 0


_SKIP = Code.SKIP.bit


@hot
def _judge_skip(
    reached: Ints, open_: Ints, opened: Ints, behind: Ints, never: Ints, p: Ints, i: int, a: Ints
) -> None:  # pragma: no cover - compiled
    """Judge SKIP: no message is open between this one and the previous one of the same consumer when this one is
    delivered.

    Before the first message of a consumer, no message that another one left behind is open. ``OTHERS``: besides the
    named message, another one in between was open, or an earlier one was never acknowledged. Otherwise, the finding
    depends on the named message alone.
    """
    ordinal = p[ORDINAL, i]
    for j in range(p[FIRST, i], p[END, i]):
        session = a[SESSION, j]
        if session >= 0 and a[OWNED, j] and reached[session] < ordinal:
            if reached[session] >= 0:
                between = _find_after(open_, opened[0], reached[session])
                if between < opened[0] and open_[between, _DONE] > a[AT, j]:
                    a[ATTEMPT_CODES, j] |= _SKIP
                    skipped = open_[between, _ORDINAL]
                    for w in range(3):
                        p[SKIPPED + w, i] = open_[between, _POSITION_AT + w]
                    if _has_others(open_, opened[0], never, skipped, reached[session], a[AT, j]):
                        p[OTHERS, i] = 1
            elif behind[_ACKED] and behind[_GONE] <= a[AT, j]:
                a[ATTEMPT_CODES, j] |= _SKIP
                for w in range(3):
                    p[SKIPPED + w, i] = behind[_LEFT_AT + w]
                if _has_others(open_, opened[0], never, behind[_LEFT_ORDINAL], -1, a[AT, j]):
                    p[OTHERS, i] = 1
            reached[session] = ordinal


@hot
def _note_left_behind(behind: Ints, p: Ints, i: int, a: Ints, m: Ints) -> None:  # pragma: no cover - compiled
    """Note a message that is never acknowledged, if its consumer left before those of all noted messages."""
    for j in range(p[FIRST, i], p[END, i]):
        if a[LEFT, j] < behind[_GONE]:
            behind[_GONE] = a[LEFT, j]
            behind[_LEFT_ORDINAL] = p[ORDINAL, i]
            for w in range(3):
                behind[_LEFT_AT + w] = m[LEDGER + w, p[HEAD, i]]


@hot
def _has_others(
    open_: Ints, length: int, never: Ints, skipped: int, since: int, at: int
) -> Any:  # pragma: no cover - compiled
    """Return whether, after ``since``, another message than the skipped one was never acknowledged, or after the
    skipped one, another was open at that time."""
    for w in range(2):
        if never[w] > since and never[w] != skipped:
            return True
    following = _find_after(open_, length, skipped)
    return following < length and open_[following, _DONE] > at


@hot
def _find_after(open_: Ints, length: int, ordinal: int) -> int:  # pragma: no cover - compiled
    """Return the first open message after an ordinal; of those, it is the one that was done last."""
    low, high = 0, length
    while low < high:
        middle = (low + high) // 2
        if open_[middle, _ORDINAL] > ordinal:
            high = middle
        else:
            low = middle + 1
    return low


@hot
def _find_done_time(p: Ints, i: int, a: Ints) -> Any:  # pragma: no cover - compiled
    """Return the instant from which a message need not arrive: its acknowledgement, or always if a stray delivery
    explains its absence."""
    for j in range(p[FIRST, i], p[END, i]):
        if not a[OWNED, j]:
            return UNKNOWN
    return min(p[FIRST_ACK, i], p[LAPSES, i])


@hot
def _note_open(
    open_: Ints, opened: Ints, ordinal: int, m: Ints, head: int, done: int
) -> None:  # pragma: no cover - compiled
    """Remember a message until a later one is done later."""
    while opened[0] and open_[opened[0] - 1, _DONE] <= done:
        opened[0] -= 1
    if done > UNKNOWN:
        last = opened[0]
        open_[last, _ORDINAL], open_[last, _DONE] = ordinal, done
        for w in range(3):
            open_[last, _POSITION_AT + w] = m[LEDGER + w, head]
        opened[0] += 1
