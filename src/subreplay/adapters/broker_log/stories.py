"""Who takes part in a log, and the story of each subscription: its events in order, folded as they pass.

The members of all topic partitions are few and are known first, from the rare lines of the whole log. With them the
events of a subscription of a topic partition are folded in batches, with what is outstanding as the only state.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.broker_log import polled
from subreplay.adapters.broker_log.adapter import JOINED, apart, joined, types_of
from subreplay.adapters.broker_log.deliveries import Fold
from subreplay.adapters.broker_log.levels import ranked
from subreplay.adapters.broker_log.members import ANNOUNCED, RARE, WHOLE, Session, members
from subreplay.rows.model.tables import DELIVERIES, MEMBERSHIP, QUARANTINE

KINDS: Final = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("subscription", pa.string()), ("kind", pa.string())]
)
"""Which kinds of events there are of each subscription of a topic partition."""
_WHO: Final = ("topic", "partition", "subscription", "connection", "consumer_id", "consumer")
_MEMBER_RULE: Final = "the log names a consumer where it leaves, or in a DEBUG line of its dispatcher"
_MEMBER_REMEDY: Final = "give polled topic statistics beside it (option statistics)"
_SHARED_RULE: Final = "a dispatch tells its consumer: several members with this id are on one IO thread"
_SHARED_REMEDY: Final = "set numIOThreads=32 at the broker, or take receipts from the application"


def telling_of_members(found: pa.Table) -> pa.Table:
    """Of numbered events those that tell of members: the rare ones, who was active, and of the others the first of each
    consumer that they show whole."""
    rare = pc.is_in(found["kind"], value_set=pa.array([*RARE, ANNOUNCED]))
    others = found.filter(pc.and_not(pc.is_in(found["kind"], value_set=pa.array(WHOLE)), rare))
    numbered = others.select(_WHO).append_column("row", pa.array(np.arange(len(others))))
    first = numbered.group_by(_WHO).aggregate([("row", "min")])["row_min"]
    return pa.concat_tables([found.filter(rare), others.take(first)])


@dataclass(frozen=True)
class Story:
    """A subscription of a topic partition, and its members."""

    topic: str
    partition: int
    subscription: str
    sessions: tuple[Session, ...]

    @property
    def dispatcher(self) -> tuple[str, int, str]:
        """What its events have in common."""
        return self.topic, self.partition, self.subscription


class Cast(NamedTuple):
    """The ``stories`` of a log, its canonical ``membership``, and the ``unnamed`` rows of it (``JOINED``)."""

    stories: tuple[Story, ...]
    membership: pa.Table
    unnamed: pa.Table


class Span(NamedTuple):
    """From when to when (µs) a log tells."""

    begin: int
    end: int


def cast_of(rare: pa.Table, kinds: pa.Table, seen: pa.Table | None, span: Span) -> Cast:
    """Who takes part. ``rare`` are the numbered events, in order, that are ``telling_of_members``. ``kinds``
    (``KINDS``) are those of all events, and ``seen`` is the membership of polled statistics by address."""
    stories: list[Story] = []
    tables, unnamed = [MEMBERSHIP.empty_table()], [JOINED.empty_table()]
    for topic, partition in sorted({(row["topic"], row["partition"]) for row in kinds.to_pylist() if row["topic"]}):
        mine = _of_topic_partition(rare, topic, partition)
        polls = None if seen is None else _at(seen, topic, partition)
        types = types_of(_at(kinds, topic, partition))
        if polls is not None:
            types |= {row["subscription"]: row["type"] for row in polls.to_pylist() if row["type"] != "unknown"}
        who = members(mine, None if polls is None else polled.names(mine, polls))
        named, without = apart(joined(who, topic, partition, types, mine), MEMBERSHIP)
        if polls is not None:
            known = {session.instance for session in who.sessions if session.instance}
            named = polled.completed(named, polls, known, *span)
        tables.append(named)
        unnamed.append(without)
        stories += [
            Story(topic, partition, name, tuple(s for s in who.sessions if s.subscription == name))
            for name in sorted(types_of(_at(kinds, topic, partition)))
        ]
    announced = rare.filter(pc.equal(rare["kind"], ANNOUNCED))
    membership = ranked(pa.concat_tables(tables), announced, span.end)
    return Cast(tuple(stories), membership, pa.concat_tables(unnamed))


def told(story: Story, batches: Iterable[pa.Table]) -> Iterator[tuple[str, pa.Table]]:
    """``deliveries`` of a story, and ``rejected`` rows (``QUARANTINE``): dispatches to nobody knows whom. ``batches``
    are its numbered events, in order."""
    fold = Fold(*story.dispatcher, list(story.sessions))
    for batch in batches:
        yield from _named(fold.take(batch))
    yield from _named(fold.finish())


def unnamed_members(cast: Cast) -> pa.Table:
    """Events of members whose names nobody knows, as rows of the quarantine."""
    return _rejected("membership", cast.unnamed, _MEMBER_RULE, _MEMBER_REMEDY)


def _named(found: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    named, unnamed = apart(found, DELIVERIES)
    yield "deliveries", named
    once = unnamed.filter(pc.less_equal(unnamed["batch_index"], 0))  # a line tells of all messages of its entry
    yield "rejected", _rejected("deliveries", once, _SHARED_RULE, _SHARED_REMEDY)


def _rejected(table: str, rows: pa.Table, rule: str, remedy: str) -> pa.Table:
    reason = {"column": "consumer", "value": "null", "rule": rule, "remedy": remedy}
    reasons = QUARANTINE.field("reasons").type
    columns = {
        "table": pa.repeat(table, len(rows)),
        "file": rows["file"],
        "row": rows["line"],
        "raw": _json(rows.drop_columns(["file", "line"])),
        "reasons": pa.array([[reason]] * len(rows), reasons),
    }
    return pa.table([columns[name] for name in QUARANTINE.names], schema=QUARANTINE)


def _json(rows: pa.Table) -> pa.ChunkedArray:
    """Rows as JSON objects, those of null values left out."""
    fields = []
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if pa.types.is_list(column.type) or column.null_count == len(column):
            continue
        if pa.types.is_integer(column.type):
            value = column.cast(pa.string())
        else:
            words = column.cast(pa.string()).combine_chunks().dictionary_encode()
            words = words.combine_chunks() if isinstance(words, pa.ChunkedArray) else words
            quoted = pa.array([json.dumps(word) for word in words.dictionary.to_pylist()], pa.string())
            value = quoted.take(words.indices)
        fields.append(pc.binary_join_element_wise(f'"{name}": ', value, ""))
    if not fields:
        return pa.chunked_array([pa.repeat("{}", len(rows))])
    inner = pc.binary_join_element_wise(*fields, ", ", null_handling="skip")
    return pc.binary_join_element_wise("{", inner, "}", "")


def _at(rows: pa.Table, topic: str, partition: int) -> pa.Table:
    return rows.filter(pc.and_(pc.equal(rows["topic"], topic), pc.equal(rows["partition"], partition)))


def _of_topic_partition(rare: pa.Table, topic: str, partition: int) -> pa.Table:
    """The events of a topic partition, and those of the connections that it names."""
    mine = pc.and_(pc.equal(rare["topic"], topic), pc.equal(rare["partition"], partition))
    connections = pc.unique(rare.filter(mine)["connection"]).drop_null()
    of_connection = pc.and_(pc.is_null(rare["topic"]), pc.is_in(rare["connection"], value_set=connections))
    return rare.filter(pc.or_kleene(mine, of_connection))
