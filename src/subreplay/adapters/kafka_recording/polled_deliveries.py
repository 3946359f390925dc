"""Build the canonical deliveries of a recorded Kafka group from its polls, with the commit that acknowledged each."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Any, Final, NamedTuple

import pyarrow as pa

from subreplay.adapters.kafka_recording.recording_rows import ClientCommit, ClientEvent, PolledRecord
from subreplay.rows.model.tables import DELIVERIES

Place = tuple[str, int]
NEVER_REDELIVERED: Final = 2**63 - 1


class CommittedOffset(NamedTuple):
    """A committed offset: when (ns), the next offset to read, and the consumer (None: its client was killed before it
    could report the commit)."""

    done_at: int
    offset: int
    consumer: str | None


def build_delivery_table(
    group: str,
    polls: Sequence[PolledRecord],
    commits: Sequence[ClientCommit],
    logged: pa.Table,
    client_events: Sequence[ClientEvent] = (),
) -> pa.Table:
    """Build a row of ``DELIVERIES`` for each poll row. Consumers are member ids, as in the group's membership.

    A delivery is acknowledged by the first later commit of its own client beyond it, before the record was polled
    again. Clients report when a commit was done. ``logged`` (``offset_commits`` of ``__consumer_offsets``) adds commits
    of killed clients, to the millisecond. Records that an application sought back to (``client_events``) are
    redelivered.
    """
    committed = _group_commits(commits, logged)
    again: dict[tuple[str, int, int], int] = {}
    ends = list[int]()
    for row in reversed(polls_in_order := sorted(polls, key=lambda row: row.polled_at)):
        record = row.topic, row.partition, row.offset
        ends.append(again.get(record, NEVER_REDELIVERED))
        again[record] = row.polled_at
    rows = list(_build_rows(group, polls_in_order, ends[::-1], committed))
    _mark_seeks(rows, client_events)
    return pa.Table.from_pylist(rows, DELIVERIES)


def _mark_seeks(rows: Sequence[dict[str, Any]], client_events: Sequence[ClientEvent]) -> None:
    """Mark the latest deliveries of records that were sought back to as negatively acknowledged."""
    of: dict[tuple[str, int, int], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        of[row["topic"], row["partition"], row["entry"]].append(row)
    for seek in (seek for happened in client_events for seek in happened.seeks):
        for offset in range(seek.to, seek.from_):
            times = (row["delivered_at"] for row in of[seek.topic, seek.partition, offset])
            before = [at * 1_000 <= seek.at for at in times].count(True)
            if before:
                latest = of[seek.topic, seek.partition, offset][before - 1]
                latest |= {"nacked_at": seek.at // 1_000, "nacked_nanos": seek.at % 1_000}


def _build_rows(
    group: str, polls: Sequence[PolledRecord], ends: Sequence[int], committed: Mapping[Place, Sequence[CommittedOffset]]
) -> Iterator[dict[str, Any]]:
    times: dict[tuple[str, int, int], int] = defaultdict(int)
    for seq, (row, end) in enumerate(zip(polls, ends, strict=True)):
        acked = _find_ack(row, committed.get((row.topic, row.partition), ()), end)
        record = row.topic, row.partition, row.offset
        yield build_delivery_row(group, row.polled_at, record, row.member_id, seq) | {
            "delivered_at": row.polled_at // 1_000,
            "delivered_nanos": row.polled_at % 1_000,
            "redelivery_count": times[record],
            "received_at": row.polled_at // 1_000,
            "acked_at": None if acked is None else acked // 1_000,
            "acked_nanos": None if acked is None else acked % 1_000,
            "ack_type": None if acked is None else "Cumulative",
            "outcome": "acked" if acked is not None else "redelivered" if end < NEVER_REDELIVERED else "pending",
        }
        times[record] += 1


def build_delivery_row(group: str, at: int, record: tuple[str, int, int], consumer: str, seq: int) -> dict[str, Any]:
    """Build the columns that all rows of ``DELIVERIES`` share: the record (topic, partition, offset), the consumer, and
    the time (ns)."""
    topic, partition, offset = record
    return {
        "date": date(1970, 1, 1) + timedelta(microseconds=at // 1_000),
        "subscription": group,
        "topic": topic,
        "partition": partition,
        "ledger": 0,
        "entry": offset,
        "batch_index": -1,
        "consumer": consumer,
        "seq": seq,
        "redelivery_count": 0,
        "source": "observed",
    }


def _find_ack(poll: PolledRecord, commits: Sequence[CommittedOffset], end: int) -> int | None:
    """Find the time of the commit by the poll's client that acknowledged it, before ``end``."""
    for one in commits[bisect_left(commits, (poll.polled_at,)) :]:
        if one.done_at > end:
            return None
        if one.offset > poll.offset and one.consumer in (poll.consumer, None):
            return one.done_at
    return None


def _group_commits(commits: Sequence[ClientCommit], logged: pa.Table) -> dict[Place, list[CommittedOffset]]:
    """Group the successful commits by partition, in time order."""
    found: dict[Place, list[CommittedOffset]] = defaultdict(list)
    reported = {(row.topic, row.partition, row.offset) for row in commits if row.ok}
    for row in commits:
        if row.ok:
            found[row.topic, row.partition].append(CommittedOffset(row.done_at, row.offset, row.consumer))
    times = logged["committed_at"].cast(pa.int64())
    for one, at in zip(logged.drop_columns(["committed_at"]).to_pylist(), times.to_pylist(), strict=True):
        if not one["tombstone"] and (one["topic"], one["partition"], one["offset"]) not in reported:
            found[one["topic"], one["partition"]].append(CommittedOffset(at * 1_000, one["offset"], None))
    return {place: sorted(each, key=lambda one: one[:2]) for place, each in found.items()}
