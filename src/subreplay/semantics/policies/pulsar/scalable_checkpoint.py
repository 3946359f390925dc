"""Checkpoint consumers of a scalable topic: each segment has one reader, and there is no subscription."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from subreplay.hashing.profiles import get_rule
from subreplay.semantics.policies.base import Serving
from subreplay.semantics.policies.pulsar.failover import FailoverPolicy
from subreplay.semantics.policies.pulsar.scalable_stream import PROFILES


@dataclass(frozen=True)
class CheckpointPolicy(FailoverPolicy):
    """One member reads a segment, in order, and keeps its position itself (PIP-466).

    The controller gives segments to the members in turn, in order of name (``SubscriptionCoordinator``, PIP-468): here
    number ``segment % count``. No recording contains checkpoint consumers.
    """

    name: ClassVar[str] = "pulsar.scalable.checkpoint"
    serving: ClassVar[Serving] = "exclusive"

    profile: str
    consistent_hashing: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        get_rule(self.name, PROFILES, self.profile)
