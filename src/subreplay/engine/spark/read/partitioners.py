"""How the producers of a run's messages choose partitions, as the messages show it."""

from __future__ import annotations

from subreplay.engine.spark.read.source import Source
from subreplay.hashing.producer_routing import default_scheme, scheme_of
from subreplay.rows.model.partitioner_words import WARNING, Statement, sentences


def producers_of(source: Source) -> tuple[Statement, ...]:
    """What a report says of a run's producers."""
    declared = source.config.topic.routing
    if declared is not None and declared.mode == "CustomPartition":
        return ()
    default = default_scheme(source.config.subscription.policy)
    scheme = None if declared is None else declared.scheme or default
    if source.partitioners is not None:
        return sentences(source.partitioners, scheme, default)
    if scheme is None or declared is None or source.partitioned or not source.extent["messages"]:
        return ()
    clients = scheme_of(scheme).clients
    sentence = (
        f"topic.routing declares {declared.partitions:,} partitions, but the topic has none, so nothing is checked "
        f"against {scheme} ({clients}); leave topic.routing out, or audit the partitioned topic"
    )
    return (Statement(WARNING, sentence),)
