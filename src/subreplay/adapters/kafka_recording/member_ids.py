"""Find the member id of a recorded client at a time."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from subreplay.adapters.kafka_recording.recording_rows import ClientEvent, PolledRecord


class MemberIds:
    """The member ids of consumers over time, from rows of (consumer, time in ns, member id)."""

    def __init__(self, rows: Iterable[tuple[str | None, int, str | None]]) -> None:
        known: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for consumer, at, member in rows:
            if consumer and member:
                known[consumer].append((at, member))
        self._ids = {consumer: sorted(ids) for consumer, ids in known.items()}
        self.consumers = {member: consumer for consumer, ids in self._ids.items() for _, member in ids}

    def at(self, consumer: str, at: int) -> str:
        """Return the id of a consumer at a time (ns), or its first one; without any id its name."""
        ids = self._ids.get(consumer, [(at, consumer)])
        return ids[max(bisect_right(ids, at, key=lambda one: one[0]) - 1, 0)][1]


def collect_member_ids(client_events: Iterable[ClientEvent]) -> MemberIds:
    """Collect the member ids in the events of clients."""
    return MemberIds((row.consumer, row.at, row.member_id) for row in client_events)


def replace_foreign_ids(polls: Sequence[PolledRecord], client_events: Sequence[ClientEvent]) -> Iterator[PolledRecord]:
    """Yield polls with the member id of their own consumer, where they contain another consumer's."""
    ids = collect_member_ids(client_events)
    for row in polls:
        if ids.consumers.get(row.member_id, row.consumer) == row.consumer:
            yield row
        else:
            yield row.model_copy(update={"member_id": ids.at(row.consumer, row.polled_at)})
