"""The commits of a recorded Kafka group as rows of the canonical deliveries."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from subreplay.adapters.kafka_recording.deliveries import row_of
from subreplay.adapters.kafka_recording.member_ids import MemberIds
from subreplay.adapters.kafka_recording.rows import Commit, Happening, Poll
from subreplay.rows.model.tables import DELIVERIES

_MILLISECOND = 1_000_000


class _Told(NamedTuple):
    """A commit: when it was answered (ns), of which place and offset, by which member, whether it was taken, and
    whether the client made it by itself, at intervals."""

    at: int
    topic: str
    partition: int
    offset: int
    member: str
    ok: bool
    automatic: bool


def commit_table(
    group: str, polls: Sequence[Poll], commits: Sequence[Commit], logged: pa.Table, happenings: Sequence[Happening]
) -> pa.Table:
    """A row of ``DELIVERIES`` for each commit that a client tells of, and for each that only ``__consumer_offsets``
    has: its client was killed before it could tell."""
    polls = sorted(polls, key=lambda row: row.polled_at)
    return pa.Table.from_pylist([*_rows(group, polls, commits, logged, happenings)], DELIVERIES)


def _rows(
    group: str, polls: Sequence[Poll], commits: Sequence[Commit], logged: pa.Table, happenings: Sequence[Happening]
) -> Iterator[dict[str, Any]]:
    told = [*_of_clients(polls, commits, happenings), *_of_the_log(polls, commits, logged)]
    for seq, one in enumerate(sorted(told)):
        yield row_of(group, one.at, (one.topic, one.partition, one.offset), one.member, len(polls) + seq) | {
            "acked_at": one.at // 1_000,
            "acked_nanos": one.at % 1_000,
            "ack_type": "AutoCommit" if one.automatic else "Commit",
            "outcome": "acked" if one.ok else "refused",
        }


def _of_clients(polls: Sequence[Poll], commits: Sequence[Commit], happenings: Sequence[Happening]) -> Iterator[_Told]:
    """Each with the member id that its client had at that time."""
    ids = MemberIds(
        [
            *((row.consumer, row.polled_at, row.member_id) for row in polls),
            *((row.consumer, row.at, row.member_id) for row in happenings),
        ]
    )
    for row in commits:
        member = ids.at(row.consumer, row.done_at if row.at is None else row.at)
        yield _Told(row.done_at, row.topic, row.partition, row.offset, member, row.ok, _automatic(row))


def _automatic(row: Commit) -> bool:
    """Whether no application called it: of automatic commits, and of that of a close, the client tells the end only."""
    return row.at is None


def _of_the_log(polls: Sequence[Poll], commits: Sequence[Commit], logged: pa.Table) -> Iterator[_Told]:
    """By whoever was given something of the partition last; at the end of the millisecond that the log tells. They are
    automatic where all others of its consumer are."""
    called = {row.consumer for row in commits if not _automatic(row)}
    automatic = {row.consumer for row in commits} - called
    told = Counter((row.topic, row.partition, row.offset) for row in commits if row.ok)
    given: dict[tuple[str, int], list[Poll]] = defaultdict(list)
    for row in polls:
        given[row.topic, row.partition].append(row)
    times = logged["committed_at"].cast(pa.int64())
    for one, micros in zip(logged.drop_columns(["committed_at"]).to_pylist(), times.to_pylist(), strict=True):
        place = one["topic"], one["partition"]
        if one["tombstone"]:
            continue
        told[(*place, one["offset"])] -= 1
        if told[(*place, one["offset"])] < 0:
            at = micros * 1_000 + _MILLISECOND - 1
            number = bisect_right(given[place], at, key=lambda poll: poll.polled_at)
            if number:
                poll = given[place][number - 1]
                yield _Told(at, *place, one["offset"], poll.member_id, True, poll.consumer in automatic)
