"""Match recorded events to consumers of the timeline: two consumers may have the same name, but connections are
unique."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from subreplay.adapters.pulsar_recording.recorded_events import Ack, Dispatch, Redeliver
from subreplay.rows.model.range_table import NOBODY
from subreplay.semantics.timelines.timeline import Timeline


class ConsumerSession(NamedTuple):
    """A consumer from its join request (``since``) on; ``joined`` is when the broker had created it. Times are ns.

    ``consumer`` is its index.
    """

    since: int
    joined: int
    consumer: int
    instance: str | None


class ConsumerSessions:
    """The consumers of a dispatcher by name, in join order; ``left`` is when each left, by its index."""

    def __init__(self, timeline: Timeline) -> None:
        self.by_name: dict[str, list[ConsumerSession]] = defaultdict(list)
        self.left: dict[int, int] = {}
        for epoch in timeline.epochs[1:]:
            if epoch.joined:
                one = ConsumerSession(epoch.since.at, epoch.start.at, epoch.joined.index, epoch.joined.instance)
                self.by_name[epoch.joined.name].append(one)
            self.left |= {consumer.index: epoch.start.at for consumer in epoch.left}

    def find_event_consumer(self, event: Ack | Dispatch | Redeliver) -> int:
        """Return the index of an event's consumer, by its instance if the event has one."""
        return self.find_consumer(event.consumer, event.t_ns, event.instance)

    def find_consumer(self, name: str, at: int, instance: str | None = None) -> int:
        """Return the last consumer of the name that requested to join by ``at`` (ns), or the first; ``NOBODY`` if there
        is none.

        If consumers with this ``instance`` exist, only those count.
        """
        known = self.by_name.get(name, [])
        mine = [session for session in known if instance and session.instance == instance] or known
        earliest = mine[0].consumer if mine else NOBODY
        return next((session.consumer for session in reversed(mine) if session.since <= at), earliest)
