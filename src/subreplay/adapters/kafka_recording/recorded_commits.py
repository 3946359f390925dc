"""Build rows of the canonical deliveries from the commits of a recorded Kafka group."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from subreplay.adapters.kafka_recording.member_ids import MemberIds
from subreplay.adapters.kafka_recording.polled_deliveries import build_delivery_row
from subreplay.adapters.kafka_recording.recording_rows import ClientCommit, ClientEvent, PolledRecord
from subreplay.rows.model.tables import DELIVERIES

_MILLISECOND = 1_000_000


class _ReportedCommit(NamedTuple):
    """A commit: when it was answered (ns), its partition and offset, its member, whether it succeeded, and whether the
    client made it automatically."""

    at: int
    topic: str
    partition: int
    offset: int
    member: str
    ok: bool
    automatic: bool


def build_commit_table(
    group: str,
    polls: Sequence[PolledRecord],
    commits: Sequence[ClientCommit],
    logged: pa.Table,
    client_events: Sequence[ClientEvent],
) -> pa.Table:
    """Build a row of ``DELIVERIES`` for each commit that a client reports, and for each that only
    ``__consumer_offsets`` contains, because its client was killed before it could report it."""
    polls = sorted(polls, key=lambda row: row.polled_at)
    return pa.Table.from_pylist([*_build_rows(group, polls, commits, logged, client_events)], DELIVERIES)


def _build_rows(
    group: str,
    polls: Sequence[PolledRecord],
    commits: Sequence[ClientCommit],
    logged: pa.Table,
    client_events: Sequence[ClientEvent],
) -> Iterator[dict[str, Any]]:
    every = [*_list_client_commits(polls, commits, client_events), *_list_logged_commits(polls, commits, logged)]
    for seq, one in enumerate(sorted(every)):
        yield build_delivery_row(
            group, one.at, (one.topic, one.partition, one.offset), one.member, len(polls) + seq
        ) | {
            "acked_at": one.at // 1_000,
            "acked_nanos": one.at % 1_000,
            "ack_type": "AutoCommit" if one.automatic else "Commit",
            "outcome": "acked" if one.ok else "refused",
        }


def _list_client_commits(
    polls: Sequence[PolledRecord], commits: Sequence[ClientCommit], client_events: Sequence[ClientEvent]
) -> Iterator[_ReportedCommit]:
    """Yield the clients' commits, each with the member id that its client had at that time."""
    ids = MemberIds(
        [
            *((row.consumer, row.polled_at, row.member_id) for row in polls),
            *((row.consumer, row.at, row.member_id) for row in client_events),
        ]
    )
    for row in commits:
        member = ids.at(row.consumer, row.done_at if row.at is None else row.at)
        yield _ReportedCommit(row.done_at, row.topic, row.partition, row.offset, member, row.ok, _is_automatic(row))


def _is_automatic(row: ClientCommit) -> bool:
    """Check whether the client committed automatically: it reports only the end of such commits and of that at
    close."""
    return row.at is None


def _list_logged_commits(
    polls: Sequence[PolledRecord], commits: Sequence[ClientCommit], logged: pa.Table
) -> Iterator[_ReportedCommit]:
    """Yield commits that only the log contains. They belong to the consumer that last polled from the partition, at the
    end of the logged millisecond. They are automatic if all other commits of that consumer are."""
    called = {row.consumer for row in commits if not _is_automatic(row)}
    automatic = {row.consumer for row in commits} - called
    reported = Counter((row.topic, row.partition, row.offset) for row in commits if row.ok)
    polls_by_partition: dict[tuple[str, int], list[PolledRecord]] = defaultdict(list)
    for row in polls:
        polls_by_partition[row.topic, row.partition].append(row)
    times = logged["committed_at"].cast(pa.int64())
    for one, micros in zip(logged.drop_columns(["committed_at"]).to_pylist(), times.to_pylist(), strict=True):
        place = one["topic"], one["partition"]
        if one["tombstone"]:
            continue
        reported[(*place, one["offset"])] -= 1
        if reported[(*place, one["offset"])] < 0:
            at = micros * 1_000 + _MILLISECOND - 1
            number = bisect_right(polls_by_partition[place], at, key=lambda poll: poll.polled_at)
            if number:
                poll = polls_by_partition[place][number - 1]
                yield _ReportedCommit(at, *place, one["offset"], poll.member_id, True, poll.consumer in automatic)
