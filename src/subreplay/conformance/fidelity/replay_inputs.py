"""The inputs of a re-enactment from a recording: the log and the consumers' commands, and the dispatches to compare."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from subreplay.adapters.pulsar_recording.recorded_events import Ack, Dispatch, Produced, Redeliver
from subreplay.conformance.fidelity.consumer_sessions import ConsumerSessions
from subreplay.conformance.fidelity.membership_changes import list_recorded_changes
from subreplay.conformance.fidelity.permit_requests import list_permit_requests
from subreplay.conformance.fidelity.read_times import (
    Ints,
    find_first_consumers,
    find_latest_read_times,
    find_read_times,
)
from subreplay.conformance.fidelity.recorded_dispatchers import RecordedDispatcher
from subreplay.errors import InputError
from subreplay.hashing.murmur3 import MASK_31, murmur3_32
from subreplay.rows.model.columns import ints
from subreplay.rows.model.entry_keys import outer_sticky_keys
from subreplay.rows.model.range_table import NOBODY
from subreplay.simulation.pulsar.broker.broker_records import DISPATCHED, NEVER, NO_CHUNK, Records
from subreplay.simulation.pulsar.broker.dispatch_rules import DispatcherKind
from subreplay.simulation.pulsar.reenact import CLIENT_COMMANDS, ENTRIES, ClientCommand, MemberChange

_Row = tuple[int, int, ClientCommand, int, int, int]  # as in CLIENT_COMMANDS


UNLOADED = -1


@dataclass(frozen=True, eq=False)
class ReplayInputs:
    """The streams of one dispatcher before ``until`` (ns): ``changes`` of consumers, ``entries`` (``ENTRIES``),
    ``commands`` (``CLIENT_COMMANDS``), and the ``dispatched`` entries (``DISPATCHED``).

    At each of ``resets`` (ns, entry) all consumers were disconnected, and the cursor went back to an entry. If the
    topic was unloaded, the entry is ``UNLOADED``: the cursor only went back to what is not acknowledged.

    Consumers are numbered as in the timeline, entries as in the log.
    """

    changes: tuple[MemberChange, ...]
    entries: Records
    commands: Records
    dispatched: Records
    read_by: Ints  # of each entry, ns: a later one was dispatched then at the latest, and reads follow the log
    until: int
    ordinals: dict[tuple[int, int], int]  # by (ledger, entry)
    resets: tuple[tuple[int, int], ...] = ()


def build_inputs(recorded: RecordedDispatcher) -> ReplayInputs:
    """Build the streams of a dispatcher; a model supplies what the recording lacks.

    * Entries exist when the broker read them, as far as its reader was free (``find_read_times``).
    * Permits are those of the broker's log, else those of the client model (``list_permit_requests``).
    """
    log = RecordedLog(recorded)
    dispatched = list_recorded_dispatches(recorded, log)
    entries = build_log_entries(recorded, log)
    latest = find_latest_read_times(len(entries), dispatched)
    shared = recorded.broker.dispatcher == DispatcherKind.SHARED
    first_consumers = find_first_consumers(len(entries), dispatched) if shared else None
    entries.at = find_read_times(log.produced, latest, entries.deliver_at > 0, first_consumers)
    requests = _build_commands(_list_requests(recorded, log))
    changes = list_recorded_changes(recorded, entries, requests, dispatched)
    joined = {change.consumer.index: change.at for change in changes if change.joined}
    requested_permits = list_permit_requests(recorded, joined, dispatched, log.ordinals, log.sizes)
    commands = _build_commands((at, 0, ClientCommand.FLOW, one, permits, 0) for at, one, permits in requested_permits)
    commands = np.concatenate([commands, requests])
    commands = commands[np.argsort(commands["at"], kind="stable")].view(np.recarray)
    until = recorded.events[-1].t_ns + 1
    resets = tuple(_list_resets(recorded, changes, dispatched, log.published))
    return ReplayInputs(changes, entries, commands, dispatched, latest, until, log.ordinals, resets)


def _list_resets(
    recorded: RecordedDispatcher, changes: tuple[MemberChange, ...], dispatched: Records, published: Ints
) -> Iterator[tuple[int, int]]:
    """Yield the resets at which all consumers were disconnected: after their last dispatch, back to an entry."""
    for reset in recorded.resets:
        joins = [change.at for change in changes if change.joined and change.at > reset.at]
        if not joins:
            continue
        connected = sum(1 if change.joined else -1 for change in changes if change.at < joins[0])
        before = dispatched.at[dispatched.at < joins[0]]
        if connected == 0 and len(before):
            entry = UNLOADED if reset.to is None else np.searchsorted(np.maximum.accumulate(published), reset.to)
            yield int(before[-1]) + 1, int(entry)


def _build_commands(rows: Iterable[_Row]) -> Records:
    return np.array(sorted(rows, key=lambda row: row[0]), CLIENT_COMMANDS).view(np.recarray)


class RecordedLog:
    """The entries after the subscription's start, by position."""

    def __init__(self, recorded: RecordedDispatcher) -> None:
        ledgers, entries = ints(recorded.rows, "ledger"), ints(recorded.rows, "entry")
        heads = np.flatnonzero(np.diff(ledgers, prepend=-1).astype(bool) | np.diff(entries, prepend=-1).astype(bool))
        published = ints(recorded.rows, "publish_time")[heads] * 1_000
        positions = list(zip(ledgers[heads].tolist(), entries[heads].tolist(), strict=True))
        times = dict(zip(positions, published.tolist(), strict=True))
        for event in reversed(recorded.events):  # the first that shows the entry to be there
            if isinstance(event, Produced | Dispatch) and (event.ledger, event.entry) in times:
                times[event.ledger, event.entry] = event.t_ns
        start = _find_start(recorded, positions, times)
        sizes = np.diff(np.append(heads, len(ledgers)))
        self.heads, self.sizes, self.published = heads[start:], sizes[start:], published[start:]
        self.produced = np.maximum.accumulate(np.array([times[position] for position in positions[start:]], np.int64))
        self.ordinals = {position: ordinal for ordinal, position in enumerate(positions[start:])}


def _find_start(
    recorded: RecordedDispatcher, positions: list[tuple[int, int]], times: dict[tuple[int, int], int]
) -> int:
    """Count the entries before the subscription's first one: older than its consumers, and never dispatched."""
    touched = min(
        ((i[0], i[1]) for e in recorded.events for i in getattr(e, "ids", ())),
        default=(NEVER, NEVER),
    )
    touched = min([touched, *((e.ledger, e.entry) for e in recorded.events if isinstance(e, Dispatch))])
    joined = recorded.timeline.epochs[1].since.at
    return next(
        (n for n, position in enumerate(positions) if position >= touched or times[position] >= joined), len(positions)
    )


def build_log_entries(recorded: RecordedDispatcher, log: RecordedLog) -> Records:
    """Return the log as ``ENTRIES``, without the times."""
    rows = recorded.rows.take(log.heads)
    keys = outer_sticky_keys(rows, recorded.policy.profile).to_pylist()
    hashes = np.array([murmur3_32(key) for key in keys], np.uint32)
    entries = np.zeros(len(keys), ENTRIES).view(np.recarray)
    entries.slot = recorded.policy.compute_slots(hashes)
    whole = recorded.broker.dispatcher != DispatcherKind.KEY_SHARED_DRAINING
    entries.hash = hashes & np.uint32(MASK_31) if whole else entries.slot
    entries.messages = log.sizes
    entries.deliver_at = ints(rows, "deliver_at", missing=0) * 1_000
    entries.chunked = NO_CHUNK
    return entries


def list_recorded_dispatches(recorded: RecordedDispatcher, log: RecordedLog) -> Records:
    """Return the broker's dispatches in order. Raises InputError if one went to a consumer that never joined."""
    sessions = ConsumerSessions(recorded.timeline)
    rows = [
        (
            log.ordinals[event.ledger, event.entry],
            event.t_ns,
            sessions.find_event_consumer(event),
            event.redelivery_count,
            0,
        )
        for event in recorded.events
        if isinstance(event, Dispatch) and (event.ledger, event.entry) in log.ordinals
    ]
    if unknown := {
        e.consumer for e in recorded.events if isinstance(e, Dispatch) and sessions.find_event_consumer(e) == NOBODY
    }:
        where = f"{recorded.subscription} on {recorded.scope.full_name}"
        raise InputError(
            f"{where}: entries were dispatched to {min(unknown)}, but the recording does not contain its join. "
            "Start the recording before the first consumer joins."
        )
    return np.array(rows, DISPATCHED).view(np.recarray)


def _list_requests(recorded: RecordedDispatcher, log: RecordedLog) -> Iterator[_Row]:
    """Yield the acknowledgements and redelivery requests in the order in which the broker received them."""
    sessions = ConsumerSessions(recorded.timeline)
    pending: dict[int, int] = {}  # of entries acknowledged in part: a bit for each message that is not
    for event in recorded.events:
        if isinstance(event, Ack):
            acks = (
                _list_cumulative_acks(event, log) if event.ack_type == "Cumulative" else _list_acks(event, log, pending)
            )
            yield from (
                (event.t_ns, ordinal, command, sessions.find_event_consumer(event), n, event.seq + 1)
                for ordinal, command, n in acks
            )
        elif isinstance(event, Redeliver):
            consumer = sessions.find_event_consumer(event)
            if consumer == NOBODY:
                continue
            named_ordinals = [log.ordinals[i[0], i[1]] for i in event.ids if (i[0], i[1]) in log.ordinals]
            if not event.ids or recorded.broker.dispatcher == DispatcherKind.SINGLE_ACTIVE:
                yield event.t_ns, 0, ClientCommand.REDELIVER_ALL, consumer, 0, 0
            else:
                yield from (
                    (event.t_ns, ordinal, ClientCommand.NACK, consumer, 0, event.seq + 1) for ordinal in named_ordinals
                )


def _list_acks(event: Ack, log: RecordedLog, pending: dict[int, int]) -> Iterator[tuple[int, ClientCommand, int]]:
    """Yield acknowledged entries, or the number of newly acknowledged messages of an entry from its bit set."""
    for ledger, entry, bit_set in dict.fromkeys((i[0], i[1], tuple(i[2]) if len(i) > 2 else ()) for i in event.ids):
        ordinal = log.ordinals.get((ledger, entry))
        if ordinal is None:
            continue
        if not bit_set:
            yield ordinal, ClientCommand.ACK, 0
            continue
        whole = (1 << int(log.sizes[ordinal])) - 1
        before = pending.get(ordinal, whole)
        unacked = sum((word & (1 << 64) - 1) << 64 * n for n, word in enumerate(bit_set))
        pending[ordinal] = before & unacked
        if newly_acked := bin(before & ~unacked).count("1"):
            yield ordinal, ClientCommand.ACK_SOME, newly_acked


def _list_cumulative_acks(event: Ack, log: RecordedLog) -> Iterator[tuple[int, ClientCommand, int]]:
    """Yield the last acknowledged entry: the named one, or the one before it if messages of the batch remain."""
    for identity in event.ids:
        ordinal = log.ordinals.get((identity[0], identity[1]))
        if ordinal is not None:
            unacked = len(identity) > 2 and bool(identity[2])
            yield ordinal - unacked, ClientCommand.ACK_UP_TO, 0
