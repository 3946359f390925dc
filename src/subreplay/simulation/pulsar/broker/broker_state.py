"""The state of one dispatcher, a subscription on one topic or partition, as flat arrays that kernels change.

An entry is known by its ordinal in the log, from 0. Memory contains only a window of the log: from the first unfinished
entry to the last published one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from subreplay.kernels.lazy_kernel import pass_by_reference
from subreplay.rows.model.range_table import NOBODY
from subreplay.simulation.pulsar.broker.broker_records import (
    CONSUMER,
    DELAYED,
    DISPATCHED,
    ENTRY,
    NEVER,
    PIN,
    RANGE,
    STATE,
    TASK,
    TRACKED_HASH,
    Records,
    create_records,
)
from subreplay.simulation.pulsar.broker.dispatch_rules import DispatcherKind, DispatchRule, DispatchSettings

SLOTS = 65536
"""A slot that is also a sticky hash is below this number."""
BUCKETS = 16384
"""The number of equal parts of the slots, to find an owner almost without a search.

It fits in the processor's cache.
"""
READ_ROWS = 4
SMALLEST_WINDOW = 64


@pass_by_reference
class Broker(NamedTuple):
    """One dispatcher. Copies of the tuple share the arrays."""

    rule: Records  # [0]: DispatchRule and DispatchSettings
    state: Records  # [0]
    consumers: Records  # [index of the consumer]
    log: Records  # [ordinal modulo length]
    words: NDArray[np.uint64]  # replay set: a bit per entry of the window
    blocks: NDArray[np.int32]  # waiting entries per 64 words
    tracker: Records  # hash table
    stamps: NDArray[np.int64]  # 4.x: [hash]: number of the distribution in which it is blocked
    reads: NDArray[np.int64]  # [row][at]: ordinals of a normal and of a replay read, their owners, the served consumers
    tasks: Records  # ring
    dispatched: Records  # entries sent since the caller last took them: state.dispatched of them
    delayed: Records  # heap
    pins: Records  # chunked messages that are bound to a consumer
    buckets: NDArray[np.int32]  # first range that reaches into a bucket of slots
    ranges: Records
    sharers: NDArray[np.int64]  # consumers of shared points


@dataclass(frozen=True)
class DispatcherOptions:
    """The options of a dispatcher.

    Only Key_Shared uses ``ordered`` (not ``allowOutOfOrderDelivery``), ``drains`` (a hash may wait for its previous
    consumer) and ``takes_cumulative_acks`` (its only consumer, which is Exclusive, may acknowledge so). ``failover``
    distinguishes Failover from Exclusive. ``last_slot`` is the end of the selector's slots.
    """

    dispatcher: DispatcherKind
    rule: DispatchRule
    settings: DispatchSettings = DispatchSettings()
    ordered: bool = True
    drains: bool = True
    takes_cumulative_acks: bool = False
    failover: bool = False
    last_slot: int = SLOTS - 1


def create_broker(options: DispatcherOptions, window: int = 1024, output: int = 4096) -> Broker:
    """Create a dispatcher without consumers, at the start of its log.

    ``window`` is a power of two (at least 64) and grows with ``grow_window``. ``output`` is how many dispatches may
    wait for the caller.
    """
    max_read = options.settings.max_read
    output = max(output, max_read)
    return Broker(
        rule=_build_rule(options),
        state=_build_state(options),
        consumers=create_records(0, CONSUMER),
        log=create_records(window, ENTRY),
        words=np.zeros(window // 64, np.uint64),
        blocks=np.zeros(max(window // 4096, 1), np.int32),
        tracker=_create_tracker(window),
        stamps=np.zeros(options.last_slot + 1 if _is_draining(options) else 0, np.int64),
        reads=np.zeros((READ_ROWS, max_read), np.int64),
        tasks=create_records(_find_ring_size(output), TASK),
        dispatched=create_records(output, DISPATCHED),
        delayed=create_records(window, DELAYED),
        pins=create_records(64, PIN),
        buckets=np.zeros(BUCKETS, np.int32),
        ranges=create_records(0, RANGE),
        sharers=np.zeros(0, np.int64),
    )


def grow_consumers(broker: Broker, count: int) -> Broker:
    """Return ``broker`` with space for consumers of indexes below ``count``."""
    known_count = len(broker.consumers)
    if count <= known_count:
        return broker
    consumers = create_records(max(count, 2 * known_count), CONSUMER)
    consumers.joined_at = NOBODY
    consumers[:known_count] = broker.consumers
    reads = np.zeros((READ_ROWS, max(broker.reads.shape[1], len(consumers))), np.int64)
    reads[:, : broker.reads.shape[1]] = broker.reads
    return broker._replace(consumers=consumers, reads=reads)


def grow_window(broker: Broker, count: int) -> Broker:
    """Return ``broker`` with space for ``count`` entries between the first unfinished and the last published one."""
    size = len(broker.log)
    while size < count:
        size *= 2
    return _grow_log(_grow_delayed(broker, size), size)


def _grow_delayed(broker: Broker, more: int) -> Broker:
    """Return ``broker`` with space for ``more`` delayed entries. Expired ones are tracked too until they are due."""
    known_count = int(broker.state[0].delayed)
    if known_count + more <= len(broker.delayed):
        return broker
    delayed = create_records(2 * known_count + more, DELAYED)
    delayed[:known_count] = broker.delayed[:known_count]
    return broker._replace(delayed=delayed)


def _grow_log(broker: Broker, size: int) -> Broker:
    if size == len(broker.log):
        return broker
    ordinals = np.arange(int(broker.state[0].start), int(broker.state[0].end))
    old, new = ordinals & (len(broker.log) - 1), ordinals & (size - 1)
    log, tracker = create_records(size, ENTRY), _create_tracker(size)
    log[new] = broker.log[old]
    words, blocks = np.zeros(size // 64, np.uint64), np.zeros(max(size // 4096, 1), np.int32)
    waiting = new[(broker.words[old >> 6] >> (old & 63).astype(np.uint64)) & np.uint64(1) > 0]
    np.bitwise_or.at(words, waiting >> 6, np.uint64(1) << (waiting & 63).astype(np.uint64))
    np.add.at(blocks, waiting >> 12, 1)
    _move_hashes(broker.tracker, tracker)
    return broker._replace(log=log, words=words, blocks=blocks, tracker=tracker)


def _find_ring_size(output: int) -> int:
    """Return the size for all tasks of an instant: each sent entry may cause a request for permits, and a read."""
    return 1 << (2 * output + SMALLEST_WINDOW).bit_length()


def _is_draining(options: DispatcherOptions) -> bool:
    return options.dispatcher == DispatcherKind.KEY_SHARED_DRAINING


def _build_rule(options: DispatcherOptions) -> Records:
    """Return every field of the rule, the settings and the subscription in one record."""
    values = asdict(options)
    values = values.pop("rule") | values.pop("settings") | values
    values["ordered"] = options.ordered and options.dispatcher >= DispatcherKind.KEY_SHARED_JOINED
    values["drains"] = _is_draining(options) and options.ordered and options.drains
    values["individual"] = options.dispatcher != DispatcherKind.SINGLE_ACTIVE
    fields = [(name, "?" if isinstance(value, bool) else "i8") for name, value in values.items()]
    return np.array([tuple(values.values())], np.dtype(fields, align=True)).view(np.recarray)


def _build_state(options: DispatcherOptions) -> Records:
    records = create_records(1, STATE)
    state = records[0]
    state.mark_delete = state.least_replayed = state.tick_for = -1
    state.active = state.reader = NOBODY
    state.retry_at = state.unblock_at = state.switch_at = state.tick_at = state.wheel_start = NEVER
    state.last_tick = -NEVER // 2
    state.fixed_delay = True
    state.shift = (options.last_slot // BUCKETS).bit_length()
    return records


def _create_tracker(window: int) -> Records:
    """Create an empty table with space for every hash of a window. Hashes below 65536 never collide in it."""
    tracker = create_records(max(SLOTS, 2 * window), TRACKED_HASH)
    tracker.hash = tracker.drainer = NOBODY
    return tracker


def _move_hashes(old: Records, new: Records) -> None:
    mask = len(new) - 1
    for tracked in old[old.hash != NOBODY]:
        at = int(tracked.hash) & mask
        while new[at].hash != NOBODY:
            at = (at + 1) & mask
        new[at] = tracked
