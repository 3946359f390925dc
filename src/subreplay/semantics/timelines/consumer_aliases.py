"""Namesakes: consumers of one subscription that are connected under one name at once, as Pulsar allows.

Brokers tell them apart by their connections; rows do by column ``instance``, where they have it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from itertools import chain, count
from typing import Protocol, TypeVar

from subreplay.rows.model.rows import MembershipEvent


class _Connected(Protocol):
    @property
    def instance(self) -> str | None: ...


_Member = TypeVar("_Member", bound=_Connected)


def find_leaving_member(instance: str | None, candidates: Sequence[_Member]) -> _Member | None:
    """Which of the ``candidates``, in the order of their joining, a leave is of: of those with its ``instance`` the
    oldest; else, where either instance is not known, the oldest it can be. None: of none of them."""
    same = next((member for member in candidates if member.instance == instance), None)
    possible = (member for member in candidates if instance is None or member.instance is None)
    return same or next(possible, None)


def assign_aliases(
    events: Iterable[MembershipEvent], unnamed_instances: Container[str] = (), *, assumed: bool = False
) -> list[MembershipEvent]:
    """The events of one dispatcher, in order, with aliases: of the consumers called ``c`` at once, the first is ``c``,
    the second ``c (2)``. Each takes the smallest number that is free when it joins; its leave has it, too.

    A name that is never shared needs none. Names whose joins do not all have an instance, and those
    ``unnamed_instances``, have none either: nobody could say which of their consumers was served. ``assumed``: nobody
    is compared with recorded deliveries, so they have one all the same.
    """
    ordered = list(events)
    names = {event.consumer for event in ordered}
    without_alias = {
        e.consumer for e in ordered if e.event == "join" and (e.instance is None or e.consumer in unnamed_instances)
    }
    without_alias = set() if assumed else without_alias
    connected: dict[str, dict[str, MembershipEvent]] = {}  # the joins of each name by alias, in their order
    shared: set[str] = set()
    aliases: list[str | None] = []
    for event in ordered:
        name, connected_by_alias = event.consumer, connected.setdefault(event.consumer, {})
        alias = None
        if event.event == "join" and name not in without_alias:
            if connected_by_alias:
                shared.add(name)
            numbered = (f"{name} ({number})" for number in count(2))
            free = chain([name], (other for other in numbered if other not in names))
            alias = next(other for other in free if other not in connected_by_alias)
            connected_by_alias[alias] = event
        elif joined := find_leaving_member(event.instance, [*connected_by_alias.values()]):
            alias = next(alias for alias, member in connected_by_alias.items() if member is joined)
            del connected_by_alias[alias]
        aliases.append(alias)
    aliased_events = zip(ordered, aliases, strict=True)
    return [replace(event, alias=alias) if event.consumer in shared else event for event, alias in aliased_events]
