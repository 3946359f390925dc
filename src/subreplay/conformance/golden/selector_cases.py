"""Golden vectors of the three Key_Shared selectors: tables, owners and impact after each join and leave."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from subreplay.conformance.golden.golden_cases import (
    GOLDEN_SCOPE,
    Case,
    apply_event,
    find_difference,
    find_first,
    format_error,
)
from subreplay.errors import ConfigError
from subreplay.hashing.murmur3 import murmur3_32
from subreplay.hashing.profiles import PULSAR_3_2, PULSAR_4_0, ProfileTable
from subreplay.rows.model.range_table import NOBODY, RangeTable
from subreplay.semantics.policies import make_policy

IS_SLOT_INPUT = ProfileTable({PULSAR_3_2: False, PULSAR_4_0: True})
"""Whether the ``hashes`` of a case are slots already, or whole hashes that ``select`` reduces."""

Ranges: TypeAlias = dict[int, list[tuple[int, int]]]


def judge_auto_split_case(case: Case, profile: str) -> str | None:
    """Judge joins and leaves of the auto-split selector: tables, owners, impact."""
    return _judge_selector_case("pulsar.key_shared.auto_split", {"range_size": case["range_size"]}, case, profile)


def judge_consistent_hash_case(case: Case, profile: str) -> str | None:
    """Judge joins and leaves of the consistent-hashing selector."""
    return _judge_selector_case("pulsar.key_shared.consistent_hash", {"points": case["points"]}, case, profile)


def judge_exclusive_case(case: Case, profile: str) -> str | None:
    """Judge joins and leaves of the sticky (exclusive hash range) selector."""
    return _judge_selector_case("pulsar.key_shared.sticky", {"range_size": case["range_size"]}, case, profile)


def _judge_selector_case(name: str, options: Case, case: Case, profile: str) -> str | None:
    try:
        policy = make_policy(name, profile, **options)
    except ConfigError as error:
        reason = str(error).removeprefix(f"{name}: ").partition(", got ")[0]
        rejection = {"class": "IllegalArgumentException", "message": reason}
        return find_difference("", {"error": None} | case, {"error": rejection})
    if case["kind"] == "ctor":
        return None if case.get("ok") else f"expected {case['error']}, but no error was raised"
    return find_first(_judge_selector_steps(policy, case))


def _judge_selector_steps(policy: Any, case: Case) -> Iterator[str | None]:
    state = policy.start(GOLDEN_SCOPE)
    for step, event in enumerate(case["events"]):
        before = policy.list_reported_ranges(state)
        state, rejection = apply_event(policy, _mark_dead_connection(state, event.get("dead_connection")), event)
        after = policy.list_reported_ranges(state)
        actual = {
            "error": format_error(rejection),
            "ranges": _format_by_id(after),
            **({"impacted": _compute_impacted(before, after)} if "impacted" in event else {}),
            "sel": _select_owners(policy, state, _compute_slots(policy, case["hashes"])),
            "sel_keys": _select_key_owners(policy, state, case["keys_b64"]),
            "sel_probe": _select_owners(policy, state, _compute_slots(policy, event.get("probe", []))),
            **_build_digest(after),
        }
        yield find_difference(f"event {step} ({event['op']} {event['c']}), ", {"error": None} | event, actual)


def _mark_dead_connection(state: Any, index: int | None) -> Any:
    """Return ``state`` with a dead connection of that consumer, which the broker has not noticed yet."""
    if index is None:
        return state
    members = (replace(member, alive=member.alive and member.index != index) for member in state.members)
    return replace(state, members=tuple(members))


def _compute_slots(policy: Any, hashes: list[int]) -> NDArray[np.int64]:
    if IS_SLOT_INPUT[policy.profile]:
        return np.array(hashes, np.int64)
    return cast(NDArray[np.int64], policy.compute_slots(np.array(hashes, np.uint32)))


def _select_key_owners(policy: Any, state: Any, keys_b64: list[str]) -> list[int | None]:
    hashes = np.array([murmur3_32(base64.b64decode(key)) for key in keys_b64], np.uint32)
    return _select_owners(policy, state, policy.compute_slots(hashes))


def _select_owners(policy: Any, state: Any, slots: NDArray[np.int64]) -> list[int | None]:
    owners = state.table.owners_of(slots, slots.astype(np.uint32))  # on the ring of 3.2.3 the slot is the hash
    return [None if owner == NOBODY else owner for owner in owners.tolist()]


def _compute_impacted(before: Ranges, after: Ranges) -> Case:
    """Compute ``ImpactedConsumersResult`` of 4.x: the ranges that each consumer lost and won, adjacent ranges
    merged."""
    removed: Ranges = {}
    added: Ranges = {}
    for move in RangeTable.of(before).diff(RangeTable.of(after)):
        removed.setdefault(move.before, []).append((move.start, move.end))
        added.setdefault(move.after, []).append((move.start, move.end))
    return {
        side: _format_by_id(RangeTable.of(rows).merged().by_owner())
        for side, rows in (("removed", removed), ("added", added))
    }


def _build_digest(ranges: Ranges) -> Case:
    """Build the golden files' short form of a long table."""
    listed = sorted(ranges.items())
    text = ";".join(f"{index}:" + ",".join(f"{start}-{end}" for start, end in owned) for index, owned in listed)
    return {
        "ranges_count": sum(len(owned) for owned in ranges.values()),
        "ranges_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "owned": {str(index): sum(end - start + 1 for start, end in owned) for index, owned in listed},
    }


def _format_by_id(ranges: Ranges) -> dict[str, list[list[int]]]:
    return {str(index): [[*range_] for range_ in owned] for index, owned in ranges.items() if index != NOBODY}
