"""Infer the policy of a Pulsar subscription from its membership."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.hashing.profiles import PULSAR_5_0
from subreplay.rows.model.segments import SCALABLE

TYPES: Final = {"Exclusive": "pulsar.exclusive", "Failover": "pulsar.failover", "Shared": "pulsar.shared"}
"""The policy of each subscription type; that of Key_Shared depends on its mode and its selector."""
_KEY_SHARED: Final = "pulsar.key_shared."
_HASHING: Final = (
    "the source does not record the selector of Key_Shared, so consistent hashing is assumed. Set subscription.policy "
    "to pulsar.key_shared.auto_split if broker.conf has subscriptionKeySharedUseConsistentHashing=false"
)
_STICKY: Final = ", or to pulsar.key_shared.sticky if consumers choose their own hash ranges"
_POINTS: Final = 100
_SCALABLE: Final = (
    "the source does not record the segments of the scalable topic. Write topic.segments if segments were split or "
    "merged, and set buckets in subscription.options if a segment has another number of entry buckets than 4"
)


class InferredSelector(NamedTuple):
    """The selector that the hash ranges of a Key_Shared subscription show: its ``policy`` and its ``profile``.

    The ranges are those of ``consumers`` consumers at one instant. ``exact`` is false where no known profile produces
    such ranges; the profile is then the nearest one.
    """

    policy: str
    profile: str
    points: int | None
    consumers: int
    exact: bool
    subscription: str = ""
    topic: str = ""

    @property
    def sentence(self) -> str:
        """The evidence for the selector, and what to check."""
        if self.policy != f"{_KEY_SHARED}consistent_hash":
            return (f"polls show one hash range for each consumer, so the policy is {self.policy}. Check "
                    f"subscription.profile, which is set to {self.profile}")  # fmt: skip
        if self.exact:
            return f"polls show the hash ranges that {self.profile} assigns to {self.consumers:,} consumers"
        return (f"polls show hash ranges that no known profile produces. Check subscription.profile, which is set to "
                f"the nearest one, {self.profile}")  # fmt: skip


def choose_selector(found: Iterable[InferredSelector], subscription: str, topic: str) -> InferredSelector | None:
    """Choose the selector of a subscription with the strongest evidence."""
    matching = (each for each in found if (each.subscription, each.topic) == (subscription, topic))
    return max(matching, key=lambda each: (each.exact, each.consumers), default=None)


def infer_policy(
    membership: pa.Table, subscription: str, selector: InferredSelector | None = None
) -> tuple[dict[str, Any], list[str]]:
    """Infer the keys ``policy``, ``profile`` and ``options`` of a run from the membership of its subscription.

    The subscription types and modes of the membership determine them, and the ``selector`` that hash ranges show. The
    second result has sentences about what to check.
    """
    members = membership.filter(pc.equal(membership["subscription"], subscription))
    types = {each for each in pc.unique(members["type"]).to_pylist() if each != "unknown"}
    topics = pc.unique(members["topic"]).to_pylist()
    if any(topic.startswith(SCALABLE) for topic in topics):
        queue = types == {"Shared"}
        return {"policy": f"pulsar.scalable.{'queue' if queue else 'stream'}", "profile": PULSAR_5_0}, [_SCALABLE]
    modes = {each for each in pc.unique(members["key_shared_mode"]).to_pylist() if each is not None}
    if len(types) > 1:
        return {}, [f"the source records several subscription types: {', '.join(sorted(types))}. "
                    "Set subscription.policy"]  # fmt: skip
    if not types:
        return {}, ["the source does not record the subscription type. Set subscription.policy"]
    (kind,) = types
    if kind in TYPES:
        return {"policy": TYPES[kind]}, []
    if kind != "Key_Shared":
        return {}, [f"subscription type {kind} has no policy. Set subscription.policy"]
    options: dict[str, Any] = {"allow_out_of_order": True} if pc.any(members["allow_out_of_order"]).as_py() else {}
    if selector is not None and selector.points not in (None, _POINTS):
        options["points"] = selector.points
    more = {"options": options} if options else {}
    if modes == {"STICKY"}:
        return {"policy": f"{_KEY_SHARED}sticky"} | more, []
    if selector is None:
        return {"policy": f"{_KEY_SHARED}consistent_hash"} | more, [_HASHING + ("" if modes else _STICKY)]
    return {"policy": selector.policy, "profile": selector.profile} | more, [selector.sentence]


def note_missing_priorities(membership: pa.Table) -> tuple[dict[str, Any], list[str]]:
    """Return the part of a run, and a note, for a Failover membership without all priority levels.

    Priority levels decide which consumer is active (row P-FO-1).
    """
    joins = pc.and_(pc.equal(membership["type"], "Failover"), pc.equal(membership["event"], "join"))
    if not membership.filter(joins)["priority"].null_count:
        return {}, []
    return {"traffic": {"membership": {"ranked": False}}}, [_MISSING_PRIORITIES]


_MISSING_PRIORITIES: Final = (
    "the source does not record the priority levels of some consumers, so deliveries to another than the active "
    "consumer are inconclusive. If all consumers have the same level, write ranked: true under traffic.membership"
)
