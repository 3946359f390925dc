"""A group as flat arrays that kernels change: members, partitions with the records that are not committed, deliveries.

What waits in a partition is a list in ``records``, linked by ``next``: one such row a record is what the backlog takes.
What was delivered and is not committed stands in ``held`` instead, in the order of processing: each member has blocks
of ``BLOCK`` rows, linked by ``blocks``, which it fills one after the other. What is over becomes a row of ``rows``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from subreplay.simulation.kafka.member_schedule import Schedule, larger, new_schedule
from subreplay.simulation.kafka.simulation_parameters import MemberModel, SimulationParameters
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records, empty_records
from subreplay.simulation.pulsar.service_model import SERVICE, write_service

NONE = -1
"""No record, no member, no time."""
ROWS = 16384
"""About how many rows are handed out at once."""

LOGGED = np.dtype(
    [
        ("ready", "i8"),  # when it could be read: not before those before it in its partition
        ("at", "i8"),  # published
        ("ledger", "i8"),
        ("entry", "i8"),
        ("batch_index", "i4"),
        ("partition", "i4"),  # number in the group's ``Partitions``
        ("size", "i4"),  # bytes
    ],
    align=True,
)
"""A record of the log, as the replay reads it: in order of ``ready``, within a partition in order of the log."""

CONSUMED = np.dtype(
    [
        ("at", "i8"),
        ("ledger", "i8"),
        ("entry", "i8"),
        ("delivered_at", "i8"),  # the poll that it came with
        ("received_at", "i8"),  # the application began with it
        ("processed_at", "i8"),  # and was done
        ("acked_at", "i8"),  # its offset was committed
        ("nacked_at", "i8"),  # its member was evicted for not polling
        ("batch_index", "i4"),
        ("size", "i4"),  # bytes
        ("partition", "i4"),
        ("member", "i4"),  # ordinal of its join, or -1: delivered to nobody
        ("redeliveries", "i4"),
        ("outcome", "i4"),  # an ``Outcome``
    ],
    align=True,
)
"""A predicted delivery of one record; times in ns, -1 for what did not happen."""

RECORD = np.dtype(
    [
        ("at", "i8"),
        ("ledger", "i8"),
        ("entry", "i8"),
        ("batch_index", "i4"),
        ("size", "i4"),
        ("deliveries", "i4"),
        ("next", "i4"),  # of its partition; or the next free row
    ],
    align=True,
)
HELD = np.dtype(
    [
        ("at", "i8"),
        ("ledger", "i8"),
        ("entry", "i8"),
        ("delivered_at", "i8"),
        ("received_at", "i8"),
        ("processed_at", "i8"),
        ("batch_index", "i4"),
        ("size", "i4"),
        ("deliveries", "i4"),
        ("partition", "i4"),
    ],
    align=True,
)
BLOCK = 64
PARTITION = np.dtype(
    [
        ("owner", "i4"),  # the member that fetches it
        ("first", "i4"),  # of its records that wait: the one that is delivered next
        ("last", "i4"),
        ("returned", "i4"),  # while records come back: the last one that did
        ("queued", "?"),  # it stands in its owner's queue
        ("behind", "i4"),  # the next one in that queue
        ("fetched", "i4"),  # records left of the fetch that is handed out; 0: none is
        ("fetched_bytes", "i8"),
        ("waiting", "i8"),  # records not delivered
        ("committed", "?"),  # an offset of it was, ever
        ("interval", "i8"),  # number of the interval that is counted
        ("published", "i8"),  # in it
        ("settled", "i8"),
    ],
    align=True,
)
MEMBER = np.dtype(
    [
        ("runs", "?"),  # its process lives
        ("evicted", "?"),  # it is out of the group, though its process lives
        ("paused", "?"),  # it waits for its assignment
        ("busy", "?"),  # with a batch
        ("done_at", "i8"),  # when it has processed its batch
        ("overdue_at", "i8"),  # when it should have polled again
        ("call_at", "i8"),  # with its first poll from then on, or out of it, it turns to the coordinator
        ("action_at", "i8"),  # between two polls from then on its application has something to do
        ("polls_from", "i8"),  # its latest batch was done
        ("poll_time", "i8"),  # after so long a poll that brings nothing is followed by the next one
        ("after_batches", "?"),  # it commits after a batch, not out of a poll
        ("blocked", "?"),  # it cannot commit: between its rejoining and its assignment
        ("commit_interval", "i8"),
        ("commit_at", "i8"),  # the next one is due
        ("committed_at", "i8"),  # the latest one
        ("stall", "i4"),  # the next of its stalls
        ("stalls_end", "i4"),
        ("queue_first", "i4"),  # of the partitions with records for it
        ("queue_last", "i4"),
        ("held_first", "i4"),  # of the blocks with what it holds
        ("held_last", "i4"),
        ("held", "i8"),  # deliveries
        ("stuck_from", "i8"),
        ("stuck_until", "i8"),
    ],
    align=True,
)
STALL = np.dtype([("at", "i8"), ("time", "i8"), ("least", "i8")])
LAG = np.dtype([("interval", "i8"), ("partition", "i8"), ("published", "i8"), ("settled", "i8")])
"""Records that were published to a partition, and committed, in one interval (by its number)."""
TOTALS = np.dtype(
    [
        ("now", "i8"),
        ("who", "i8"),  # the member that turns to the coordinator
        ("between", "i8"),  # 1: its application is between two polls
        ("free_record", "i8"),
        ("free_records", "i8"),
        ("free_block", "i8"),
        ("free_blocks", "i8"),
        ("rows", "i8"),
        ("lags", "i8"),
        ("settled", "i8"),  # records
        ("max_poll_records", "i8"),
        ("max_partition_fetch_bytes", "i8"),
        ("max_poll_interval", "i8"),
        ("interval", "i8"),
        ("interval_number", "i8"),  # of the current one
        ("interval_end", "i8"),
        ("seed", "i8"),
    ]
)


class State(NamedTuple):
    """All of a group. Arrays are shared with whoever holds another tuple of the same state."""

    totals: Records  # [0]
    members: Records  # [ordinal of the join]
    services: Records  # [ordinal of the join]
    quantiles: NDArray[np.float64]
    stalls: Records  # of a member after those of the one before
    schedule: Schedule
    partitions: Records
    records: Records
    held: Records
    blocks: NDArray[np.int64]  # the block behind each block
    rows: Records
    lags: Records


def new_state(partitions: int, parameters: SimulationParameters) -> State:
    """A group without members, records and deliveries."""
    totals = empty_records(1, TOTALS)
    it = totals[0]
    it.free_record = it.free_block = NONE
    it.interval_end = -NEVER
    for name in ("max_poll_records", "max_partition_fetch_bytes", "max_poll_interval", "interval", "seed"):  # fmt: skip
        it[name] = getattr(parameters, name)
    rows = empty_records(partitions, PARTITION)
    for name in ("owner", "first", "last", "returned", "behind", "interval"):
        rows[name] = NONE
    state = State(
        totals=totals,
        members=empty_records(0, MEMBER),
        services=empty_records(0, SERVICE),
        quantiles=np.zeros(0, np.float64),
        stalls=empty_records(0, STALL),
        schedule=new_schedule(1),
        partitions=rows,
        records=empty_records(0, RECORD),
        held=empty_records(0, HELD),
        blocks=np.zeros(0, np.int64),
        rows=empty_records(ROWS, CONSUMED),
        lags=empty_records(ROWS + partitions, LAG),
    )
    return with_blocks(with_records(state, ROWS), blocks_for(parameters.max_poll_records))


def with_member(state: State, member: int, model: MemberModel, commit_interval: int) -> State:
    """``state`` with one more, who waits for an assignment; ``commit_interval`` is that of a model that has none."""
    services = _longer(state.services, member + 1)
    quantiles = write_service(services[member], model.service, model.factor, len(state.quantiles))
    members = _longer(state.members, member + 1)
    it = members[member]
    it.runs = it.paused = True
    it.done_at = it.overdue_at = it.call_at = it.action_at = NEVER
    it.polls_from, it.poll_time = state.totals[0].now + model.warm_up, model.poll_time
    it.after_batches = model.commit == "sync"
    it.commit_interval = commit_interval if model.commit_interval is None else model.commit_interval
    it.commit_at = it.polls_from + it.commit_interval
    it.committed_at = NONE
    it.stall, it.stalls_end = len(state.stalls), len(state.stalls) + len(model.stalls)
    stalls = _longer(state.stalls, it.stalls_end)
    for row, stall in zip(stalls[it.stall :], model.stalls, strict=True):
        row.at, row.time, row.least = stall.at, stall.time, stall.least
    it.queue_first = it.queue_last = it.held_first = it.held_last = NONE
    it.stuck_from = NEVER if model.stuck_from is None else model.stuck_from
    it.stuck_until = NEVER if model.stuck_until is None else model.stuck_until
    leaves = len(state.schedule) // 2
    schedule = state.schedule if member < leaves else larger(state.schedule, member + 1)
    return state._replace(
        members=members,
        services=services,
        quantiles=np.concatenate([state.quantiles, quantiles]),
        stalls=stalls,
        schedule=schedule,
    )


def with_records(state: State, more: int) -> State:
    """``state`` with room for at least ``more`` waiting records more."""
    known, t = len(state.records), state.totals[0]
    records = _longer(state.records, max(2 * known, known + more))
    records[known:].next = np.arange(known + 1, len(records) + 1)
    records[-1].next = t.free_record
    t.free_record = known
    t.free_records += len(records) - known
    return state._replace(records=records)


def blocks_for(records: int) -> int:
    """At most so many blocks are filled by a batch."""
    return records // BLOCK + 2


def with_blocks(state: State, more: int) -> State:
    """``state`` with ``more`` blocks at least."""
    known, t = len(state.blocks), state.totals[0]
    count = max(2 * known, known + more)
    blocks = np.concatenate([state.blocks, np.arange(known + 1, count + 1)])
    blocks[-1] = t.free_block
    t.free_block = known
    t.free_blocks += count - known
    return state._replace(blocks=blocks, held=_longer(state.held, count * BLOCK))


def with_rows(state: State, most: int) -> State:
    """``state`` with rows for ``most`` deliveries at once."""
    if len(state.rows) >= most and len(state.lags) >= most:
        return state
    return state._replace(rows=_longer(state.rows, ROWS + most), lags=_longer(state.lags, ROWS + most))


def _longer(rows: Any, count: int) -> Records:
    longer = empty_records(max(count, len(rows)), rows.dtype)
    longer[: len(rows)] = rows
    return longer
