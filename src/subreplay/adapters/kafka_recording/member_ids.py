"""The member ids of recorded clients: which of them each had when."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from subreplay.adapters.kafka_recording.rows import Happening, Poll


class MemberIds:
    """The member ids that consumers had, by what they tell themselves: (consumer, time in ns, member id)."""

    def __init__(self, told: Iterable[tuple[str | None, int, str | None]]) -> None:
        known: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for consumer, at, member in told:
            if consumer and member:
                known[consumer].append((at, member))
        self._of = {consumer: sorted(mine) for consumer, mine in known.items()}
        self.consumers = {member: consumer for consumer, mine in self._of.items() for _, member in mine}

    def at(self, consumer: str, at: int) -> str:
        """The id that a consumer had at a time (ns), or its first one; of one that had none its name."""
        mine = self._of.get(consumer, [(at, consumer)])
        return mine[max(bisect_right(mine, at, key=lambda one: one[0]) - 1, 0)][1]


def of_happenings(happenings: Iterable[Happening]) -> MemberIds:
    """The ids that clients had when they did something, or were called back."""
    return MemberIds((row.consumer, row.at, row.member_id) for row in happenings)


def with_own_ids(polls: Sequence[Poll], happenings: Sequence[Happening]) -> Iterator[Poll]:
    """Polls with the member id of their own consumer: a row that names another one's is believed its consumer."""
    ids = of_happenings(happenings)
    for row in polls:
        if ids.consumers.get(row.member_id, row.consumer) == row.consumer:
            yield row
        else:
            yield row.model_copy(update={"member_id": ids.at(row.consumer, row.polled_at)})
