"""The state of one dispatcher: a subscription's view of one topic or partition, as flat arrays that kernels change.

An entry is known by its ordinal in the log, from 0. Only a window of the log is held: the entries from the first that
is not done with to the last that was published.
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
    empty_records,
)
from subreplay.simulation.pulsar.broker.dispatch_rules import DEFAULTS, DispatcherKind, DispatchRule, Settings

SLOTS = 65536
"""A slot that is a sticky hash at the same time is below this."""
BUCKETS = 16384
"""Into how many equal parts the slots are cut, to find an owner almost without a search; few enough to stay in the
processor's cache."""
READ_ROWS = 4
SMALLEST_WINDOW = 64


@pass_by_reference
class Broker(NamedTuple):
    """One dispatcher. Arrays are shared with whoever holds another tuple of the same state."""

    rule: Records  # [0]: DispatchRule and Settings
    state: Records  # [0]
    consumers: Records  # [index of the consumer]
    log: Records  # [ordinal modulo length]
    words: NDArray[np.uint64]  # replay set: a bit per entry of the window
    blocks: NDArray[np.int32]  # waiting entries per 64 words
    tracker: Records  # hash table
    stamps: NDArray[np.int64]  # 4.x: [hash]: number of the distribution of entries in which it is held back
    reads: NDArray[np.int64]  # [row][at]: ordinals of a normal and of a replay read, their owners, whom they served
    tasks: Records  # ring
    dispatched: Records  # entries handed out since the caller last looked: state.dispatched of them
    delayed: Records  # heap
    pins: Records  # chunked messages that are bound to a consumer
    buckets: NDArray[np.int32]  # first range that reaches into a bucket of slots
    ranges: Records
    sharers: NDArray[np.int64]  # consumers of shared points


@dataclass(frozen=True)
class DispatcherOptions:
    """What a dispatcher is told when it is made.

    Only Key_Shared looks at ``ordered`` (not ``allowOutOfOrderDelivery``) and ``drains`` (a hash may wait for its
    former consumer); ``failover`` tells Failover from Exclusive. ``last_slot`` is the end of the selector's slots.
    """

    dispatcher: DispatcherKind
    rule: DispatchRule
    settings: Settings = DEFAULTS
    ordered: bool = True
    drains: bool = True
    failover: bool = False
    last_slot: int = SLOTS - 1


def new_broker(options: DispatcherOptions, window: int = 1024, output: int = 4096) -> Broker:
    """A dispatcher nobody has joined, at the start of its log.

    ``window`` is a power of two (at least 64) and grows with ``with_window``; ``output`` is how many dispatches may
    await the caller.
    """
    max_read = options.settings.max_read
    output = max(output, max_read)
    return Broker(
        rule=_rule(options),
        state=_state(options),
        consumers=empty_records(0, CONSUMER),
        log=empty_records(window, ENTRY),
        words=np.zeros(window // 64, np.uint64),
        blocks=np.zeros(max(window // 4096, 1), np.int32),
        tracker=_new_tracker(window),
        stamps=np.zeros(options.last_slot + 1 if _drains(options) else 0, np.int64),
        reads=np.zeros((READ_ROWS, max_read), np.int64),
        tasks=empty_records(_ring(output), TASK),
        dispatched=empty_records(output, DISPATCHED),
        delayed=empty_records(window, DELAYED),
        pins=empty_records(64, PIN),
        buckets=np.zeros(BUCKETS, np.int32),
        ranges=empty_records(0, RANGE),
        sharers=np.zeros(0, np.int64),
    )


def with_consumers(broker: Broker, count: int) -> Broker:
    """``broker`` with room for consumers of indexes below ``count``."""
    known = len(broker.consumers)
    if count <= known:
        return broker
    consumers = empty_records(max(count, 2 * known), CONSUMER)
    consumers.joined_at = NOBODY
    consumers[:known] = broker.consumers
    reads = np.zeros((READ_ROWS, max(broker.reads.shape[1], len(consumers))), np.int64)
    reads[:, : broker.reads.shape[1]] = broker.reads
    return broker._replace(consumers=consumers, reads=reads)


def with_window(broker: Broker, count: int) -> Broker:
    """``broker`` with room for ``count`` entries between the first not done with and the last published."""
    size = len(broker.log)
    while size < count:
        size *= 2
    return _with_log(_with_delayed(broker, size), size)


def _with_delayed(broker: Broker, more: int) -> Broker:
    """``broker`` with room for ``more`` delayed entries: it tracks what expired, too, until it is due."""
    known = int(broker.state[0].delayed)
    if known + more <= len(broker.delayed):
        return broker
    delayed = empty_records(2 * known + more, DELAYED)
    delayed[:known] = broker.delayed[:known]
    return broker._replace(delayed=delayed)


def _with_log(broker: Broker, size: int) -> Broker:
    if size == len(broker.log):
        return broker
    held = np.arange(int(broker.state[0].start), int(broker.state[0].end))
    old, new = held & (len(broker.log) - 1), held & (size - 1)
    log, tracker = empty_records(size, ENTRY), _new_tracker(size)
    log[new] = broker.log[old]
    words, blocks = np.zeros(size // 64, np.uint64), np.zeros(max(size // 4096, 1), np.int32)
    waiting = new[(broker.words[old >> 6] >> (old & 63).astype(np.uint64)) & np.uint64(1) > 0]
    np.bitwise_or.at(words, waiting >> 6, np.uint64(1) << (waiting & 63).astype(np.uint64))
    np.add.at(blocks, waiting >> 12, 1)
    _move_hashes(broker.tracker, tracker)
    return broker._replace(log=log, words=words, blocks=blocks, tracker=tracker)


def _ring(output: int) -> int:
    """Room for all tasks at an instant: whoever is handed an entry may ask for more at once, and for a read."""
    return 1 << (2 * output + SMALLEST_WINDOW).bit_length()


def _drains(options: DispatcherOptions) -> bool:
    return options.dispatcher == DispatcherKind.KEY_SHARED_DRAINING


def _rule(options: DispatcherOptions) -> Records:
    """Every field of the rule, the settings and the subscription in one record."""
    values = asdict(options)
    values = values.pop("rule") | values.pop("settings") | values
    values["ordered"] = options.ordered and options.dispatcher >= DispatcherKind.KEY_SHARED_JOINED
    values["drains"] = _drains(options) and options.ordered and options.drains
    values["individual"] = options.dispatcher != DispatcherKind.SINGLE_ACTIVE
    fields = [(name, "?" if isinstance(value, bool) else "i8") for name, value in values.items()]
    return np.array([tuple(values.values())], np.dtype(fields, align=True)).view(np.recarray)


def _state(options: DispatcherOptions) -> Records:
    records = empty_records(1, STATE)
    state = records[0]
    state.mark_delete = state.least_replayed = state.tick_for = -1
    state.active = state.reader = NOBODY
    state.retry_at = state.unblock_at = state.switch_at = state.tick_at = state.wheel_start = NEVER
    state.last_tick = -NEVER // 2
    state.fixed_delay = True
    state.shift = (options.last_slot // BUCKETS).bit_length()
    return records


def _new_tracker(window: int) -> Records:
    """An empty table with room for every hash of a window; hashes below 65536 never collide in it."""
    tracker = empty_records(max(SLOTS, 2 * window), TRACKED_HASH)
    tracker.hash = tracker.drainer = NOBODY
    return tracker


def _move_hashes(old: Records, new: Records) -> None:
    mask = len(new) - 1
    for tracked in old[old.hash != NOBODY]:
        at = int(tracked.hash) & mask
        while new[at].hash != NOBODY:
            at = (at + 1) & mask
        new[at] = tracked
