"""Explain why a consumer received nothing and why messages had no owner, from what the timelines record."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from subreplay.rows.model.columns import NEVER, Ints
from subreplay.rows.model.rows import Scope
from subreplay.semantics.timelines.timeline import Timeline
from subreplay.whatif.message_assignment import ScenarioPlan

NO_OWNER: Final = {
    "slot": "whose slot is in no consumer's range",
    "partition": "while their partition was assigned to no member",
    "any": "while no consumer could receive them",
}
"""Why a message had no owner although a consumer was connected, by routing."""


@dataclass
class _Connections:
    """All connections of one consumer to all dispatchers."""

    joined_late: bool = True  # it never joined before the last message was published
    joined_after_dispatch: bool = True  # ... before the last message was dispatched
    departed_early: bool = True  # it always left before the first message was published
    owned_slots: bool = False  # at some time while there was traffic
    refused: str = ""


def explain_idle_consumers(
    plan: ScenarioPlan, busy: Collection[str], first: int, last: int, dispatched: int | None = None
) -> dict[str, str]:
    """Return why each consumer that tried to join and is not ``busy`` received nothing, by name.

    ``first`` and ``last`` are when the first and the last message were published (ns). In a dispatch replay ``last`` is
    the end of the replay, and ``dispatched`` is when the last message was dispatched.
    """
    consumers: dict[str, _Connections] = defaultdict(_Connections)
    for timeline in plan.timelines.values():
        _collect_connections(consumers, timeline, busy, first, last, last if dispatched is None else dispatched)
    single_active = plan.policy.serving != "polled" and all(scope.partition < 0 for scope in plan.timelines)
    return {name: _explain(consumers[name], plan.policy.routing, single_active) for name in sorted(consumers)}


def _collect_connections(
    consumers: dict[str, _Connections],
    timeline: Timeline,
    busy: Collection[str],
    first: int,
    last: int,
    dispatched: int,
) -> None:
    idle_consumers = [consumer for consumer in timeline.consumers if consumer.label not in busy]
    if not idle_consumers:
        return
    starts = np.array([*(epoch.start.at for epoch in timeline.epochs), NEVER])
    joined_at, departed_at = (starts[epochs] for epochs in timeline.presence_epochs)
    owners = _find_owners(timeline, starts, first, last)
    refused = {e.cause.label: str(e.rejected) for e in timeline.epochs if e.rejected is not None and e.cause}
    for consumer in idle_consumers:
        connections, i = consumers[consumer.label], consumer.index
        joined = joined_at[i] != NEVER
        connections.joined_late &= bool(not joined or joined_at[i] > last)
        connections.joined_after_dispatch &= bool(not joined or joined_at[i] > dispatched)
        connections.departed_early &= bool(not joined or departed_at[i] <= first)
        connections.owned_slots |= i in owners
        connections.refused = connections.refused or ("" if joined else refused.get(consumer.label, ""))


def _find_owners(timeline: Timeline, starts: Ints, first: int, last: int) -> set[int]:
    """Return the consumers (indexes) that owned a slot between two instants."""
    index = timeline.index
    segment, epoch = index.keys >> 32, index.keys & 0xFFFF_FFFF
    until = np.where(np.append(segment[1:] == segment[:-1], False), np.append(starts[epoch[1:]], NEVER), NEVER)
    codes = np.unique(index.owners[(starts[epoch] <= last) & (until > first)]).tolist()
    return {i for code in codes for i in ((code,) if code >= -1 else index.groups[-2 - code])}


def _explain(connections: _Connections, routing: str, single_active: bool) -> str:
    if connections.joined_late and connections.departed_early:
        return f"the broker rejected it: {connections.refused}" if connections.refused else "it never connected"
    if connections.joined_late:
        return "it joined after the last message was published"
    if connections.joined_after_dispatch:
        return "it joined after every message had been dispatched to other consumers"
    if connections.departed_early:
        return "it left before the first message was published"
    if routing == "any":
        return "the round robin never reached it"
    if connections.owned_slots:
        return "no key falls in its ranges" if routing == "slot" else "its partitions had no messages"
    if routing == "slot":
        return "it owned no range"
    return (
        "another consumer was active all the time (single active consumer)"
        if single_active
        else "there were fewer partitions than consumers"
    )


def explain_messages_without_owner(plan: ScenarioPlan, rows: Iterable[Any]) -> str:
    """Explain why messages had no owner, with the number of messages for each reason.

    ``rows`` have the columns topic, partition, epoch, consumer and messages.
    """
    reasons: dict[str, int] = defaultdict(int)
    for row in rows:
        if row["consumer"] is None:
            timeline = plan.timelines[Scope(row["topic"], row["partition"])]
            was_connected = timeline.list_connected(row["epoch"])
            reason = NO_OWNER[plan.policy.routing] if was_connected else "while no consumer was connected"
            reasons[reason] += row["messages"]
    return ", ".join(f"{n:,} {reason}" for reason, n in sorted(reasons.items(), key=lambda item: (-item[1], item[0])))
