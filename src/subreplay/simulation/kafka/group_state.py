"""A group as flat arrays that kernels change: members, partitions with uncommitted records, and deliveries.

Records that wait in a partition are a list in ``records``, linked by ``next``; the backlog takes one such row for each
record. Delivered and uncommitted records are in ``uncommitted``, in processing order: each member has blocks of
``BLOCK`` rows, linked by ``blocks``. Finished deliveries become rows of ``rows``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from subreplay.simulation.kafka.member_schedule import Schedule, create_schedule, enlarge_schedule
from subreplay.simulation.kafka.simulation_parameters import MemberModel, SimulationParameters
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records, create_records
from subreplay.simulation.pulsar.service_model import SERVICE, write_service

NONE = -1
"""No record, no member, no time."""
ROWS = 16384
"""About how many rows are returned at once."""

LOGGED = np.dtype(
    [
        ("ready", "i8"),  # when it could be read: not before earlier records of its partition
        ("at", "i8"),  # published
        ("ledger", "i8"),
        ("entry", "i8"),
        ("batch_index", "i4"),
        ("partition", "i4"),  # number in the group's ``Partitions``
        ("size", "i4"),  # bytes
    ],
    align=True,
)
"""A record of the log as the replay reads it: in order of ``ready``, and within a partition in log order."""

CONSUMED = np.dtype(
    [
        ("at", "i8"),
        ("ledger", "i8"),
        ("entry", "i8"),
        ("delivered_at", "i8"),  # time of the poll that returned it
        ("received_at", "i8"),  # the application began to process it
        ("processed_at", "i8"),  # the application finished it
        ("acked_at", "i8"),  # its offset was committed
        ("nacked_at", "i8"),  # its member was evicted for not polling
        ("batch_index", "i4"),
        ("size", "i4"),  # bytes
        ("partition", "i4"),
        ("member", "i4"),  # ordinal of its join, or -1: not delivered
        ("redeliveries", "i4"),
        ("outcome", "i4"),  # an ``Outcome``
    ],
    align=True,
)
"""A predicted delivery of one record. Times are in ns, -1 for what did not happen."""

RECORD = np.dtype(
    [
        ("at", "i8"),
        ("ledger", "i8"),
        ("entry", "i8"),
        ("batch_index", "i4"),
        ("size", "i4"),
        ("deliveries", "i4"),
        ("next", "i4"),  # next record of its partition; or the next free row
    ],
    align=True,
)
UNCOMMITTED = np.dtype(
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
        ("first", "i4"),  # the waiting record that is delivered next
        ("last", "i4"),
        ("returned", "i4"),  # while records are returned: the last returned one
        ("queued", "?"),  # it is in its owner's queue
        ("behind", "i4"),  # the next one in that queue
        ("fetched", "i4"),  # remaining records of the current fetch; 0: none
        ("fetched_bytes", "i8"),
        ("waiting", "i8"),  # records not delivered
        ("committed", "?"),  # whether any offset of it was committed
        ("interval", "i8"),  # number of the interval that is counted
        ("published", "i8"),  # in the interval
        ("settled", "i8"),
    ],
    align=True,
)
MEMBER = np.dtype(
    [
        ("runs", "?"),  # its process is running
        ("evicted", "?"),  # it is out of the group, although its process is running
        ("paused", "?"),  # it waits for its assignment
        ("busy", "?"),  # with a batch
        ("done_at", "i8"),  # when it has processed its batch
        ("overdue_at", "i8"),  # when it should have polled again
        ("call_at", "i8"),  # it contacts the coordinator with its first poll from then on
        ("action_at", "i8"),  # between two polls from then on its application has something to do
        ("polls_from", "i8"),  # end of its latest batch
        ("poll_time", "i8"),  # an empty poll ends after this time
        ("after_batches", "?"),  # it commits after a batch, not from a poll
        ("blocked", "?"),  # it cannot commit: between its rejoining and its assignment
        ("commit_interval", "i8"),
        ("commit_at", "i8"),  # the next commit is due
        ("committed_at", "i8"),  # time of the latest commit
        ("stall", "i4"),  # the next of its stalls
        ("stalls_end", "i4"),
        ("queue_first", "i4"),  # first partition with records for it
        ("queue_last", "i4"),
        ("uncommitted_first", "i4"),  # first block of its uncommitted records
        ("uncommitted_last", "i4"),
        ("uncommitted", "i8"),  # deliveries
        ("stuck_from", "i8"),
        ("stuck_until", "i8"),
    ],
    align=True,
)
STALL = np.dtype([("at", "i8"), ("time", "i8"), ("least", "i8")])
LAG = np.dtype([("interval", "i8"), ("partition", "i8"), ("published", "i8"), ("settled", "i8")])
"""The records published to a partition, and committed, in one interval (by its number)."""
TOTALS = np.dtype(
    [
        ("now", "i8"),
        ("turning", "i8"),  # the member that contacts the coordinator
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
        ("interval_number", "i8"),  # number of the current interval
        ("interval_end", "i8"),
        ("seed", "i8"),
    ]
)


class State(NamedTuple):
    """The whole state of a group. Copies of the tuple share the arrays."""

    totals: Records  # [0]
    members: Records  # [ordinal of the join]
    services: Records  # [ordinal of the join]
    quantiles: NDArray[np.float64]
    stalls: Records  # those of a member follow those of the previous one
    schedule: Schedule
    partitions: Records
    records: Records
    uncommitted: Records
    blocks: NDArray[np.int64]  # the block that follows each block
    rows: Records
    lags: Records


def create_state(partitions: int, parameters: SimulationParameters) -> State:
    """Create a group without members, records and deliveries."""
    totals = create_records(1, TOTALS)
    totals_row = totals[0]
    totals_row.free_record = totals_row.free_block = NONE
    totals_row.interval_end = -NEVER
    for name in ("max_poll_records", "max_partition_fetch_bytes", "max_poll_interval", "interval", "seed"):  # fmt: skip
        totals_row[name] = getattr(parameters, name)
    rows = create_records(partitions, PARTITION)
    for name in ("owner", "first", "last", "returned", "behind", "interval"):
        rows[name] = NONE
    state = State(
        totals=totals,
        members=create_records(0, MEMBER),
        services=create_records(0, SERVICE),
        quantiles=np.zeros(0, np.float64),
        stalls=create_records(0, STALL),
        schedule=create_schedule(1),
        partitions=rows,
        records=create_records(0, RECORD),
        uncommitted=create_records(0, UNCOMMITTED),
        blocks=np.zeros(0, np.int64),
        rows=create_records(ROWS, CONSUMED),
        lags=create_records(ROWS + partitions, LAG),
    )
    return grow_blocks(grow_records(state, ROWS), count_blocks(parameters.max_poll_records))


def add_member(state: State, member: int, model: MemberModel, commit_interval: int) -> State:
    """Return ``state`` with one more member, which waits for an assignment.

    ``commit_interval`` is the default of models without one.
    """
    services = _extend(state.services, member + 1)
    quantiles = write_service(services[member], model.service, model.factor, len(state.quantiles))
    members = _extend(state.members, member + 1)
    member_row = members[member]
    member_row.runs = member_row.paused = True
    member_row.done_at = member_row.overdue_at = member_row.call_at = member_row.action_at = NEVER
    member_row.polls_from, member_row.poll_time = state.totals[0].now + model.warm_up, model.poll_time
    member_row.after_batches = model.commit == "sync"
    member_row.commit_interval = commit_interval if model.commit_interval is None else model.commit_interval
    member_row.commit_at = member_row.polls_from + member_row.commit_interval
    member_row.committed_at = NONE
    member_row.stall, member_row.stalls_end = len(state.stalls), len(state.stalls) + len(model.stalls)
    stalls = _extend(state.stalls, member_row.stalls_end)
    for row, stall in zip(stalls[member_row.stall :], model.stalls, strict=True):
        row.at, row.time, row.least = stall.at, stall.time, stall.least
    member_row.queue_first = member_row.queue_last = member_row.uncommitted_first = member_row.uncommitted_last = NONE
    member_row.stuck_from = NEVER if model.stuck_from is None else model.stuck_from
    member_row.stuck_until = NEVER if model.stuck_until is None else model.stuck_until
    leaves = len(state.schedule) // 2
    schedule = state.schedule if member < leaves else enlarge_schedule(state.schedule, member + 1)
    return state._replace(
        members=members,
        services=services,
        quantiles=np.concatenate([state.quantiles, quantiles]),
        stalls=stalls,
        schedule=schedule,
    )


def grow_records(state: State, more: int) -> State:
    """Return ``state`` with space for at least ``more`` more waiting records."""
    known_count, t = len(state.records), state.totals[0]
    records = _extend(state.records, max(2 * known_count, known_count + more))
    records[known_count:].next = np.arange(known_count + 1, len(records) + 1)
    records[-1].next = t.free_record
    t.free_record = known_count
    t.free_records += len(records) - known_count
    return state._replace(records=records)


def count_blocks(records: int) -> int:
    """Return the largest number of blocks that a batch fills."""
    return records // BLOCK + 2


def grow_blocks(state: State, more: int) -> State:
    """Return ``state`` with at least ``more`` more blocks."""
    known_count, t = len(state.blocks), state.totals[0]
    count = max(2 * known_count, known_count + more)
    blocks = np.concatenate([state.blocks, np.arange(known_count + 1, count + 1)])
    blocks[-1] = t.free_block
    t.free_block = known_count
    t.free_blocks += count - known_count
    return state._replace(blocks=blocks, uncommitted=_extend(state.uncommitted, count * BLOCK))


def grow_rows(state: State, most: int) -> State:
    """Return ``state`` with rows for ``most`` deliveries at once."""
    if len(state.rows) >= most and len(state.lags) >= most:
        return state
    return state._replace(rows=_extend(state.rows, ROWS + most), lags=_extend(state.lags, ROWS + most))


def _extend(rows: Any, count: int) -> Records:
    longer = create_records(max(count, len(rows)), rows.dtype)
    longer[: len(rows)] = rows
    return longer
