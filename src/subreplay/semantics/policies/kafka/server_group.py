"""The options of groups under the consumer protocol (KIP-848), whose coordinator assigns the partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from subreplay.hashing.profiles import KAFKA_4_0, KAFKA_4_4, ProfileTable, get_rule
from subreplay.semantics.policies.kafka.assignor import GroupPolicy, RebalanceProtocol

FIRST_EPOCHS: Mapping[str, int] = ProfileTable({KAFKA_4_0: 1, KAFKA_4_4: 2})
"""The first epoch of a group (README of ``recordings/kafka-4.4``)."""
ASSIGNMENT_INTERVALS: Mapping[str, int] = ProfileTable({KAFKA_4_0: 0, KAFKA_4_4: 1_000_000})
"""The default of ``group.consumer.assignment.interval.ms`` in µs; before 4.3 the setting does not exist."""
DEFAULT_OF_PROFILE: Final = -1


@dataclass(frozen=True)
class ServerGroupPolicy(GroupPolicy):
    """The options that the coordinator's assignors share.

    ``assignment_interval_us`` is the least time between two targets (``group.consumer.assignment.interval.ms``;
    ``DEFAULT_OF_PROFILE``: the default of the release).
    """

    name: ClassVar[str]
    rebalance: ClassVar[RebalanceProtocol] = "server"

    assignment_interval_us: int = DEFAULT_OF_PROFILE

    def __post_init__(self) -> None:
        get_rule(self.name, FIRST_EPOCHS, self.profile)

    @property
    def first_epoch(self) -> int:
        """The first epoch of a group."""
        return FIRST_EPOCHS[self.profile]

    @property
    def assignment_interval(self) -> int:
        """The least time (ns) between two targets."""
        is_default = self.assignment_interval_us == DEFAULT_OF_PROFILE
        return (ASSIGNMENT_INTERVALS[self.profile] if is_default else self.assignment_interval_us) * 1_000
