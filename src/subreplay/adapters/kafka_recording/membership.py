"""The canonical membership of a recorded Kafka group: who came and went and what was decided, by its coordinator, and
what its consumers were told of their partitions, by their callbacks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from subreplay.adapters.kafka_group.rows import GroupRows
from subreplay.adapters.kafka_recording.rows import Happening
from subreplay.rows.model.tables import MEMBERSHIP
from subreplay.semantics.timelines.membership import CLOSED


def membership_table(group: str, rows: GroupRows, happenings: Sequence[Happening]) -> pa.Table:
    """Table ``membership``: the rows of ``kafka_group``, its decisions, and those of callbacks. Consumers are member
    ids."""
    known = len(rows.membership) + len(rows.decisions)
    protocols = dict(zip(*(rows.members[name].to_pylist() for name in ("consumer", "protocol")), strict=True))
    told = [
        {**row, "subscription": group, "type": protocols.get(row["consumer"], "classic"), "seq": known + n}
        for n, row in enumerate(_told(happenings))
    ]
    nanos = [row.pop("at_ns") for row in told], [row.pop("since_ns") for row in told]
    for row, at, since in zip(told, *nanos, strict=True):
        row |= {"at": at // 1_000, "at_nanos": at % 1_000, "date": at // 86_400_000_000_000}
        row |= {"since": since // 1_000, "since_nanos": since % 1_000, "since_seq": row["seq"]}
    return pa.concat_tables([rows.membership, rows.decisions, pa.Table.from_pylist(told, MEMBERSHIP)])


def _told(happenings: Sequence[Happening]) -> Iterator[dict[str, Any]]:
    """A row for each partition of a callback, ``at_ns`` when it had returned.

    Who closes is told that its partitions are revoked, and may commit until it is closed."""
    closing: set[str | None] = set()
    happenings = sorted(happenings, key=lambda row: row.at)
    for number, row in enumerate(happenings):
        if row.event == "close_begin":
            closing.add(row.consumer)
        if row.event not in ("assigned", "revoked", "lost"):
            continue
        done = row.at if row.event == "assigned" else _returned(row, happenings[number + 1 :])
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


def _returned(row: Happening, later: Iterable[Happening]) -> int:
    """When a callback had returned: nothing of its consumer happens before."""
    mine = (other for other in later if other.consumer == row.consumer)
    following = next(mine, None)
    return following.at if following is not None and following.event == "revoke_done" else row.at
