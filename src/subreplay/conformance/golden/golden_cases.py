"""A golden case, and the comparison of results with those of the broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from subreplay.errors import ConsumerRejected
from subreplay.rows.model.rows import Consumer, Scope

Case: TypeAlias = dict[str, Any]

GOLDEN_SCOPE = Scope("persistent://public/default/golden")
"""The dispatcher of cases whose topic does not matter."""


def format_error(rejection: ConsumerRejected | None) -> Case | None:
    """Format a rejection as the golden files do."""
    return {"class": rejection.kind, "message": rejection.reason} if rejection else None


def apply_event(policy: Any, state: Any, event: Case) -> tuple[Any, ConsumerRejected | None]:
    """Return the state after a join or leave, and the reason if a join was rejected."""
    if event["op"] == "remove":
        leaving = [member for member in state.members if member.index == event["c"]]
        return (policy.leave(state, leaving[0]) if leaving else state), None
    requested = event.get("requested")
    ranges = None if requested is None else tuple((start, end) for start, end in requested)
    consumer = Consumer(event["c"], event["name"], event.get("priority", 0), ranges)
    if policy.serving == "key shared sticky":  # a refused consumer may have found a dead one
        admission: tuple[Any, ConsumerRejected | None] = policy.admit(state, consumer)
        return admission
    try:
        return policy.join(state, consumer), None
    except ConsumerRejected as rejection:
        return state, rejection


def find_difference(where: str, expected: Case, actual: Case) -> str | None:
    """Return the first of the ``actual`` values that differs from ``expected``, which may have more values."""
    for name, value in actual.items():
        wanted = _simplify(name, expected[name]) if name in expected else value
        if wanted != value:
            return (
                f"{where}{name}: expected {_select_different(wanted, value)}, actual {_select_different(value, wanted)}"
            )
    return None


def _select_different(one: Any, other: Any) -> Any:
    """Return the entries of a mapping that differ from the other one."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {name: value for name, value in one.items() if name not in other or other[name] != value}
    return one


def _simplify(name: str, value: Any) -> Any:
    """Replace an error's Java class by its simple name."""
    if name == "error" and value:
        return value | {"class": value["class"].split("$")[-1].split(".")[-1]}
    return value


def find_first(differences: Iterator[str | None]) -> str | None:
    """Return the first difference that is not None."""
    return next((text for text in differences if text), None)
