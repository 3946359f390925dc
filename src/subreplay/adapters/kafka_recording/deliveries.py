"""The canonical deliveries of a recorded Kafka group: what each poll gave to an application, and what committed it."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Any, Final, NamedTuple

import pyarrow as pa

from subreplay.adapters.kafka_recording.rows import Commit, Happening, Poll
from subreplay.rows.model.tables import DELIVERIES

Place = tuple[str, int]
UNTIMED: Final = 2**63 - 1


class Committed(NamedTuple):
    """An offset that was committed: when (ns), up to which record, by whom (None: its client did not live to tell)."""

    done_at: int
    offset: int
    consumer: str | None


def delivery_table(
    group: str,
    polls: Sequence[Poll],
    commits: Sequence[Commit],
    logged: pa.Table,
    happenings: Sequence[Happening] = (),
) -> pa.Table:
    """A row of ``DELIVERIES`` for each poll row; consumers are member ids, as in the group's membership.

    A delivery is acknowledged by the first commit behind it that its own client made, before the record was given out
    again. Clients say when a commit was done; ``logged`` (``offset_commits`` of ``__consumer_offsets``) adds, to the
    millisecond, those whose client was killed before it could. What an application sought back to (``happenings``) is
    asked for again.
    """
    committed = _committed(commits, logged)
    again: dict[tuple[str, int, int], int] = {}
    ends = list[int]()
    for row in reversed(polls_in_order := sorted(polls, key=lambda row: row.polled_at)):
        record = row.topic, row.partition, row.offset
        ends.append(again.get(record, UNTIMED))
        again[record] = row.polled_at
    rows = list(_rows(group, polls_in_order, ends[::-1], committed))
    _seek(rows, happenings)
    return pa.Table.from_pylist(rows, DELIVERIES)


def _seek(rows: Sequence[dict[str, Any]], happenings: Sequence[Happening]) -> None:
    """Mark the latest deliveries of what was sought back to: asked for again."""
    of: dict[tuple[str, int, int], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        of[row["topic"], row["partition"], row["entry"]].append(row)
    for seek in (seek for happened in happenings for seek in happened.seeks):
        for offset in range(seek.to, seek.from_):
            given = (row["delivered_at"] for row in of[seek.topic, seek.partition, offset])
            before = [at * 1_000 <= seek.at for at in given].count(True)
            if before:
                latest = of[seek.topic, seek.partition, offset][before - 1]
                latest |= {"nacked_at": seek.at // 1_000, "nacked_nanos": seek.at % 1_000}


def _rows(
    group: str, polls: Sequence[Poll], ends: Sequence[int], committed: Mapping[Place, Sequence[Committed]]
) -> Iterator[dict[str, Any]]:
    times: dict[tuple[str, int, int], int] = defaultdict(int)
    for seq, (row, end) in enumerate(zip(polls, ends, strict=True)):
        acked = _acked(row, committed.get((row.topic, row.partition), ()), end)
        record = row.topic, row.partition, row.offset
        yield row_of(group, row.polled_at, record, row.member_id, seq) | {
            "delivered_at": row.polled_at // 1_000,
            "delivered_nanos": row.polled_at % 1_000,
            "redelivery_count": times[record],
            "received_at": row.polled_at // 1_000,
            "acked_at": None if acked is None else acked // 1_000,
            "acked_nanos": None if acked is None else acked % 1_000,
            "ack_type": None if acked is None else "Cumulative",
            "outcome": "acked" if acked is not None else "redelivered" if end < UNTIMED else "pending",
        }
        times[record] += 1


def row_of(group: str, at: int, record: tuple[str, int, int], consumer: str, seq: int) -> dict[str, Any]:
    """What each row of ``DELIVERIES`` tells of a record (topic, partition, offset), and of who had to do with it when
    (ns)."""
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


def _acked(poll: Poll, commits: Sequence[Committed], end: int) -> int | None:
    """When a commit of the poll's client acknowledged it, before ``end``."""
    for one in commits[bisect_left(commits, (poll.polled_at,)) :]:
        if one.done_at > end:
            return None
        if one.offset > poll.offset and one.consumer in (poll.consumer, None):
            return one.done_at
    return None


def _committed(commits: Sequence[Commit], logged: pa.Table) -> dict[Place, list[Committed]]:
    """The successful commits of each partition, in order of time."""
    found: dict[Place, list[Committed]] = defaultdict(list)
    told = {(row.topic, row.partition, row.offset) for row in commits if row.ok}
    for row in commits:
        if row.ok:
            found[row.topic, row.partition].append(Committed(row.done_at, row.offset, row.consumer))
    times = logged["committed_at"].cast(pa.int64())
    for one, at in zip(logged.drop_columns(["committed_at"]).to_pylist(), times.to_pylist(), strict=True):
        if not one["tombstone"] and (one["topic"], one["partition"], one["offset"]) not in told:
            found[one["topic"], one["partition"]].append(Committed(at * 1_000, one["offset"], None))
    return {place: sorted(mine, key=lambda one: one[:2]) for place, mine in found.items()}
