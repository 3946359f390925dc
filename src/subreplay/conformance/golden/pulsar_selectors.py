"""Golden vectors of the three Key_Shared selectors: tables, owners and impact after each join and leave."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from subreplay.conformance.golden.cases import NOWHERE, Case, applied, difference, error_of, first_of
from subreplay.errors import ConfigError
from subreplay.hashing.murmur3 import murmur3_32
from subreplay.hashing.profiles import PULSAR_3_2, PULSAR_4_0, ProfileTable
from subreplay.rows.model.range_table import NOBODY, RangeTable
from subreplay.semantics.policies import make_policy

SELECT_TAKES_SLOTS = ProfileTable({PULSAR_3_2: False, PULSAR_4_0: True})
"""Whether the ``hashes`` of a case are slots already, or whole hashes that ``select`` reduces."""

Ranges: TypeAlias = dict[int, list[tuple[int, int]]]


def auto_split_case(case: Case, profile: str) -> str | None:
    """Joins and leaves of the auto-split selector: tables, owners, impact."""
    return _selector_case("pulsar.key_shared.auto_split", {"range_size": case["range_size"]}, case, profile)


def consistent_hash_case(case: Case, profile: str) -> str | None:
    """Joins and leaves of the consistent-hashing selector."""
    return _selector_case("pulsar.key_shared.consistent_hash", {"points": case["points"]}, case, profile)


def exclusive_case(case: Case, profile: str) -> str | None:
    """Joins and leaves of the sticky (exclusive hash range) selector."""
    return _selector_case("pulsar.key_shared.sticky", {"range_size": case["range_size"]}, case, profile)


def _selector_case(name: str, options: Case, case: Case, profile: str) -> str | None:
    try:
        policy = make_policy(name, profile, **options)
    except ConfigError as error:
        reason = str(error).removeprefix(f"{name}: ").partition(", got ")[0]
        refusal = {"class": "IllegalArgumentException", "message": reason}
        return difference("", {"error": None} | case, {"error": refusal})
    if case["kind"] == "ctor":
        return None if case.get("ok") else f"expected {case['error']}, actual no error"
    return first_of(_selector_steps(policy, case))


def _selector_steps(policy: Any, case: Case) -> Iterator[str | None]:
    state = policy.start(NOWHERE)
    for step, event in enumerate(case["events"]):
        before = policy.list_reported_ranges(state)
        state, refusal = applied(policy, _without_connection(state, event.get("dead_connection")), event)
        after = policy.list_reported_ranges(state)
        actual = {
            "error": error_of(refusal),
            "ranges": _by_id(after),
            **({"impacted": _impacted(before, after)} if "impacted" in event else {}),
            "sel": _selected(policy, state, _slots(policy, case["hashes"])),
            "sel_keys": _selected_keys(policy, state, case["keys_b64"]),
            "sel_probe": _selected(policy, state, _slots(policy, event.get("probe", []))),
            **_digest(after),
        }
        yield difference(f"event {step} ({event['op']} {event['c']}), ", {"error": None} | event, actual)


def _without_connection(state: Any, index: int | None) -> Any:
    """``state`` with that consumer's connection dead, which the broker has not noticed yet."""
    if index is None:
        return state
    members = (replace(member, alive=member.alive and member.index != index) for member in state.members)
    return replace(state, members=tuple(members))


def _slots(policy: Any, hashes: list[int]) -> NDArray[np.int64]:
    if SELECT_TAKES_SLOTS[policy.profile]:
        return np.array(hashes, np.int64)
    return cast(NDArray[np.int64], policy.compute_slots(np.array(hashes, np.uint32)))


def _selected_keys(policy: Any, state: Any, keys_b64: list[str]) -> list[int | None]:
    hashes = np.array([murmur3_32(base64.b64decode(key)) for key in keys_b64], np.uint32)
    return _selected(policy, state, policy.compute_slots(hashes))


def _selected(policy: Any, state: Any, slots: NDArray[np.int64]) -> list[int | None]:
    owners = state.table.owners_of(slots, slots.astype(np.uint32))  # on the ring of 3.2.3 the slot is the hash
    return [None if owner == NOBODY else owner for owner in owners.tolist()]


def _impacted(before: Ranges, after: Ranges) -> Case:
    """``ImpactedConsumersResult`` of 4.x: what each consumer lost and won; ranges that touch are one, whoever has them
    now or had them before."""
    removed: Ranges = {}
    added: Ranges = {}
    for move in RangeTable.of(before).diff(RangeTable.of(after)):
        removed.setdefault(move.before, []).append((move.start, move.end))
        added.setdefault(move.after, []).append((move.start, move.end))
    return {
        side: _by_id(RangeTable.of(rows).merged().by_owner()) for side, rows in (("removed", removed), ("added", added))
    }


def _digest(ranges: Ranges) -> Case:
    """The golden files' short form of a long table."""
    listed = sorted(ranges.items())
    text = ";".join(f"{index}:" + ",".join(f"{start}-{end}" for start, end in owned) for index, owned in listed)
    return {
        "ranges_count": sum(len(owned) for owned in ranges.values()),
        "ranges_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "owned": {str(index): sum(end - start + 1 for start, end in owned) for index, owned in listed},
    }


def _by_id(ranges: Ranges) -> dict[str, list[list[int]]]:
    return {str(index): [[*range_] for range_ in owned] for index, owned in ranges.items() if index != NOBODY}
