"""Check the partitions of a topic: where producers put the messages of a key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from subreplay.audit.codes import EVERY, SHARE_GROUP, Code, Rule
from subreplay.audit.findings import Finding
from subreplay.audit.needs import Need
from subreplay.audit.routing import Misrouted, Routing, RoutingMode, find_misrouted
from subreplay.rows.model.columns import Ints, column, flags, ints
from subreplay.rows.model.partitioner_text import describe_growth, describe_scheme
from subreplay.rows.model.partitioners import Partitioners
from subreplay.rows.model.rows import Scope
from subreplay.rows.model.text_format import format_clock, format_position

RULES = (
    Rule(
        Code.ROUTING_MISMATCH,
        "In another partition than its routing selects",
        "A message is in the partition that the declared routing of its producer selects. The hash of its key selects "
        "it, or, under SinglePartition without a key, the first message of its producer.",
        "RoundRobinPartitionMessageRouterImpl, SinglePartitionMessageRouterImpl.choosePartition (3.2.3, 4.0.8); rows "
        "L-ROUTE-1, L-ROUTE-2",
        sentence="{message} of key {key} is in partition {partition}, where its key does not belong",
        cause="its producer does not choose partitions as declared, or the number of partitions changed",
        promised=EVERY,
        needs=frozenset({Need.KEYS, Need.ROUTING}),
    ),
    Rule(
        Code.KEY_TWO_PARTITIONS,
        "One key in two partitions",
        "All messages of a key are in one partition of their topic, because order is promised only within a partition.",
        "rows L-ROUTE-1, L-ROUTE-3",
        promised=EVERY - SHARE_GROUP,
        allowed=SHARE_GROUP,
        needs=frozenset({Need.KEYS, Need.SOME_KEY}),
    ),
)

Row = Mapping[str, Any]
FIRST_MESSAGES = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("ledger", pa.int64()),
        pa.field("entry", pa.int64()),
        pa.field("batch_index", pa.int32()),
        pa.field("published", pa.int64()),  # ns
        pa.field("producer", pa.string()),
        pa.field("key", pa.string()),  # in words; null for messages without a key
        pa.field("messages", pa.int64()),  # how many there are
        pa.field("known", pa.bool_()),  # since an earlier day, or reported by its audit
    ]
)
"""The first message of each key (or, without a key, of each producer) in each partition."""


def _format_producer(producer: str | None) -> str:
    """Format the producer of a message, if it is recorded."""
    return "" if producer is None else f" by {producer}"


def find_misrouted_keys(routing: Routing, keys: pa.Array, producers: pa.Array, partitions: Ints) -> Misrouted:
    """ROUTING_MISMATCH for messages of these partitions, as far as their keys decide."""
    mode: RoutingMode = "CustomPartition" if routing.mode == "CustomPartition" else "RoundRobinPartition"
    return find_misrouted(replace(routing, mode=mode), keys, producers, partitions)


def find_keys_in_two_partitions(
    rows: pa.Table,
    partitioners: Partitioners | None = None,
    dates: bool = False,
    ancestors: Mapping[int, frozenset[int]] = MappingProxyType({}),
) -> Iterator[Finding]:
    """Yield KEY_TWO_PARTITIONS in ``FIRST_MESSAGES`` of keys that are in more than one partition.

    There is one finding for each partition, except those known before and the one with most messages of the key (or
    with the first ones, in case of a tie). ``partitioners`` may explain why. A key of a scalable topic may be in
    a segment and in its ``ancestors`` (by id).
    """
    ordered = sorted(
        rows.to_pylist(),
        key=lambda r: (r["topic"], r["key"], not r["known"], -r["messages"], r["published"], r["partition"]),
    )
    for _, of_key in groupby(ordered, key=lambda r: (r["topic"], r["key"])):
        home, *others = of_key
        related = {home["partition"], *ancestors.get(home["partition"], ())}
        for other in others:
            if (
                other["known"]
                or other["partition"] in related
                or home["partition"] in ancestors.get(other["partition"], ())
            ):
                continue
            found = format_position(other["ledger"], other["entry"], other["batch_index"])
            elsewhere = format_position(home["ledger"], home["entry"], home["batch_index"])
            yield Finding(
                Code.KEY_TWO_PARTITIONS,
                Scope(other["topic"], other["partition"]),
                other["published"],
                f"{found} of key {other['key']} was published to partition {other['partition']} at "
                f"{format_clock(other['published'], dates)}; most of its key, from {elsewhere} on, are in partition "
                f"{home['partition']}",
                _explain_by_partitioners(partitioners, home, other)
                or _explain_by_producers(home["producer"], other["producer"]),
                (other["ledger"], other["entry"], other["batch_index"]),
                key=other["key"],
                evidence=(f"{elsewhere} in partition {home['partition']}" + _format_producer(home["producer"]),),
            )


def _explain_by_partitioners(partitioners: Partitioners | None, home: Row, other: Row) -> str:
    """Explain why the messages of a key are in two partitions, if the partitioners of the topic explain it."""
    if partitioners is None:
        return ""
    parts = [part for row in (home, other) if (part := partitioners.of(row["producer"])) is not None]
    if len(parts) < 2:
        ways = [describe_scheme(part.way) for part in partitioners.parts if not part.producers]
        some = ", others by ".join(ways)
        return f"producers choose partitions differently: some hash keys by {some}" if len({*ways}) > 1 else ""
    if parts[0].way != parts[1].way:
        return (
            f"producers {home['producer']} and {other['producer']} choose partitions differently: they hash keys by "
            f"{describe_scheme(parts[0].way)} and by {describe_scheme(parts[1].way)}"
        )
    published = [np.array([row["published"]], np.int64) for row in (home, other)]
    counts = [int(part.partitions_at(at)[0]) for part, at in zip(parts, published, strict=True)]
    if counts[0] == counts[1]:
        return ""
    if partitioners.growth:
        return (
            f"{describe_growth(partitioners.growth)}; {describe_scheme(parts[0].way)} puts the key elsewhere among them"
        )
    return f"producers {home['producer']} and {other['producer']} assume {counts[0]:,} and {counts[1]:,} partitions"


def _explain_by_producers(first: str | None, other: str | None) -> str:
    """Explain the two partitions of a key by its producers."""
    if first is None or other is None:
        return "producers choose partitions differently, or one of them changed its router"
    if first == other:
        return f"producer {other} changed its choice: its router or the number of partitions changed"
    return f"producers {first} and {other} choose partitions differently"


def find_keyless_strays(routing: Routing, rows: pa.Table, dates: bool = False) -> Iterator[Finding]:
    """Yield ROUTING_MISMATCH of messages without a key, in ``FIRST_MESSAGES`` of each producer. Known ones are not
    reported again."""
    rows = rows.sort_by([("published", "ascending"), ("partition", "ascending")])
    partitions: Ints = ints(rows, "partition")
    keys = pa.nulls(rows.num_rows, pa.binary())
    found = find_misrouted(routing, keys, column(rows, "producer"), partitions)
    for i in np.flatnonzero(found.wrong & ~flags(rows, "known")).tolist():
        row = rows.slice(i, 1).to_pylist()[0]
        where = format_position(row["ledger"], row["entry"], row["batch_index"])
        yield Finding(
            Code.ROUTING_MISMATCH,
            Scope(row["topic"], row["partition"]),
            row["published"],
            f"{where}, published by {row['producer']} at {format_clock(row['published'], dates)}: {found.describe(i)}",
            f"producer {row['producer']} changed its partition, or a producer with its name restarted",
            (row["ledger"], row["entry"], row["batch_index"]),
        )
