"""Find the members of a log and its dispatchers, and fold the events of each dispatcher.

The members of all topic partitions are few, and are found first from the rare lines of the whole log. With them the
events of each subscription of a topic partition are folded in batches, which keeps only outstanding events in memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.broker_log import polled_members
from subreplay.adapters.broker_log.located_rows import (
    LOCATED_MEMBERSHIP,
    build_located_membership,
    infer_types,
    split_by_consumer,
)
from subreplay.adapters.broker_log.log_deliveries import DeliveryFold
from subreplay.adapters.broker_log.log_members import (
    ANNOUNCEMENT_KIND,
    RARE_KINDS,
    WHOLE_CONSUMER_KINDS,
    LogSession,
    find_members,
)
from subreplay.adapters.broker_log.priority_levels import add_levels
from subreplay.rows.model.tables import DELIVERIES, MEMBERSHIP, QUARANTINE

EVENT_KINDS: Final = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("subscription", pa.string()), ("kind", pa.string())]
)
"""The kinds of events of each subscription of a topic partition."""
_CONSUMER_COLUMNS: Final = ("topic", "partition", "subscription", "connection", "consumer_id", "consumer")
_MEMBER_RULE: Final = "the log must name the consumer, in the line of its leave or in a DEBUG line of its dispatcher"
_MEMBER_REMEDY: Final = "pass polled topic statistics too (option statistics)"
_SHARED_RULE: Final = "the log must identify the consumer, but several members with this id share one IO thread"
_SHARED_REMEDY: Final = "set numIOThreads=32 on the broker, or record receipts in the application"


def select_member_events(found: pa.Table) -> pa.Table:
    """Select the numbered events about members: rare ones, announcements, and for each consumer the first other event
    that contains the whole consumer."""
    rare = pc.is_in(found["kind"], value_set=pa.array([*RARE_KINDS, ANNOUNCEMENT_KIND]))
    others = found.filter(pc.and_not(pc.is_in(found["kind"], value_set=pa.array(WHOLE_CONSUMER_KINDS)), rare))
    numbered = others.select(_CONSUMER_COLUMNS).append_column("row", pa.array(np.arange(len(others))))
    first = numbered.group_by(_CONSUMER_COLUMNS).aggregate([("row", "min")])["row_min"]
    return pa.concat_tables([found.filter(rare), others.take(first)])


@dataclass(frozen=True)
class Dispatcher:
    """The events of a dispatcher, which is a subscription of a topic partition, and its members."""

    topic: str
    partition: int
    subscription: str
    sessions: tuple[LogSession, ...]

    @property
    def key(self) -> tuple[str, int, str]:
        """The topic, partition and subscription of all its events."""
        return self.topic, self.partition, self.subscription


class LogMembership(NamedTuple):
    """The dispatchers of a log, its canonical ``membership``, and membership rows without a name
    (``LOCATED_MEMBERSHIP``)."""

    dispatchers: tuple[Dispatcher, ...]
    membership: pa.Table
    unnamed: pa.Table


class TimeSpan(NamedTuple):
    """The time from the start to the end of a log (µs)."""

    begin: int
    end: int


def find_membership(
    rare: pa.Table, kinds: pa.Table, polled_membership: pa.Table | None, span: TimeSpan
) -> LogMembership:
    """Find the members and dispatchers of a log. ``rare`` are the ordered events of ``select_member_events``. ``kinds``
    (``EVENT_KINDS``) are those of all events, and ``polled_membership`` is the membership of polled statistics by
    address."""
    dispatchers: list[Dispatcher] = []
    tables, unnamed = [MEMBERSHIP.empty_table()], [LOCATED_MEMBERSHIP.empty_table()]
    for topic, partition in sorted({(row["topic"], row["partition"]) for row in kinds.to_pylist() if row["topic"]}):
        mine = _select_partition_events(rare, topic, partition)
        polls = None if polled_membership is None else _select_partition(polled_membership, topic, partition)
        types = infer_types(_select_partition(kinds, topic, partition))
        if polls is not None:
            types |= {row["subscription"]: row["type"] for row in polls.to_pylist() if row["type"] != "unknown"}
        members_found = find_members(mine, None if polls is None else polled_members.find_polled_names(mine, polls))
        named, without = split_by_consumer(
            build_located_membership(members_found, topic, partition, types, mine), MEMBERSHIP
        )
        if polls is not None:
            known = {session.instance for session in members_found.sessions if session.instance}
            named = polled_members.complete_membership(named, polls, known, *span)
        tables.append(named)
        unnamed.append(without)
        dispatchers += [
            Dispatcher(topic, partition, name, tuple(s for s in members_found.sessions if s.subscription == name))
            for name in sorted(infer_types(_select_partition(kinds, topic, partition)))
        ]
    announced = rare.filter(pc.equal(rare["kind"], ANNOUNCEMENT_KIND))
    membership = add_levels(pa.concat_tables(tables), announced, span.end)
    return LogMembership(tuple(dispatchers), membership, pa.concat_tables(unnamed))


def fold_dispatcher(dispatcher: Dispatcher, batches: Iterable[pa.Table]) -> Iterator[tuple[str, pa.Table]]:
    """Fold the ordered events of a dispatcher into ``deliveries`` and ``rejected`` rows (``QUARANTINE``), which are
    dispatches without a known consumer."""
    fold = DeliveryFold(*dispatcher.key, list(dispatcher.sessions))
    for batch in batches:
        yield from _split_named(fold.add(batch))
    yield from _split_named(fold.finish())


def reject_unnamed_members(cast: LogMembership) -> pa.Table:
    """Build quarantine rows for events of members without a known name."""
    return _build_quarantine("membership", cast.unnamed, _MEMBER_RULE, _MEMBER_REMEDY)


def _split_named(found: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    named, unnamed = split_by_consumer(found, DELIVERIES)
    yield "deliveries", named
    once = unnamed.filter(pc.less_equal(unnamed["batch_index"], 0))  # one line covers all messages of its entry
    yield "rejected", _build_quarantine("deliveries", once, _SHARED_RULE, _SHARED_REMEDY)


def _build_quarantine(table: str, rows: pa.Table, rule: str, remedy: str) -> pa.Table:
    reason = {"column": "consumer", "value": "null", "rule": rule, "remedy": remedy}
    reasons = QUARANTINE.field("reasons").type
    columns = {
        "table": pa.repeat(table, len(rows)),
        "file": rows["file"],
        "row": rows["line"],
        "raw": _build_json(rows.drop_columns(["file", "line"])),
        "reasons": pa.array([[reason]] * len(rows), reasons),
    }
    return pa.table([columns[name] for name in QUARANTINE.names], schema=QUARANTINE)


def _build_json(rows: pa.Table) -> pa.ChunkedArray:
    """Convert rows to JSON objects without null values."""
    fields = []
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if pa.types.is_list(column.type) or column.null_count == len(column):
            continue
        if pa.types.is_integer(column.type):
            value = column.cast(pa.string())
        else:
            texts = column.cast(pa.string()).combine_chunks().dictionary_encode()
            texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
            quoted = pa.array([json.dumps(text) for text in texts.dictionary.to_pylist()], pa.string())
            value = quoted.take(texts.indices)
        fields.append(pc.binary_join_element_wise(f'"{name}": ', value, ""))
    if not fields:
        return pa.chunked_array([pa.repeat("{}", len(rows))])
    inner = pc.binary_join_element_wise(*fields, ", ", null_handling="skip")
    return pc.binary_join_element_wise("{", inner, "}", "")


def _select_partition(rows: pa.Table, topic: str, partition: int) -> pa.Table:
    return rows.filter(pc.and_(pc.equal(rows["topic"], topic), pc.equal(rows["partition"], partition)))


def _select_partition_events(rare: pa.Table, topic: str, partition: int) -> pa.Table:
    """Select the events of a topic partition, and those of its connections."""
    of_partition = pc.and_(pc.equal(rare["topic"], topic), pc.equal(rare["partition"], partition))
    connections = pc.unique(rare.filter(of_partition)["connection"]).drop_null()
    of_connection = pc.and_(pc.is_null(rare["topic"]), pc.is_in(rare["connection"], value_set=connections))
    return rare.filter(pc.or_kleene(of_partition, of_connection))
