"""Which consumer of the timeline a recorded event is of: names may be borne twice at once, connections are not."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from subreplay.adapters.pulsar_recording.recorded_events import Ack, Dispatch, Redeliver
from subreplay.rows.model.range_table import NOBODY
from subreplay.semantics.timelines.timeline import Timeline


class ConsumerSession(NamedTuple):
    """A consumer from its request to join (``since``) on; ``joined`` is when the broker had created it. Times in ns;
    ``consumer`` is its index."""

    since: int
    joined: int
    consumer: int
    instance: str | None


class ConsumerSessions:
    """The consumers of a dispatcher by name, in order of joining; ``left`` tells when each had gone, by its index."""

    def __init__(self, timeline: Timeline) -> None:
        self.by_name: dict[str, list[ConsumerSession]] = defaultdict(list)
        self.left: dict[int, int] = {}
        for epoch in timeline.epochs[1:]:
            if epoch.joined:
                one = ConsumerSession(epoch.since.at, epoch.start.at, epoch.joined.index, epoch.joined.instance)
                self.by_name[epoch.joined.name].append(one)
            self.left |= {consumer.index: epoch.start.at for consumer in epoch.left}

    def find_event_consumer(self, event: Ack | Dispatch | Redeliver) -> int:
        """The index of the event's consumer, by its instance where the event has one."""
        return self.find_consumer(event.consumer, event.t_ns, event.instance)

    def find_consumer(self, name: str, at: int, instance: str | None = None) -> int:
        """The last consumer of the name that asked to join by ``at`` (ns), or the first; ``NOBODY`` if there is none.

        Of those with another ``instance`` it is none, as far as any has this one.
        """
        known = self.by_name.get(name, [])
        mine = [session for session in known if instance and session.instance == instance] or known
        earliest = mine[0].consumer if mine else NOBODY
        return next((session.consumer for session in reversed(mine) if session.since <= at), earliest)
