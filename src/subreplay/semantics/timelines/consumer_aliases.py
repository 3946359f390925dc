"""Aliases for consumers of one subscription that are connected under the same name, as Pulsar allows.

Brokers distinguish them by connection. Rows distinguish them by column ``instance``, if they have it.
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
    """Return the member that a leave refers to, or None. ``candidates`` are in the order of their joins.

    It is the oldest member with the same ``instance``. If either instance is unknown, it is the oldest possible member.
    """
    same = next((member for member in candidates if member.instance == instance), None)
    possible = (member for member in candidates if instance is None or member.instance is None)
    return same or next(possible, None)


def assign_aliases(
    events: Iterable[MembershipEvent], unnamed_instances: Container[str] = (), *, assumed: bool = False
) -> list[MembershipEvent]:
    """Add aliases to the ordered events of one dispatcher: of the consumers named ``c``, the first is ``c``, the second
    ``c (2)``.

    Each consumer takes the smallest number that is free when it joins, and its leave has the same alias. A name that is
    never shared needs no alias. Neither do names with joins without an instance, nor the ``unnamed_instances``, because
    their deliveries cannot be attributed. With ``assumed``, no recorded deliveries are compared, so these names have
    aliases, too.
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
