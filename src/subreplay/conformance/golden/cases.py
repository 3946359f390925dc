"""A golden case, and how what happened is compared with what the broker did."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from subreplay.errors import ConsumerRejected
from subreplay.rows.model.rows import Consumer, Scope

Case: TypeAlias = dict[str, Any]

NOWHERE = Scope("persistent://public/default/golden")
"""The dispatcher of cases for which its topic does not matter."""


def error_of(refusal: ConsumerRejected | None) -> Case | None:
    """A refusal as the golden files write it."""
    return {"class": refusal.kind, "message": refusal.reason} if refusal else None


def applied(policy: Any, state: Any, event: Case) -> tuple[Any, ConsumerRejected | None]:
    """The state after a join or leave, and why a join was refused."""
    if event["op"] == "remove":
        gone = [member for member in state.members if member.index == event["c"]]
        return (policy.leave(state, gone[0]) if gone else state), None
    requested = event.get("requested")
    ranges = None if requested is None else tuple((start, end) for start, end in requested)
    consumer = Consumer(event["c"], event["name"], event.get("priority", 0), ranges)
    if policy.serving == "key shared sticky":  # a refused consumer may have found a dead one
        admitted: tuple[Any, ConsumerRejected | None] = policy.admit(state, consumer)
        return admitted
    try:
        return policy.join(state, consumer), None
    except ConsumerRejected as refusal:
        return state, refusal


def difference(where: str, expected: Case, actual: Case) -> str | None:
    """The first of the ``actual`` values that is not as ``expected``, which may have fewer."""
    for name, value in actual.items():
        wanted = _simple(name, expected[name]) if name in expected else value
        if wanted != value:
            return f"{where}{name}: expected {_only(wanted, value)}, actual {_only(value, wanted)}"
    return None


def _only(one: Any, other: Any) -> Any:
    """Of a mapping, the entries that the other one does not have alike: what a reader looks for."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {name: value for name, value in one.items() if name not in other or other[name] != value}
    return one


def _simple(name: str, value: Any) -> Any:
    """An error's Java class by its simple name."""
    if name == "error" and value:
        return value | {"class": value["class"].split("$")[-1].split(".")[-1]}
    return value


def first_of(differences: Iterator[str | None]) -> str | None:
    """The first real difference."""
    return next((text for text in differences if text), None)
