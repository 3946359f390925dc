"""Why a consumer was given nothing, and why messages had no owner: the reasons that the timelines know."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from subreplay.rows.model.columns import NEVER, Ints
from subreplay.rows.model.rows import Scope
from subreplay.semantics.timelines.timeline import Timeline
from subreplay.whatif.message_assignment import Plan

NO_OWNER: Final = {
    "slot": "in a gap between the ranges",
    "partition": "while the group had given their partition to nobody",
    "any": "while nobody could take them",
}
"""Why a message had no owner although somebody was connected, by routing."""


@dataclass
class _Stays:
    """One consumer, over all its stays at all dispatchers."""

    late: bool = True  # it never joined before the last message
    behind: bool = True  # ... before the last message was dispatched
    gone: bool = True  # it always left before the first one
    owned: bool = False  # some slot while there was traffic
    refused: str = ""


def idle(plan: Plan, busy: Collection[str], first: int, last: int, dispatched: int | None = None) -> dict[str, str]:
    """The consumers that asked to join and are not ``busy``, by name, and why each was given nothing.

    ``first`` and ``last`` are when the first and the last message were published (ns); in a dispatch replay ``last`` is
    its end, and ``dispatched`` when the last message was.
    """
    consumers: dict[str, _Stays] = defaultdict(_Stays)
    for timeline in plan.timelines.values():
        _add(consumers, timeline, busy, first, last, last if dispatched is None else dispatched)
    alone = plan.policy.serving != "polled" and all(scope.partition < 0 for scope in plan.timelines)
    return {name: _why(consumers[name], plan.policy.routing, alone) for name in sorted(consumers)}


def _add(
    consumers: dict[str, _Stays], timeline: Timeline, busy: Collection[str], first: int, last: int, dispatched: int
) -> None:
    quiet = [consumer for consumer in timeline.consumers if consumer.label not in busy]
    if not quiet:
        return
    starts = np.array([*(epoch.start.at for epoch in timeline.epochs), NEVER])
    came, went = (starts[epochs] for epochs in timeline.presence_epochs)
    owners = _owners(timeline, starts, first, last)
    refused = {e.cause.label: str(e.rejected) for e in timeline.epochs if e.rejected is not None and e.cause}
    for consumer in quiet:
        stays, i = consumers[consumer.label], consumer.index
        joined = came[i] != NEVER
        stays.late &= bool(not joined or came[i] > last)
        stays.behind &= bool(not joined or came[i] > dispatched)
        stays.gone &= bool(not joined or went[i] <= first)
        stays.owned |= i in owners
        stays.refused = stays.refused or ("" if joined else refused.get(consumer.label, ""))


def _owners(timeline: Timeline, starts: Ints, first: int, last: int) -> set[int]:
    """The consumers (indexes) that owned some slot between two instants."""
    index = timeline.index
    segment, epoch = index.keys >> 32, index.keys & 0xFFFF_FFFF
    until = np.where(np.append(segment[1:] == segment[:-1], False), np.append(starts[epoch[1:]], NEVER), NEVER)
    codes = np.unique(index.owners[(starts[epoch] <= last) & (until > first)]).tolist()
    return {i for code in codes for i in ((code,) if code >= -1 else index.groups[-2 - code])}


def _why(stays: _Stays, routing: str, alone: bool) -> str:
    if stays.late and stays.gone:
        return f"was refused: {stays.refused}" if stays.refused else "was never connected"
    if stays.late:
        return "joined after the last message"
    if stays.behind:
        return "joined when every message was at another consumer already"
    if stays.gone:
        return "left before the first message"
    if routing == "any":
        return "its turn never came"
    if stays.owned:
        return "its ranges hold no key" if routing == "slot" else "its partitions had no message"
    if routing == "slot":
        return "it owned no range"
    return "another consumer was active all the time" if alone else "no partition was left for it"


def unowned(plan: Plan, rows: Iterable[Any]) -> str:
    """Why messages had no owner, with how many each; ``rows`` have topic, partition, epoch, consumer and messages."""
    reasons: dict[str, int] = defaultdict(int)
    for row in rows:
        if row["consumer"] is None:
            timeline = plan.timelines[Scope(row["topic"], row["partition"])]
            somebody = timeline.list_connected(row["epoch"])
            reason = NO_OWNER[plan.policy.routing] if somebody else "while nobody was connected"
            reasons[reason] += row["messages"]
    return ", ".join(f"{n:,} {reason}" for reason, n in sorted(reasons.items(), key=lambda item: (-item[1], item[0])))
