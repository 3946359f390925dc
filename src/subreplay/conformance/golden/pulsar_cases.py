"""Pulsar's golden vectors: each function replays one case and returns the first difference, or None.

The vectors come from the brokers' own classes (3.2.3, 4.0.8, 4.2.4, 5.0.1). A case is one line of a golden file.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from subreplay.conformance.golden.golden_cases import (
    GOLDEN_SCOPE,
    Case,
    apply_event,
    find_difference,
    find_first,
    format_error,
)
from subreplay.conformance.golden.selector_cases import (
    judge_auto_split_case,
    judge_consistent_hash_case,
    judge_exclusive_case,
)
from subreplay.hashing.java_string import decode_java_utf8, java_string_hash
from subreplay.hashing.murmur3 import MASK_31, murmur3_32
from subreplay.hashing.producer_routing import HASHING_SCHEMES, choose_partition
from subreplay.hashing.profiles import PULSAR_3_2, PULSAR_4_0, PULSAR_4_2, PULSAR_5_0, ProfileTable
from subreplay.hashing.slots import SHORT_RING, WHOLE_RING, SlotRule, make_range_rule
from subreplay.hashing.sticky_key import compute_sticky_key
from subreplay.rows.model.rows import Consumer, Scope
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.pulsar.shared import choose_next_consumer

PROFILE_OF = {"3.2.3": PULSAR_3_2, "4.0.8": PULSAR_4_0, "4.2.4": PULSAR_4_2, "5.0.1": PULSAR_5_0}
"""The profile of each version's golden files."""


STICKY_HASH_RULES: Mapping[str, Mapping[str, SlotRule]] = ProfileTable(
    {
        PULSAR_3_2: dict.fromkeys(("auto_split", "consistent", "exclusive"), WHOLE_RING),  # reduced later, in select()
        PULSAR_4_0: {
            "auto_split": make_range_rule(PULSAR_4_0),
            "consistent": SHORT_RING,
            "exclusive": make_range_rule(PULSAR_4_0),
        },
    }
)
"""The result of ``makeStickyKeyHash`` of each selector."""


def judge_hash_case(case: Case, profile: str) -> str | None:
    """Judge a key's Murmur3 hash, Java string hash, slots of every selector and producer routing."""
    key = base64.b64decode(case["key_b64"])
    text = decode_java_utf8(key)
    hash_ = murmur3_32(key)
    actual = {
        "murmur3_32": hash_ & MASK_31,
        "murmur3_client_bytes": hash_ & MASK_31,
        "sticky_hash": _compute_sticky_hashes(hash_, profile),
        "select_slot_autosplit_exclusive": make_range_rule(profile).compute_slot(hash_),
        "java_string_hash_bytes": java_string_hash(text),
        "java_string_hash": java_string_hash(text),
        "partition_key": _route(text, case.get("partition_key", {})),
        "partition_key_bytes": _route(case["key_b64"], case["partition_key_bytes"]),
    }
    return find_difference("", case, actual)


def _route(key: str, expected: Case) -> Case:
    counts = expected.get("n", [])
    return {"n": counts} | {scheme: [choose_partition(key, n, scheme) for n in counts] for scheme in HASHING_SCHEMES}


def _compute_sticky_hashes(hash_: int, profile: str) -> dict[str, int]:
    return {selector: rule.compute_slot(hash_) for selector, rule in STICKY_HASH_RULES[profile].items()}


def judge_sticky_key_case(case: Case, profile: str) -> str | None:
    """Judge the sticky key of a message's metadata and its slot in every selector."""
    ordering = case["ordering_key_b64"]
    key = case["partition_key"]
    sticky_key = compute_sticky_key(
        None if ordering is None else base64.b64decode(ordering),
        None if key is None else key.encode(),
        case["partition_key_b64_encoded"],
        case["producer_name"],
        case["sequence_id"],
        profile,
    )
    actual = {
        "sticky_key_b64": base64.b64encode(sticky_key or b"").decode(),
        "sticky_hash": _compute_sticky_hashes(murmur3_32(sticky_key or b""), profile),
    }
    return find_difference("", case, actual)


def judge_failover_case(case: Case, profile: str) -> str | None:
    """Judge joins and leaves of the dispatcher with a single active consumer: Failover, or Exclusive."""
    if case["sub_type"] == "Exclusive":
        policy = make_policy("pulsar.exclusive", profile)
    else:
        hashing = case["active_consumer_failover_consistent_hashing"]
        policy = make_policy("pulsar.failover", profile, consistent_hashing=hashing)
    partition = case["partition_index"]
    scope = Scope(case["topic"].removesuffix(f"-partition-{partition}"), partition)
    return find_first(_judge_failover_steps(policy, scope, case))


def _judge_failover_steps(policy: Any, scope: Scope, case: Case) -> Iterator[str | None]:
    state, active, changes = policy.start(scope), None, 0
    for step, event in enumerate(case["events"]):
        state, rejection = apply_event(policy, state, event)
        previous, active = active, next((owner for _, _, owner in state.table.rows()), None)
        changes += active is not None and active != previous
        actual = {
            "error": format_error(rejection),
            "active": active,
            "active_changes_total": changes,
            "order": [member.index for member in state.members],
        }
        yield find_difference(f"event {step} ({event['op']} {event['c']}), ", {"error": None} | event, actual)


def judge_shared_case(case: Case, profile: str) -> str | None:
    """Judge joins, leaves, permits and blocks of a Shared dispatcher, and its choices; each choice costs one permit."""
    return find_first(_judge_shared_steps(make_policy("pulsar.shared", profile), case))


def _judge_shared_steps(policy: Any, case: Case) -> Iterator[str | None]:
    state, turn = policy.start(GOLDEN_SCOPE), 0
    permits: dict[int, int] = {}
    blocked: set[int] = set()
    for step, event in enumerate(case["events"]):
        state = _apply_shared_event(policy, state, event, permits, blocked)
        picks: list[int | None] = []
        for _ in event["picks"]:
            available = [permits[member.index] > 0 and member.index not in blocked for member in state.members]
            position, turn = choose_next_consumer(state.members, available, turn)
            picks.append(None if position is None else state.members[position].index)
            if position is not None:
                permits[state.members[position].index] -= 1
        actual = {"picks": picks, "rr_index": turn, "consumer_list": [member.index for member in state.members]}
        yield find_difference(f"event {step} ({event['op']}), ", event, actual)


def _apply_shared_event(policy: Any, state: Any, event: Case, permits: dict[int, int], blocked: set[int]) -> Any:
    if event["op"] == "add":
        for index, priority, granted in event["added_id_priority_permits"]:
            state = policy.join(state, Consumer(index, f"c{index}", priority))
            permits[index] = granted
    elif event["op"] == "remove":
        state, _ = apply_event(policy, state, event)
    elif event["op"] == "flow":
        permits[event["c"]] += event["permits"]
    else:
        (blocked.add if event["blocked"] else blocked.discard)(event["c"])
    return state


CASES: Mapping[str, Callable[[Case, str], str | None]] = {
    "hash": judge_hash_case,
    "sticky_key": judge_sticky_key_case,
    "auto_split": judge_auto_split_case,
    "consistent_hash": judge_consistent_hash_case,
    "exclusive": judge_exclusive_case,
    "failover": judge_failover_case,
    "shared": judge_shared_case,
}
"""The function for each golden file, by the file's name."""
