"""The policy of a subscription of Pulsar, as far as its members tell."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

TYPES: Final = {"Exclusive": "pulsar.exclusive", "Failover": "pulsar.failover", "Shared": "pulsar.shared"}
"""The policy of a type of subscription; that of Key_Shared depends on its mode and its selector."""
_KEY_SHARED: Final = "pulsar.key_shared."
_HASHING: Final = "subscription.policy is pulsar.key_shared.auto_split where broker.conf sets "
_CONSISTENT: Final = "subscriptionKeySharedUseConsistentHashing=false"
_STICKY: Final = ", and pulsar.key_shared.sticky where consumers ask for their ranges: the mode is not told"


def policy_of(membership: pa.Table, subscription: str) -> tuple[dict[str, Any], list[str]]:
    """The keys ``policy`` and ``options`` of a run for a subscription, by types and modes of its membership; and
    sentences about what it does not tell."""
    mine = membership.filter(pc.equal(membership["subscription"], subscription))
    types = {each for each in pc.unique(mine["type"]).to_pylist() if each != "unknown"}
    modes = {each for each in pc.unique(mine["key_shared_mode"]).to_pylist() if each is not None}
    if len(types) != 1:
        told = f"is {' as well as '.join(sorted(types))}" if types else "is not told"
        return {}, [f"the type of the subscription {told}: set subscription.policy"]
    (kind,) = types
    if kind in TYPES:
        return {"policy": TYPES[kind]}, []
    if kind != "Key_Shared":
        return {}, [f"no policy is known for type {kind}: set subscription.policy"]
    options = {"options": {"allow_out_of_order": True}} if pc.any(mine["allow_out_of_order"]).as_py() else {}
    if modes == {"STICKY"}:
        return {"policy": f"{_KEY_SHARED}sticky"} | options, []
    return {"policy": f"{_KEY_SHARED}consistent_hash"} | options, [_HASHING + _CONSISTENT + ("" if modes else _STICKY)]


def unranked(membership: pa.Table) -> tuple[dict[str, Any], list[str]]:
    """The part of a run, and a sentence, about a membership that does not tell the priority levels of a subscription
    of type Failover, where they decide who is active (row P-FO-1)."""
    joins = pc.and_(pc.equal(membership["type"], "Failover"), pc.equal(membership["event"], "join"))
    if not membership.filter(joins)["priority"].null_count:
        return {}, []
    return {"traffic": {"membership": {"ranked": False}}}, [_UNRANKED]


_UNRANKED: Final = (
    "the priority levels of some consumers are not told: that a message went to another consumer than the one that is "
    "active where all have the same is unknown; if they have, write ranked: true under traffic.membership"
)
