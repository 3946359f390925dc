"""Detect from the messages how their producers choose partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from subreplay.hashing.producer_routing import get_default_scheme, get_scheme
from subreplay.rows.model.partitioner_text import WARNING, Statement, build_statements
from subreplay.rows.model.partitioners import (
    PLACEMENTS,
    KeyPlacements,
    Partitioners,
    count_placements,
    detect,
    merge_placements,
)
from subreplay.rows.model.segments import SCALABLE
from subreplay.whatif.traffic import producer_rerouting

if TYPE_CHECKING:
    from subreplay.pipeline.source import Source

_MESSAGE_COLUMNS: Final = ("key", "producer", "partition", "at")


def detect_partitioners(source: Source) -> Partitioners | None:
    """Detect how producers map keys to partitions.

    Returns None if the topic has one partition, no message has a key, or the messages are too many for the driver and
    the run does not require the answer. Without the messages, their profile has to be enough.
    """
    declared = source.config.topic.routing
    partitions = max((scope.partition + 1 for scope in source.events), default=0)
    partitions = max(partitions, 0 if declared is None else declared.partitions)
    if not source.partitioned or partitions < 2 or source.inputs.topic.startswith(SCALABLE):
        return None  # a segment is chosen by its range of hashes
    default = get_default_scheme(source.config.subscription.policy)
    likely = (default if declared is None else declared.scheme or default, default)
    if declared is None and source.config.date is None:
        profile = source.profiled.local_profile
        if profile is None and not any(scenario.is_rerouted for scenario in source.config.scenarios):
            return None
        if profile is not None:
            found = detect(producer_rerouting.build_sightings(profile), partitions, likely)
            if found.settled or not found.keyed or not source.inputs.tables:
                return found if found.keyed else None
    rows = source.read_messages_with_earlier().select(_MESSAGE_COLUMNS).map(count_placements, PLACEMENTS).to_table()
    found = detect(KeyPlacements.of(merge_placements([rows])), partitions, likely)
    return found if found.keyed else None


def describe_producers(source: Source) -> tuple[Statement, ...]:
    """Describe a run's producers for the report."""
    declared = source.config.topic.routing
    if declared is not None and declared.mode == "CustomPartition":
        return ()
    default = get_default_scheme(source.config.subscription.policy)
    scheme = None if declared is None else declared.scheme or default
    if source.partitioners is not None:
        return build_statements(source.partitioners, scheme, default)
    if scheme is None or declared is None or source.partitioned or not source.extent["messages"]:
        return ()
    clients = get_scheme(scheme).clients
    sentence = (
        f"topic.routing declares {declared.partitions:,} partitions, but the topic has none, so partitions are not "
        f"checked against {scheme} ({clients}). Remove topic.routing, or audit the partitioned topic."
    )
    return (Statement(WARNING, sentence),)
