"""Build the canonical membership of a recorded Kafka group: joins, leaves and decisions from its coordinator, and
assignments and revocations from the callbacks of its consumers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from subreplay.adapters.kafka_group.group_rows import GroupRows
from subreplay.adapters.kafka_recording.recording_rows import ClientEvent
from subreplay.rows.model.tables import MEMBERSHIP
from subreplay.semantics.timelines.membership import CLOSED


def build_membership_table(group: str, rows: GroupRows, client_events: Sequence[ClientEvent]) -> pa.Table:
    """Build table ``membership`` from the rows and decisions of ``kafka_group`` and from callbacks. Consumers are
    member ids."""
    known = len(rows.membership) + len(rows.decisions)
    protocols = dict(zip(*(rows.members[name].to_pylist() for name in ("consumer", "protocol")), strict=True))
    callbacks = [
        {**row, "subscription": group, "type": protocols.get(row["consumer"], "classic"), "seq": known + n}
        for n, row in enumerate(_build_callback_rows(client_events))
    ]
    nanos = [row.pop("at_ns") for row in callbacks], [row.pop("since_ns") for row in callbacks]
    for row, at, since in zip(callbacks, *nanos, strict=True):
        row |= {"at": at // 1_000, "at_nanos": at % 1_000, "date": at // 86_400_000_000_000}
        row |= {"since": since // 1_000, "since_nanos": since % 1_000, "since_seq": row["seq"]}
    return pa.concat_tables([rows.membership, rows.decisions, pa.Table.from_pylist(callbacks, MEMBERSHIP)])


def _build_callback_rows(client_events: Sequence[ClientEvent]) -> Iterator[dict[str, Any]]:
    """Yield a row for each partition of a callback; ``at_ns`` is when the callback returned.

    A consumer that closes gets its partitions revoked, and may commit until it is closed."""
    closing: set[str | None] = set()
    client_events = sorted(client_events, key=lambda row: row.at)
    for number, row in enumerate(client_events):
        if row.event == "close_begin":
            closing.add(row.consumer)
        if row.event not in ("assigned", "revoked", "lost"):
            continue
        done = row.at if row.event == "assigned" else _find_return(row, client_events[number + 1 :])
        for topic, partition in row.partitions or ():
            yield {
                "topic": topic,
                "partition": partition,
                "consumer": row.member_id,
                "event": row.event,
                "at_ns": done,
                "since_ns": row.at,
                "generation": row.generation,
                "client_id": row.consumer,
                "reason": CLOSED if row.event == "revoked" and row.consumer in closing else None,
            }


def _find_return(row: ClientEvent, later: Iterable[ClientEvent]) -> int:
    """Return the time when a callback returned, which precedes every later event of its consumer."""
    later_events = (other for other in later if other.consumer == row.consumer)
    following = next(later_events, None)
    return following.at if following is not None and following.event == "revoke_done" else row.at
