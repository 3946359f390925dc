"""Combine each delivery with its message, slot, epoch and expected owner, and with what its position shows, as
``FACTS``.

Rules here: WRONG_OWNER, NOT_CONNECTED, MIXED_BATCH, DIVERGENT_ID, UNKNOWN_MESSAGE, ROUTING_MISMATCH, EARLY,
CUM_ACK_MISUSE, and those of ``positions``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from subreplay.audit.codes import LAST_CHUNK, Code, Exemption, drop_left_truncated
from subreplay.audit.context import Context, Dispatcher
from subreplay.audit.deliveries import Ending, Flags
from subreplay.audit.needs import Need
from subreplay.audit.passes.beginning import find_earlier_joins, find_joined_earlier, find_never_joined
from subreplay.audit.passes.keys import find_message_keys, read_integers
from subreplay.audit.passes.owners import Owners, compare_owners
from subreplay.audit.passes.positions import (
    BEGIN,
    CODES,
    END,
    FIRST,
    FIRST_ACK,
    HEAD,
    LAPSES,
    ORDINAL,
    OTHERS,
    POSITION,
    SKIPPED,
    TWIN,
    ScopeLog,
    read_positions,
)
from subreplay.audit.passes.repeats import UniqueDeliveries, drop_repeated_deliveries
from subreplay.audit.rejects import rejected_exemptions
from subreplay.audit.rules import publication, redelivery
from subreplay.audit.rules.commits import NONE
from subreplay.audit.rules.dead_letters import judge_by_policy
from subreplay.audit.rules.flow import compute_earliest_time, find_early
from subreplay.audit.rules.partitions import find_misrouted_keys
from subreplay.audit.scoped_rows import ScopedRows
from subreplay.audit.sessions import UNKNOWN_CONSUMER
from subreplay.hashing.key_identity import compute_key_identities
from subreplay.kernels.compiled import compiled
from subreplay.rows.model.columns import NEVER, UNKNOWN, Ints, column, flags
from subreplay.rows.model.entry_keys import own_keys
from subreplay.rows.model.tables import CARRIED, CHECKPOINT, FACTS

_OF_MESSAGES = ("at", "judged", "before", "content", "batch_index", "ledger", "entry", "own_sequence_id", *CARRIED)
_CARRIED = tuple(name for name in CARRIED if name in FACTS.names and name != "key")
_OF_DELIVERIES = ("topic", "partition", "ledger", "entry", "batch_index", "at", "seq", "consumer", "instance",
                  "redelivery_count", "received_at", "acked_at", "nacked_at", "cumulative", "ack_refused", "rejected",
                  "by_receipt", "before")  # fmt: skip


SEND_TIMEOUT: Final = 30_000_000_000
"""How long (ns) a producer tries to send a message (sendTimeout), so how long before an unload it may have begun."""
TRANSACTION_TIMEOUT: Final = 15 * 60 * 1_000_000_000
"""How long (ns) a Kafka transaction can be open (``transaction.max.timeout.ms`` by default)."""
INTERLEAVED: Final = 2
"""How many markers interleaved transactions have at least."""


def make_position_facts(context: Context, logs: Sequence[ScopeLog], some: ScopedRows) -> tuple[pa.Table, Ints]:
    """Make ``FACTS`` of whole entries of several logs. Also return the number of the log of each row."""
    rows = some.rows
    is_delivery = read_integers(rows, "kind") == 1
    messages = ScopedRows(rows.select(_OF_MESSAGES), some.bounds).filter(~is_delivery)
    once = drop_repeated_deliveries(ScopedRows(rows.select(_OF_DELIVERIES), some.bounds).filter(is_delivery))
    kept = np.ones(rows.num_rows, np.bool_)
    kept[is_delivery] = once.kept
    positions = (
        read_integers(rows, "ledger")[kept],
        read_integers(rows, "entry")[kept],
        read_integers(rows, "batch_index")[kept],
    )
    log = some.numbers[kept]
    numbered, first = _number_positions(*positions, is_delivery[kept], log)
    of_positions, where = _find_bounds(log[first], len(logs)), [part[first] for part in positions]
    ordinals = [
        of.state.ordinals.number(*(part[begin:end] for part in where))
        for of, begin, end in zip(logs, of_positions[:-1].tolist(), of_positions[1:].tolist(), strict=True)
    ]
    batch = _Batch(
        context,
        logs,
        messages.rows,
        once,
        np.concatenate(ordinals),
        *numbered,
        messages.numbers,
        log[is_delivery[kept]],
        log[first],
        of_positions,
    )
    return batch.build_facts()


def _find_bounds(numbers: Ints, logs: int) -> Ints:
    """Return where the rows of each log begin, and where the last log ends. ``numbers`` must be sorted."""
    return np.searchsorted(numbers, np.arange(logs + 1))


@compiled
def _number_positions(
    ledger: Ints, entry: Ints, batch_index: Ints, is_delivery: Flags, log: Ints
) -> tuple[tuple[Ints, Ints, Ints, Ints, Ints], Ints]:  # pragma: no cover - compiled
    """Number the positions of sorted log rows from 0. Return arrays: the position of each message; the position of each
    delivery; the first message of each position (-1: none); where the deliveries of each position begin; the entry of
    each delivery, numbered from 0. Also return the first row of each position."""
    n = len(ledger)
    deliveries = 0
    for i in range(n):
        deliveries += is_delivery[i]
    of_message, of_delivery = np.empty(n - deliveries, np.int64), np.empty(deliveries, np.int64)
    entries = np.empty(deliveries, np.int64)
    head, bounds, first = np.empty(n, np.int64), np.empty(n + 1, np.int64), np.empty(n, np.int64)
    position, number, m, d = -1, -1, 0, 0
    for i in range(n):
        new_entry = i == 0 or ledger[i] != ledger[i - 1] or entry[i] != entry[i - 1] or log[i] != log[i - 1]
        number += new_entry
        if new_entry or batch_index[i] != batch_index[i - 1]:
            position += 1
            head[position], bounds[position], first[position] = -1, d, i
        if is_delivery[i]:
            of_delivery[d], entries[d] = position, number
            d += 1
        else:
            if head[position] < 0:
                head[position] = m
            of_message[m] = position
            m += 1
    bounds[position + 1] = d
    n = position + 1
    return (of_message, of_delivery, head[:n].copy(), bounds[: n + 1].copy(), entries), first[:n].copy()


@dataclass
class _Batch:
    """Whole entries of logs: messages, deliveries, and the positions that connect them (see ``_number_positions``).
    ``log_of_…`` are the numbers of their logs. The positions of log i begin at ``log_bounds[i]``."""

    context: Context
    logs: Sequence[ScopeLog]
    messages: pa.Table
    once: UniqueDeliveries
    ordinals: Ints
    of_message: Ints
    of_delivery: Ints
    head: Ints
    bounds: Ints
    entries: Ints
    log_of_message: Ints
    log_of_delivery: Ints
    log_of_position: Ints
    log_bounds: Ints

    @property
    def attempts(self) -> pa.Table:
        return self.once.rows

    @cached_property
    def slices(self) -> list[tuple[ScopeLog, slice, slice, slice]]:
        """Each log with the slices of its messages, deliveries and positions."""
        n = len(self.logs)
        ends = _find_bounds(self.log_of_message, n), _find_bounds(self.log_of_delivery, n), self.log_bounds
        each = np.stack([np.stack([bounds[:-1], bounds[1:]]) for bounds in ends]).transpose(2, 0, 1).tolist()
        return [(log, slice(*m), slice(*d), slice(*p)) for log, (m, d, p) in zip(self.logs, each, strict=True)]

    @property
    def dispatchers(self) -> list[Dispatcher]:
        return [log.dispatcher for log in self.logs]

    def repeat_by_log(self, values: Iterable[int], numbers: Ints) -> Ints:
        """Return one value per row: that of the log whose number the row has."""
        return np.array([*values], np.int64)[numbers]

    def build_facts(self) -> tuple[pa.Table, Ints]:
        buckets = (self.context.terms.count_buckets(each.timeline.scope.partition) for each in self.dispatchers)
        of_message = self.repeat_by_log(buckets, self.log_of_message)
        self.keys = find_message_keys(self.context.policy, self.messages, of_message)
        self.published = read_integers(self.messages, "at")
        delayed = read_integers(self.messages, "deliver_at") if self.context.has_delays else self.published
        self.due = np.maximum(self.published, delayed)
        self.judged, self.before = flags(self.messages, "judged"), flags(self.messages, "before")
        self.chunk = read_integers(self.messages, "chunk_id", -1)
        # a chunk that is not the last of its message
        chunks = read_integers(self.messages, "chunk_count", 0)
        self.part_of_chunks = (self.chunk >= 0) & (self.chunk + 1 < chunks)
        self.last_of_chunks = (self.chunk > 0) & (self.chunk + 1 == chunks)
        # could be delivered before the data begin
        self.earlier = compute_earliest_time(
            self.published, self.due, self.context.terms.tick, self.context.policy.profile
        ) < self.repeat_by_log((log.state.beginning.settled for log in self.logs), self.log_of_message)
        self.aborted, self.skipped = flags(self.messages, "aborted"), self._find_skipped()
        self.aborted &= self.context.skips_aborted
        self.may_be_aborted = self._find_possibly_aborted()
        message = self.head[self.of_delivery]  # of each delivery; -1: unknown
        at, seq = read_integers(self.attempts, "at"), read_integers(self.attempts, "seq", 0)
        owners = compare_owners(
            self.context.policy, self.dispatchers, self.log_of_delivery, _take_values(self.keys.slots, message, -1),
            _take_values(self.keys.hashes, message, 0), at, seq, column(self.attempts, "consumer"),
            column(self.attempts, "instance"),
        )  # fmt: skip
        owners = self._drop_uncertain_owners(owners)
        positions, attempts = self._judge_positions(message, at, owners)
        served, of_log = self._make_served(message, seq, owners, positions, attempts), self.log_of_delivery
        if len(served) < len(at):
            of_log = of_log[at != UNKNOWN]
        waiting = np.flatnonzero((positions[FIRST] == positions[END]) & _take_values(self.judged, self.head, False))
        if not len(waiting):
            return served, of_log
        unserved = self._make_unserved(waiting, positions)
        return pa.concat_tables([served, unserved]), np.append(of_log, self.log_of_position[waiting])

    def _drop_uncertain_owners(self, owners: Owners) -> Owners:
        """Clear what the rows do not prove. If rows contradict one another, the consumer is unknown. A receipt shows
        neither who owned a message at its dispatch nor who was connected then."""
        contradicted, by_receipt = self.once.contradicted > 0, flags(self.attempts, "by_receipt")
        if not contradicted.any() and not by_receipt.any():
            return owners
        return replace(
            owners,
            session=np.where(contradicted, UNKNOWN_CONSUMER, owners.session),
            wrong=owners.wrong & ~contradicted & ~by_receipt,
            in_transition=owners.in_transition | by_receipt,
        )

    def _judge_positions(self, message: Ints, at: Ints, owners: Owners) -> tuple[Ints, Ints]:
        """Run the compiled pass, and add the findings that need only one row."""
        rows = self.attempts
        attempts = np.empty((redelivery.ATTEMPT, len(at)), np.int64)
        attempts[redelivery.AT], attempts[redelivery.ACKED] = at, read_integers(rows, "acked_at")
        attempts[redelivery.NACKED] = read_integers(rows, "nacked_at")
        attempts[redelivery.RECEIVED] = read_integers(rows, "received_at")
        attempts[redelivery.COUNT] = read_integers(rows, "redelivery_count", 0)
        attempts[redelivery.SESSION] = owners.session
        attempts[redelivery.LEFT], attempts[redelivery.ENDS] = owners.left, owners.ends
        attempts[redelivery.OWNED] = (message >= 0) & ~owners.wrong & (owners.session != UNKNOWN_CONSUMER)
        attempts[redelivery.PARTLY] = self._find_partly_acked(at, attempts[redelivery.ACKED])
        attempts[redelivery.IGNORED] = flags(rows, "cumulative") & self.context.acks_individually
        attempts[redelivery.IGNORED] |= flags(rows, "ack_refused")
        attempts[redelivery.ACT] = self._find_latest_acts(message, at, attempts[redelivery.LEFT])
        attempts[redelivery.UNTIL], attempts[redelivery.RESET] = NEVER, UNKNOWN
        attempts[redelivery.NTH] = attempts[redelivery.RESTARTS] = 0
        attempts[redelivery.PREVIOUS] = Ending.NONE
        attempts[redelivery.CODES] = self._find_delivery_codes(message, at, owners)
        changing = owners.in_transition & ~flags(rows, "by_receipt")
        attempts[redelivery.EXEMPTIONS] = np.where(changing, Exemption.IN_TRANSITION.bit, 0)
        attempts[redelivery.EXEMPTIONS, owners.several] |= Exemption.SHARED_NAME.bit
        entry = read_integers(rows, "ledger"), read_integers(rows, "entry")
        attempts[redelivery.EXEMPTIONS] |= self._exempt_rejects(
            self.log_of_delivery, *entry, at, column(rows, "consumer")
        )
        attempts[redelivery.EXEMPTIONS, _take_values(self.part_of_chunks, message, False)] |= (
            Exemption.PART_OF_CHUNKS.bit
        )
        attempts[redelivery.EXEMPTIONS, _take_values(self.last_of_chunks, message, False)] |= (
            Exemption.INCOMPLETE_CHUNKS.bit
        )
        if self.context.lacks_priorities:
            attempts[redelivery.EXEMPTIONS, owners.wrong] |= Exemption.PRIORITIES_NOT_RECORDED.bit
        if self.context.is_group and Need.CALLBACKS in self.context.lacking:
            attempts[redelivery.EXEMPTIONS] |= Exemption.SEEKS_NOT_RECORDED.bit
        self._exempt_unknown_consumers(message, at, owners, attempts[redelivery.EXEMPTIONS])
        self._exempt_left_truncated(message, at, owners, attempts[redelivery.CODES], attempts[redelivery.EXEMPTIONS])
        for log, _, deliveries, _ in self.slices if self.context.uncovered else ():
            if log.dispatcher.timeline.scope in self.context.uncovered:  # not even when its data begin is known
                attempts[redelivery.EXEMPTIONS, deliveries] &= ~Exemption.JOINED_EARLIER.bit
                attempts[redelivery.EXEMPTIONS, deliveries] |= Exemption.NOBODY_JOINED.bit
        attempts[redelivery.EXEMPTIONS] = drop_left_truncated(attempts[redelivery.EXEMPTIONS])

        positions = np.empty((POSITION, len(self.head)), np.int64)
        positions[HEAD], positions[BEGIN], positions[END] = self.head, self.bounds[:-1], self.bounds[1:]
        positions[LAPSES], positions[ORDINAL] = self._find_lapse_times(), self.ordinals
        positions[FIRST], positions[FIRST_ACK] = self.bounds[:-1], NEVER
        positions[CODES], positions[TWIN:] = self._find_message_codes(), UNKNOWN
        active = self.context.policy.routing == "partition"
        published = self._make_publications()
        for log, messages, _, mine in self.slices:
            read_positions(
                log.state,
                positions,
                published,
                attempts,
                messages,
                mine,
                self.context.has_receipts,
                active,
                self.context.is_group,
                self.context.batch_redelivery_bit,
                self.context.record_locks,
            )
        positions[CODES, _take_values(self.before, self.head, True)] = (
            0  # findings about a message alone were reported on its day
        )
        found = np.flatnonzero((positions[CODES] != 0) & (positions[FIRST] < positions[END]))
        attempts[redelivery.CODES, positions[FIRST, found]] |= positions[CODES, found]
        resent = found[self._find_resent(positions)[found]]
        attempts[redelivery.EXEMPTIONS, positions[FIRST, resent]] |= Exemption.RESENT.bit
        # rows that contradict one another do not show how it ended
        attempts[redelivery.CODES, self.once.contradicted > 0] &= ~Code.UNACKED.bit
        if self.context.terms.max_redeliveries is not None and len(at):
            letters = self._find_dead_letters(positions)
            judge_by_policy(attempts, positions[BEGIN], positions[END], letters, self.context)
        return positions, attempts

    def _find_dead_letters(self, positions: Ints) -> Ints:
        """Return when the dead letter of each delivered position was published."""
        published = np.full(positions.shape[1], NEVER)
        served = np.flatnonzero(positions[BEGIN] < positions[END])
        where = np.stack([read_integers(self.attempts, name) for name in ("ledger", "entry", "batch_index")])
        letters, bounds = self.context.dead_letters, _find_bounds(self.log_of_position[served], len(self.logs))
        for dispatcher, begin, end in zip(self.dispatchers, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            if dispatcher.timeline.scope in letters.of_scope:
                mine = served[begin:end]
                published[mine] = letters.find_published(dispatcher.timeline.scope, where[:, positions[BEGIN, mine]])
        return published

    def _exempt_rejects(self, of_log: Ints, ledger: Ints, entry: Ints, at: Ints, consumer: pa.Array) -> Ints:
        """Return the exemptions that rows in quarantine could explain. ``of_log`` must be sorted."""
        partitions = [dispatcher.timeline.scope.partition for dispatcher in self.dispatchers]
        return rejected_exemptions(self.context.rejects, partitions, of_log, ledger, entry, at, consumer)

    def _find_delivery_codes(self, message: Ints, at: Ints, owners: Owners) -> Ints:
        """Return the findings about each delivery that need no other delivery."""
        codes = np.where(message < 0, Code.UNKNOWN_MESSAGE.bit, 0)
        codes[(message >= 0) & owners.wrong] |= Code.WRONG_OWNER.bit
        uncertain = (self.once.contradicted > 0) | flags(self.attempts, "by_receipt")
        codes[(owners.session == UNKNOWN_CONSUMER) & ~uncertain] |= Code.NOT_CONNECTED.bit
        codes[self._find_late_receipts(message, at, owners)] |= Code.NOT_CONNECTED.bit
        codes[flags(self.attempts, "cumulative")] |= Code.CUM_ACK_MISUSE.bit
        codes[flags(self.attempts, "rejected")] |= Code.REJECTED.bit
        mixed = np.flatnonzero(_take_values(self.keys.mixed, message, False))
        codes[mixed[np.diff(self.entries[mixed], prepend=-1) != 0]] |= Code.MIXED_BATCH.bit  # once a batch
        published, due = _take_values(self.published, message, UNKNOWN), _take_values(self.due, message, UNKNOWN)
        return codes | find_early(at, published, due, self.context.terms.tick, self.context.policy.profile)

    def _find_late_receipts(self, message: Ints, at: Ints, owners: Owners) -> Ints:
        """Find receipts of messages that were published after their consumer left, so they were not in flight to it."""
        late = flags(self.attempts, "by_receipt") & (self.once.contradicted == 0) & (message >= 0)
        late = np.flatnonzero(late & (owners.session == UNKNOWN_CONSUMER))
        if not len(late):
            return late
        connected = np.zeros(len(late), np.bool_)
        for number in np.unique(self.log_of_delivery[late]).tolist():
            mine = np.flatnonzero(self.log_of_delivery[late] == number)
            sessions, rows = self.logs[number].dispatcher.sessions, late[mine]
            names, instances = (column(self.attempts, name).take(pa.array(rows)) for name in ("consumer", "instance"))
            published = self.published[message[rows]]
            connected[mine] = sessions.are_connected_within(
                sessions.number_consumers(names, instances), published, at[rows]
            )
        return late[~connected]

    def _exempt_unknown_consumers(self, message: Ints, at: Ints, owners: Owners, exemptions: Ints) -> None:
        """Exempt wrong owners if the recorded membership is incomplete and the delivery fits the inferred one."""
        known = np.array([dispatcher.other is not None for dispatcher in self.dispatchers], np.bool_)
        wrong = np.flatnonzero(owners.wrong & known[self.log_of_delivery])
        if not len(wrong):
            return
        others = [dispatcher.other or dispatcher for dispatcher in self.dispatchers]
        of, seq = message[wrong], read_integers(self.attempts, "seq", 0)[wrong]
        names, instances = (column(self.attempts, name).take(pa.array(wrong)) for name in ("consumer", "instance"))
        would_be = compare_owners(
            self.context.policy, others, self.log_of_delivery[wrong], _take_values(self.keys.slots, of, -1),
            _take_values(self.keys.hashes, of, 0), at[wrong], seq, names, instances,
        )  # fmt: skip
        exemptions[wrong[~would_be.wrong & (would_be.session != UNKNOWN_CONSUMER)]] |= (
            Exemption.MEMBERSHIP_INCOMPLETE.bit
        )

    def _exempt_left_truncated(self, message: Ints, at: Ints, owners: Owners, codes: Ints, exemptions: Ints) -> None:
        """Exempt what left-truncated data or a compacted copy can explain."""
        if self.context.terms.compacted:
            exemptions[codes & Code.UNKNOWN_MESSAGE.bit != 0] |= Exemption.COMPACTED.bit
        first_ledgers = self.repeat_by_log((log.state.beginning.ledger for log in self.logs), self.log_of_delivery)
        deleted = (codes & Code.UNKNOWN_MESSAGE.bit != 0) & (read_integers(self.attempts, "ledger") < first_ledgers)
        exemptions[deleted] |= Exemption.STORED_EARLIER.bit
        begun = [each for each in self.slices if each[0].state.beginning.since != UNKNOWN]
        if not begun:
            return
        exemptions[_take_values(self.earlier, message, False)] |= (
            Exemption.DELIVERED_EARLIER.bit
        )  # empty if the data are complete
        for log, messages, deliveries, positions in begun:
            beginning, published = log.state.beginning, self.published[messages]
            consumers = column(self.attempts, "consumer")[deliveries.start : deliveries.stop]
            of = log.dispatcher.timeline, beginning.since, consumers
            mine, found = exemptions[deliveries], codes[deliveries]  # these are changed in place
            mine[find_joined_earlier(*of, at[deliveries], owners.wrong[deliveries])] |= Exemption.JOINED_EARLIER.bit
            not_connected = (found & Code.NOT_CONNECTED.bit != 0) & (mine & Exemption.JOINED_EARLIER.bit != 0)
            if not_connected.any():
                found[not_connected & find_never_joined(*of)] ^= Code.NOT_CONNECTED.bit | Code.NEVER_JOINED.bit
            unknown = np.flatnonzero(found & Code.UNKNOWN_MESSAGE.bit)
            if len(unknown) and not beginning.log_is_whole:
                index_of_row = np.append(self.of_message[messages], positions.stop)
                earlier = self.of_delivery[deliveries][unknown] < index_of_row[beginning.missing(published)]
                mine[unknown[earlier]] |= Exemption.STORED_EARLIER.bit
            log.state.beginning = beginning.read(published)

    def _find_latest_acts(self, message: Ints, at: Ints, left: Ints) -> Ints:
        """Return the instant of the latest act that reached each delivery's message before it. A declared act ends the
        earlier deliveries, whether or not their consumer ``left``."""
        latest = np.full(len(at), UNKNOWN)
        acting = [each for each in self.slices if each[0].state.acts]
        where = [read_integers(self.attempts, name) for name in ("ledger", "entry", "batch_index")] if acting else []
        for log, _, mine, _ in acting:
            when, until = at[mine], left[mine]  # the latter is changed in place
            for act in log.state.acts:
                reached = np.ones(len(when), np.bool_)
                declared = act.declared
                if declared is not None and declared.to is not None:
                    reached = _is_not_before(declared.to, *(values[mine] for values in where))
                if declared is not None and declared.to_time is not None:
                    reached = _take_values(self.published, message[mine], UNKNOWN) >= declared.to_time
                latest[mine][reached & (when > act.at)] = act.at
                if declared is not None:
                    np.minimum(until, act.at, out=until, where=reached & (when <= act.at) & (when != UNKNOWN))
        return latest

    def _find_partly_acked(self, at: Ints, acked: Ints) -> Flags:
        """Find batched deliveries before the last message of their batch was acknowledged."""
        batched = read_integers(self.attempts, "batch_index") >= 0
        if not batched.any():
            return batched
        acks = np.where(acked == UNKNOWN, NEVER, acked)
        some = self.bounds[:-1][self.bounds[:-1] < self.bounds[1:]]
        first_acks, entries = np.minimum.reduceat(acks, some), self.entries[some]
        complete = np.full(int(self.entries[-1]) + 1, UNKNOWN)
        np.maximum.at(complete, entries, first_acks)
        return batched & (at < complete[self.entries])

    def _find_lapse_times(self) -> Ints:
        """Return the instant from which the absence of each position is no fault: when its time to live ends, or always
        if its absence proves nothing."""
        terms = self.context.terms
        lapses = np.full(len(self.messages), NEVER) if terms.ttl is None else self.published + terms.ttl
        drops = np.array(
            [self.context.drops_messages(each.timeline.scope.topic) for each in self.dispatchers], np.bool_
        )
        drops = drops[self.log_of_message]
        lapses[self.part_of_chunks | self.earlier | terms.compacted | drops | self.aborted | self.skipped] = UNKNOWN
        lapses = _take_values(lapses, self.head, UNKNOWN)
        lapses[self.may_be_aborted] = UNKNOWN
        return lapses

    def _find_skipped(self) -> NDArray[np.bool_]:
        """Find messages that a declared act skipped, because it moved the cursor past them. Clocks may differ."""
        skew = self.context.terms.clock_skew
        skipped = np.zeros(len(self.messages), np.bool_)
        for log, mine, _, _ in self.slices:
            published = self.published[mine]
            for reset in (act.declared for act in log.state.acts if act.declared is not None):
                passed = published <= reset.at + skew
                if reset.to is not None:
                    where = (read_integers(self.messages, name)[mine] for name in ("ledger", "entry", "batch_index"))
                    skipped[mine] |= passed & ~_is_not_before(reset.to, *where)
                elif reset.to_time is not None:
                    skipped[mine] |= passed & (published < reset.to_time + skew)
        return skipped

    def _find_possibly_aborted(self) -> NDArray[np.bool_]:
        """Find undelivered records of a Kafka group that may belong to an aborted transaction. Up to the transaction's
        marker, an offset without a record, none of them was delivered. Records after the last one are unknown here; if
        there are other markers, a marker is assumed to follow.

        If delivered records come before the marker, transactions were interleaved, so there are at least two markers.
        All of them were written before the first later record was delivered, because a read_committed consumer waits
        for the end of the earliest open transaction, and within the longest time that a transaction can be open.
        """
        bounds, entry = self.bounds, np.zeros(len(self.head), np.int64)
        unserved = (bounds[1:] == bounds[:-1]) & (self.head >= 0)
        if not self.context.skips_aborted or not unserved.any():
            return np.zeros(len(self.head), np.bool_)
        entry[self.of_message] = read_integers(self.messages, "entry")
        entry[self.of_delivery] = read_integers(self.attempts, "entry")
        delivered, at = np.full(len(entry), NEVER), read_integers(self.attempts, "at")
        np.minimum.at(delivered, self.of_delivery, np.where(at == UNKNOWN, NEVER, at))
        published, found = _take_values(self.published, self.head, UNKNOWN), np.zeros(len(self.head), np.bool_)
        for _, _, _, mine in self.slices:
            if unserved[mine].any():
                found[mine] = self._find_before_marker(unserved[mine], entry[mine], published[mine], delivered[mine])
        return found

    def _find_before_marker(self, unserved: Flags, entry: Ints, published: Ints, delivered: Ints) -> Flags:
        """Find the possibly aborted positions of one log. The arrays have one value per position: whether it is
        ``unserved``, its entry, and when its message was ``published`` and first ``delivered``."""
        marker = np.append(np.diff(entry) > 1, False)
        marker[-1] = marker.any()
        ends = marker | ~unserved | np.append(~unserved[1:], True)  # the last of each run
        ends[-1] = True
        last = np.flatnonzero(ends)[np.searchsorted(np.flatnonzero(ends), np.arange(len(ends)))]
        found: Flags = unserved & marker[last]
        found |= unserved & (self._count_markers_after(entry, marker, published, delivered) >= INTERLEAVED)
        return found

    def _count_markers_after(self, entry: Ints, marker: Flags, published: Ints, delivered: Ints) -> Ints:
        """Count the offsets without a record after each position that could be the marker of its transaction."""
        gaps = np.where(marker, np.maximum(np.diff(entry, append=entry[-1] + 2) - 1, 0), 0)
        before = np.concatenate([[0], np.cumsum(gaps)])
        delivered = np.append(delivered, NEVER)
        first_later = np.minimum.accumulate(delivered[::-1])[::-1][1:]
        skew = self.context.terms.clock_skew
        by = np.minimum(np.minimum(first_later, NEVER - skew) + skew, published + TRANSACTION_TIMEOUT)
        written = np.searchsorted(np.maximum.accumulate(published), by, "right")
        return np.asarray(before[written] - before[:-1])

    def _find_message_codes(self) -> Ints:
        """Return the findings about the message of each position."""
        codes = np.zeros(len(self.head), np.int64)
        self.stored_again = np.zeros(len(self.head), np.int64)
        if len(self.of_message) > np.count_nonzero(self.head >= 0):
            content = read_integers(self.messages, "content")
            differs = content != content[self.head[self.of_message]]
            codes[self.of_message[differs]] |= Code.DIVERGENT_ID.bit
            same = ~differs
            same[self.head[self.of_message]] = False
            np.add.at(self.stored_again, self.of_message[same], 1)
        routing, scopes = self.context.terms.routing, [each.timeline.scope for each in self.dispatchers]
        if routing is not None and any(scope.partition >= 0 for scope in scopes):
            partitions = self.repeat_by_log((scope.partition for scope in scopes), self.log_of_message)
            keys, producers = column(self.messages, "key"), column(self.messages, "producer")
            wrong = find_misrouted_keys(routing, keys, producers, partitions).wrong & (partitions >= 0)
            codes[_take_values(wrong, self.head, False)] |= Code.ROUTING_MISMATCH.bit
        return codes

    def _find_resent(self, positions: Ints) -> NDArray[np.bool_]:
        """Find positions whose message was stored twice, because an unload kept the first confirmation from its
        producer."""
        resent = np.zeros(len(self.head), np.bool_)
        if self.context.terms.deduplication:
            return resent
        published = _take_values(self.published, self.head, UNKNOWN)
        for log, _, _, mine in self.slices:
            for act in log.state.acts:
                if act.how == "again" or (act.declared is not None and act.declared.kind == "unload"):
                    resent[mine] |= (published[mine] >= act.at - SEND_TIMEOUT) & (published[mine] <= act.at)
        resent &= positions[CODES] & Code.DUP_PUBLISH.bit != 0
        return resent

    def _make_publications(self) -> Ints:
        """Return the messages as rows of ``publication``, as their producers sent them."""
        rows = self.messages
        m = np.empty((publication.MESSAGE, rows.num_rows), np.int64)
        names = column(rows, "producer").fill_null("").dictionary_encode()
        m[publication.PRODUCER] = compute_key_identities(names.dictionary)[np.asarray(names.indices)]
        origins = column(rows, "replicated_from")
        if origins.null_count < len(origins):  # producers' names are those of their clusters
            clusters = origins.fill_null("").dictionary_encode()
            m[publication.PRODUCER] ^= (compute_key_identities(clusters.dictionary) >> 1)[np.asarray(clusters.indices)]
        m[publication.STREAM] = m[publication.PRODUCER]
        m[publication.CONTENT] = compute_key_identities(column(rows, "key").fill_null(b"")) ^ read_integers(
            rows, "size", 0
        )
        batched = np.flatnonzero(read_integers(rows, "batch_index") >= 0)
        m[publication.STREAM, batched] ^= compute_key_identities(own_keys(rows.take(pa.array(batched)))) >> 1
        m[publication.SEQUENCE] = np.where(
            (self.chunk > 0) | self.before, -1, read_integers(rows, "own_sequence_id", -1)
        )
        m[publication.PUBLISHED] = self.published
        m[publication.LEDGER], m[publication.ENTRY] = read_integers(rows, "ledger"), read_integers(rows, "entry")
        m[publication.BATCH_INDEX] = read_integers(rows, "batch_index")
        return m

    def _make_served(self, message: Ints, seq: Ints, owners: Owners, positions: Ints, a: Ints) -> pa.Table:
        """Make the facts of the deliveries. Acknowledgements without a delivery took part in the pass, and are dropped
        here."""
        at = a[redelivery.AT]
        table = self._make_table(
            self.attempts, self.log_of_delivery, self.of_delivery, message, positions, delivered=True,
            before=flags(self.attempts, "before"),
            consumer=owners.consumer, session=owners.session, expected=owners.expected,
            epoch=owners.epoch, at=at, seq=seq, received=a[redelivery.RECEIVED], acked=a[redelivery.ACKED],
            held_until=a[redelivery.UNTIL], redelivery_count=a[redelivery.COUNT], nth=a[redelivery.NTH],
            previous=a[redelivery.PREVIOUS], restarts=a[redelivery.RESTARTS], commit=NONE,
            mixed=_take_values(self.keys.mixed, message, False),
            by_receipt=flags(self.attempts, "by_receipt"), in_transition=owners.in_transition,
            codes=a[redelivery.CODES], excuses=a[redelivery.EXEMPTIONS], reset=a[redelivery.RESET],
            repeated=self.once.repeated,
            contradicted=self.once.contradicted, stored_again=self._count_stored_again(positions),
        )  # fmt: skip
        return table if (at != UNKNOWN).all() else table.filter(pa.array(at != UNKNOWN))

    def _count_stored_again(self, positions: Ints) -> Ints:
        """Return ``stored_again`` of each delivery: the number at the first delivery of a message, else 0."""
        found = np.zeros(self.attempts.num_rows, np.int64)
        served = np.flatnonzero(positions[FIRST] < positions[END])
        found[positions[FIRST, served]] = self.stored_again[served]
        return found

    def _make_unserved(self, waiting: Ints, positions: Ints) -> pa.Table:
        """Make the facts of undelivered messages. One that is acknowledged although it was never delivered is lost."""
        message = self.head[waiting]
        acked = positions[FIRST_ACK, waiting]
        exemptions = np.where(self.part_of_chunks[message], Exemption.PART_OF_CHUNKS.bit, 0)
        exemptions[self.last_of_chunks[message]] |= LAST_CHUNK
        exemptions[self.earlier[message]] |= Exemption.DELIVERED_EARLIER.bit
        exemptions[self.skipped[message]] |= Exemption.RESET.bit
        exemptions[self.aborted[message]] |= Exemption.ABORTED.bit
        exemptions[self.may_be_aborted[waiting] & ~self.aborted[message]] |= Exemption.MAY_BE_ABORTED.bit
        exemptions[self._find_resent(positions)[waiting]] |= Exemption.RESENT.bit
        entry = read_integers(self.messages, "ledger")[message], read_integers(self.messages, "entry")[message]
        nobody = pa.nulls(len(waiting), pa.string())
        of_log = self.log_of_position[waiting]
        exemptions |= self._exempt_rejects(of_log, *entry, np.full(len(waiting), NEVER), nobody)
        for number, log in enumerate(self.logs):
            since = log.state.beginning.since
            if since != UNKNOWN and find_earlier_joins(log.dispatcher.timeline, since):
                exemptions[of_log == number] |= Exemption.JOINED_EARLIER.bit
        return self._make_table(
            self.messages, of_log, waiting, message, positions, delivered=False, before=False,
            consumer=nobody, session=UNKNOWN_CONSUMER, expected=UNKNOWN_CONSUMER, epoch=UNKNOWN_CONSUMER, at=NEVER,
            seq=0, received=UNKNOWN, acked=acked, held_until=NEVER, redelivery_count=0, nth=0, restarts=0, previous=0,
            mixed=False,
            by_receipt=False, commit=NONE, in_transition=False, repeated=0, contradicted=0, reset=UNKNOWN,
            stored_again=self.stored_again[waiting],
            codes=positions[CODES, waiting] | np.where(acked == NEVER, 0, Code.LOST.bit),
            excuses=drop_left_truncated(exemptions),
        )  # fmt: skip

    def _make_table(
        self, rows: pa.Table, of_log: Ints, position: Ints, message: Ints, positions: Ints, **columns: Any
    ) -> pa.Table:
        """Make a ``FACTS`` table from the columns of messages and the passed ``columns``. A single value fills all
        rows."""
        scopes, n = [each.timeline.scope for each in self.dispatchers], len(message)
        columns |= {
            "topic": pa.array([scope.topic for scope in scopes]).take(pa.array(of_log)),
            "partition": self.repeat_by_log((scope.partition for scope in scopes), of_log),
            "ordinal": self.ordinals[position],
            "key": self.context.words.mask_keys(self.keys.shown).take(pa.array(message, mask=message < 0)),
            "key_id": _take_values(self.keys.key_id, message, -1),
            "slot": _take_values(self.keys.slots, message, -1),
            "hash": _take_values(self.keys.hashes, message, 0).astype(np.int64),
            "published": _take_values(self.published, message, UNKNOWN),
            "due": _take_values(self.due, message, UNKNOWN),
            **{name: self._get_carried(name, message) for name in _CARRIED},
            "twin": _build_position_column(positions[TWIN : TWIN + 3], position),
            "skipped": _build_position_column(positions[SKIPPED : SKIPPED + 3], position),
            "skipped_others": positions[OTHERS, position] == 1,
            "checkpoint": pa.nulls(n, CHECKPOINT),
        }
        for name in ("ledger", "entry", "batch_index"):
            columns[name] = column(rows, name) if rows is self.attempts else column(rows, name).take(pa.array(message))
        return pa.table([_make_column(columns[f.name], n, f.type) for f in FACTS], schema=FACTS)

    def _get_carried(self, name: str, message: Ints) -> Any:
        """Return a column of messages. For an unknown message it is null, or 0 if the column is required."""
        if not FACTS.field(name).nullable:
            return _take_values(read_integers(self.messages, name, 0), message, 0)
        return column(self.messages, name).take(pa.array(message, mask=message < 0))


def _is_not_before(first: tuple[int, int, int], ledger: Ints, entry: Ints, batch_index: Ints) -> Flags:
    """Return whether each position is at or after ``first``."""
    inside: Flags = (entry > first[1]) | ((entry == first[1]) & (batch_index >= first[2]))
    later: Flags = (ledger > first[0]) | ((ledger == first[0]) & inside)
    return later


def _make_column(values: Any, rows: int, kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    return pa.array(values if isinstance(values, np.ndarray) else np.full(rows, values), kind)


def _take_values(values: NDArray[Any], rows: Ints, missing: object) -> NDArray[Any]:
    """Return ``values[rows]``, with ``missing`` for row -1."""
    if not len(values):
        return np.full(len(rows), missing, values.dtype)
    taken = values[rows]
    absent = rows < 0
    if absent.any():
        taken[absent] = missing
    return taken


def _build_position_column(columns: Ints, rows: Ints) -> pa.Array:
    """Build a struct column of the positions (three columns) at ``rows``. It is null where there is no position."""
    kind = FACTS.field("twin").type
    if not (columns[0] != UNKNOWN).any():
        return pa.nulls(len(rows), kind)
    fields = [pa.array(values[rows], f.type) for values, f in zip(columns, kind, strict=True)]
    return pa.StructArray.from_arrays(fields, fields=list(kind), mask=pa.array(columns[0, rows] == UNKNOWN))
