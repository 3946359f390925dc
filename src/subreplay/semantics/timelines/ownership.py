"""The timeline of a Kafka group's partition as its consumers were told it: ``assigned``, ``revoked``, ``lost``.

A consumer that exceeded ``max.poll.interval.ms`` left its group and does not know: by its callbacks it owns its
partitions until it polls again, and is told that they are ``lost``. Whoever was assigned a partition last is its owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from subreplay.rows.model.columns import NEVER
from subreplay.rows.model.range_table import NOBODY, Move
from subreplay.rows.model.rows import Consumer, Instant, MembershipEvent, Scope
from subreplay.semantics.timelines.namesakes import whose_leave
from subreplay.semantics.timelines.timeline import BEGINNING, Epoch, OwnerIndex, Timeline, boundaries, joining

Story = Sequence[MembershipEvent]


class Interval(NamedTuple):
    """A consumer owned a partition from ``assigned`` on until ``ended`` (None: it still did when the data end)."""

    assigned: MembershipEvent
    ended: MembershipEvent | None

    @property
    def consumer(self) -> str:
        return self.assigned.consumer


def intervals(told: Story, changes: Story) -> list[Interval]:
    """Who owned a partition when, in the order in which they got it.

    ``told`` is what consumers were told of it, ``changes`` who joined, left and crashed. A consumer that left owned it
    until it was told so; where it never was (its process ended), until it had left.
    """
    gone: dict[str, list[MembershipEvent]] = {}
    for event in changes:
        if event.event != "join":
            gone.setdefault(event.consumer, []).append(event)
    open_: dict[str, MembershipEvent] = {}
    found: list[Interval] = []

    def left(assigned: MembershipEvent) -> MembershipEvent | None:
        return next((event for event in gone.get(assigned.consumer, ()) if event.at >= assigned.at), None)

    for event in told:
        if event.event == "assigned":
            before = open_.get(event.consumer)
            went = None if before is None else left(before)
            if before is None or (went is not None and went.at < event.at):
                if before is not None:
                    found.append(Interval(before, went))
                open_[event.consumer] = event
        elif event.event in ("revoked", "lost") and event.consumer in open_:
            found.append(Interval(open_.pop(event.consumer), event))
    found += [Interval(assigned, left(assigned)) for assigned in open_.values()]
    return sorted(found, key=lambda one: one.assigned.at)


def silence_of(policy: Any, event: MembershipEvent | None) -> int:
    """How long (ns) after a departure the coordinator may wait for the member: its session timeout."""
    silent = event is not None and event.event != "join" and (event.event == "crash" or event.instance_id is not None)
    return getattr(policy, "session_timeout_us", 0) * 1_000 if silent else 0


def abandoned(policy: Any, told: Story, changes: Story) -> int:
    """When the member that the coordinator gave a partition to last was gone (ns), if it gave that partition to nobody
    since; ``NEVER`` if its owner is there, or decisions are not recorded."""
    decided = [event for event in told if event.event in ("owner", "withdrawn")]
    if not decided or any(event.event == "assigned" and event.at > decided[-1].at for event in told):
        return NEVER
    last = decided[-1]
    if last.event == "withdrawn":
        return last.at.at
    later = [event for event in changes if event.consumer == last.consumer and event.at >= last.at]
    came_back = any(event.event == "join" for event in later)
    return NEVER if came_back or not later else later[-1].at.at + silence_of(policy, later[-1])


def told_timelines(policy: Any, changes: Mapping[Scope, Story], told: Mapping[Scope, Story]) -> dict[Scope, Timeline]:
    """The timeline of each topic partition by what consumers were ``told`` of it."""
    return {scope: _timeline(policy, scope, mine, told.get(scope, ())) for scope, mine in changes.items()}


class _Turn(NamedTuple):
    """What happens at an instant: somebody comes or goes, or (``interval``, by its number) begins or ends to own."""

    at: Instant
    since: Instant
    event: MembershipEvent
    interval: int = -1
    begins: bool = False


def _timeline(policy: Any, scope: Scope, changes: Story, told: Story) -> Timeline:
    owned = intervals(told, changes)
    consumers: list[Consumer] = []
    here: dict[str, list[Consumer]] = {}
    orphans: list[MembershipEvent] = []
    epochs, moves, ends = [Epoch(0, BEGINNING, BEGINNING, None)], list[tuple[int, int]](), [""]
    owner, current = NOBODY, -1
    low, high = policy.space
    for turn in _turns(changes, owned):
        joined, left, before, event = None, tuple[Consumer, ...](), owner, turn.event
        if turn.interval < 0 and event.event == "join":
            consumers.append(joined := joining(len(consumers), event))
            here.setdefault(event.consumer, []).append(joined)
        elif turn.interval < 0:
            gone = whose_leave(event.instance, here.get(event.consumer, ()))
            if gone is None:
                orphans.append(event)
                continue
            here[event.consumer].remove(gone)
            left = (gone,)
        elif turn.begins:
            mine = here.get(event.consumer) or [c for c in consumers if c.name == event.consumer]
            if not mine:  # nobody saw it join: its deliveries are of an unknown consumer
                orphans.append(event)
                continue
            owner, current = mine[-1].index, turn.interval
        elif turn.interval == current:
            owner, current = NOBODY, -1
        else:
            continue  # another one had taken over
        epochs[-1] = replace(epochs[-1], end=turn.at)
        change = (Move(low, high, before, owner),) if owner != before else ()
        epochs.append(Epoch(len(epochs), turn.at, turn.since, None, event, joined, left, None, change))
        ended = owned[current].ended if current >= 0 else None
        ends.append("" if ended is None else "closed" if ended.closing else ended.event)
        if change:
            moves.append((len(epochs) - 1, owner))
    epoch, after = np.array(moves, np.int64).reshape(-1, 2).T
    columns = epoch, np.full(len(moves), low), np.full(len(moves), high), after
    index = OwnerIndex.of(*boundaries(epochs), columns)
    return Timeline(policy, scope, tuple(epochs), tuple(consumers), tuple(orphans), index, tuple(ends))


def _turns(changes: Story, owned: Sequence[Interval]) -> Iterable[_Turn]:
    """In order of time; at one instant who comes is there first, and who goes is there until the last."""
    turns = [(e.at, 0 if e.event == "join" else 3, _Turn(e.at, e.at, e)) for e in changes]
    for number, (assigned, ended) in enumerate(owned):
        turns.append((assigned.at, 2, _Turn(assigned.at, assigned.at, assigned, number, begins=True)))
        if ended is not None:
            since = ended.since if ended.event in ("revoked", "lost") else ended.at
            turns.append((ended.at, 1, _Turn(ended.at, since, ended, number)))
    return [turn for *_, turn in sorted(turns, key=lambda one: one[:2])]
