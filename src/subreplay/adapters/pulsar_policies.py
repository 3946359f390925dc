"""The policy of a subscription of Pulsar, as far as its members tell."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

TYPES: Final = {"Exclusive": "pulsar.exclusive", "Failover": "pulsar.failover", "Shared": "pulsar.shared"}
"""The policy of a type of subscription; that of Key_Shared depends on its mode and its selector."""
_KEY_SHARED: Final = "pulsar.key_shared."
_HASHING: Final = "subscription.policy is pulsar.key_shared.auto_split where broker.conf sets "
_CONSISTENT: Final = "subscriptionKeySharedUseConsistentHashing=false"
_POINTS: Final = 100
_STICKY: Final = ", and pulsar.key_shared.sticky where consumers ask for their ranges: the mode is not told"


class Selector(NamedTuple):
    """What the hash ranges of a Key_Shared subscription show: its ``policy``, and the ``profile`` with whose rules they
    were made. ``consumers`` had them at once. Not ``exact``: no known profile has such ranges, and this one is the
    nearest."""

    policy: str
    profile: str
    points: int | None
    consumers: int
    exact: bool
    subscription: str = ""
    topic: str = ""

    @property
    def sentence(self) -> str:
        """What it is concluded from, and what to check."""
        if self.policy != f"{_KEY_SHARED}consistent_hash":
            return (f"polls show one hash range for each consumer: the policy is {self.policy}. Check "
                    f"subscription.profile, which is {self.profile} here")  # fmt: skip
        if self.exact:
            return f"polls show the hash ranges that the ring of {self.profile} gives to {self.consumers:,} consumers"
        return (f"polls show hash ranges of a ring that no known profile has. Check subscription.profile, which is "
                f"{self.profile} here, the nearest")  # fmt: skip


def best_selector(found: Iterable[Selector], subscription: str, topic: str) -> Selector | None:
    """The one of a subscription that is surest."""
    mine = (each for each in found if (each.subscription, each.topic) == (subscription, topic))
    return max(mine, key=lambda each: (each.exact, each.consumers), default=None)


def policy_of(
    membership: pa.Table, subscription: str, selector: Selector | None = None
) -> tuple[dict[str, Any], list[str]]:
    """The keys ``policy``, ``profile`` and ``options`` of a run for a subscription, by the types and modes of its
    membership and the ``selector`` that its ranges show; and sentences about what to check of them."""
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
    options: dict[str, Any] = {"allow_out_of_order": True} if pc.any(mine["allow_out_of_order"]).as_py() else {}
    if selector is not None and selector.points not in (None, _POINTS):
        options["points"] = selector.points
    more = {"options": options} if options else {}
    if modes == {"STICKY"}:
        return {"policy": f"{_KEY_SHARED}sticky"} | more, []
    if selector is None:
        return {"policy": f"{_KEY_SHARED}consistent_hash"} | more, [_HASHING + _CONSISTENT + ("" if modes else _STICKY)]
    return {"policy": selector.policy, "profile": selector.profile} | more, [selector.sentence]


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
