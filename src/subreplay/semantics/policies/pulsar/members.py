"""The list of connected consumers of a dispatcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from subreplay.rows.model.rows import Consumer

Members = tuple[Consumer, ...]


def priority_key(consumer: Consumer) -> Any:
    """Return the sort key of ``AbstractDispatcherMultipleConsumers``: the priority level; equal ones keep their join
    order."""
    return consumer.priority


def add_member(members: Members, consumer: Consumer, order: Callable[[Consumer], Any] = priority_key) -> Members:
    """Return ``members``, sorted by ``order``, with ``consumer`` after its equals."""
    return tuple(sorted((*members, consumer), key=order))


def remove_member(members: Members, consumer: Consumer) -> Members:
    """Return ``members`` without ``consumer``; raises ValueError if it is not connected."""
    remaining = tuple(member for member in members if member.index != consumer.index)
    if len(remaining) == len(members):
        raise ValueError(f"consumer {consumer.name!r} (index {consumer.index}) is not connected")
    return remaining
