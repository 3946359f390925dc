"""Queue consumers of a scalable topic: any of them may receive any message of a segment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from subreplay.hashing.profiles import get_rule
from subreplay.semantics.policies.pulsar.scalable_stream import PROFILES
from subreplay.semantics.policies.pulsar.shared import SharedPolicy


@dataclass(frozen=True)
class QueuePolicy(SharedPolicy):
    """The dispatcher of each segment serves its consumers as ``pulsar.shared`` does, without entry buckets (PIP-466).

    No recording contains queue consumers.
    """

    name: ClassVar[str] = "pulsar.scalable.queue"

    def __post_init__(self) -> None:
        get_rule(self.name, PROFILES, self.profile)
