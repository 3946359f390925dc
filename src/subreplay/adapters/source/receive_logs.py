"""Receive logs and member lists of applications, known by what their columns are called and hold.

A receive log has who received which message when; it becomes table ``deliveries``. A member list has who joined and
left when; it becomes table ``membership``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.source.answers import Answered
from subreplay.adapters.source.columns import Column, columns, find, kind_of
from subreplay.adapters.source.contents import MOST, Contents
from subreplay.adapters.source.mapping import Source
from subreplay.adapters.source.recognise import conversion_of, guesses_of, recognise
from subreplay.rows.model.columns import Ints

POSITION: Final = ("topic", "partition", "offset", "message_id", "ledger", "entry", "batch_index")
_CONSUMER: Final = re.compile(
    r"consumer|worker|member|receiver|handler|processor|instance|host|pod|node|client|thread|process|listener|empf|"
    r"verbraucher|consom|consum|trabajador|потреб|消费",
    re.IGNORECASE,
)
_NO_CONSUMER: Final = re.compile(r"group|_at$|time|count|subscription|producer", re.IGNORECASE)
_GROUP: Final = re.compile(r"^(consumer_?)?group(_?id|_?name)?$|^subscription(_?name)?$", re.IGNORECASE)
_TIMES: Final = {
    "nacked_at": re.compile(r"nack|negative|reject|fail|abgelehnt", re.IGNORECASE),
    "acked_at": re.compile(
        r"ack|done|commit|finish|complet|end|processed|handled|settled|erledigt|fertig|quitt|best(ä|ae)tig|termin",
        re.IGNORECASE,
    ),
    "received_at": re.compile(
        r"receiv|recv|got|deliver|consum|poll|fetch|start|begin|read|taken|empf|erhalt|rec[ui]b|re[cç]u", re.IGNORECASE
    ),
}
_PUBLISHED: Final = re.compile(r"publish|produc|creat|sent|send|insert", re.IGNORECASE)
_DISPATCHED: Final = re.compile(r"^(delivered|dispatched)_?at$", re.IGNORECASE)
_ATTEMPT: Final = re.compile(r"redeliver|attempt|retr|tries|delivery_?count|deliveries|versuch|intento", re.IGNORECASE)
_EVENTS: Final = {
    "join": ("join", "joined", "joins", "start", "started", "connect", "connected", "subscribe", "subscribed", "up",
             "add", "added", "register", "registered", "in", "enter", "online"),
    "leave": ("leave", "left", "leaves", "stop", "stopped", "disconnect", "disconnected", "close", "closed", "down",
              "unsubscribe", "unsubscribed", "remove", "removed", "out", "exit", "exited", "offline", "shutdown"),
    "crash": ("crash", "crashed", "died", "dead", "kill", "killed", "lost", "timeout", "timed out", "evicted"),
}  # fmt: skip
_WORDS: Final = {word: event for event, words in _EVENTS.items() for word in words}
_MOST_CONSUMERS: Final = 0.2  # of the rows


class Recognised(NamedTuple):
    """What a file is taken for: the section of a run file that reads it, and what was assumed."""

    table: str
    section: dict[str, Any]
    assumed: tuple[str, ...]
    subscription: str | None = None


def receive_log(contents: Contents, messages: Answered | None, topic: str | None) -> Recognised | None:
    """A file as table ``deliveries``; None where it is none. ``messages`` is what the messages beside it are taken for,
    whose columns of positions are likely to be called the same."""
    schema = contents.rows.schema
    found = _positions(contents, messages)
    if not {"offset", "message_id", "entry"} & set(found):
        return None
    taken = {each.column for each in found.values()}
    free = [column for column in columns(schema) if len(column.path) == 1 and column.name not in taken]
    consumer = _consumer(free, contents)
    times = dict(
        _times([column for column in free if contents[column].kind == "time" or contents[column].unit], contents)
    )
    if consumer is None or not times:
        return None
    assumed = [f"consumer is taken to be {consumer.name}"]
    found["consumer"] = Source(consumer.name)
    for ours, column in times.items():
        found[ours] = Source(
            column.name, conversion_of("publish_time", column, contents) if kind_of(column.type) != "time" else None
        )
        assumed.append(f"{ours} is taken to be {column.name}")
    values: dict[str, Any] = {"seq": 0, "source": "observed"}
    attempt = next((c for c in free if _ATTEMPT.search(c.path[-1]) and contents[c].kind == "integer"), None)
    if attempt is None:
        values["redelivery_count"] = 0
        assumed.append("redelivery_count: no column holds it; each delivery counts as the first of its message")
    else:
        from_1 = pc.min(contents[attempt].numbers).as_py() >= 1
        text = kind_of(attempt.type) == "text"
        found["redelivery_count"] = Source(attempt.name, "from_1" if from_1 else "integer" if text else None)
        assumed.append(f"redelivery_count is taken to be {attempt.name}" + (", which counts from 1" if from_1 else ""))
    return _recognised("deliveries", found, values, assumed, contents, topic, messages)


def member_list(contents: Contents, topic: str | None) -> Recognised | None:
    """A file as table ``membership``; None where it is none."""
    free = [column for column in columns(contents.rows.schema) if len(column.path) == 1]
    event = next((column for column in free if _speaks_of_events(column, contents)), None)
    times = [column for column in free if contents[column].kind == "time" or contents[column].unit]
    others = [column for column in free if column is not event]
    consumer = _consumer(others, contents, few=False) if event is not None else None
    if event is None or consumer is None or not times:
        return None
    there = set(pc.unique(contents.values(event)).to_pylist()) - {None}
    words = {word: _WORDS[word.strip().lower()] for word in sorted(there) if word.strip().lower() in _WORDS}
    words = {theirs: ours for theirs, ours in words.items() if theirs != ours}
    at = times[0]
    how = conversion_of("publish_time", at, contents) if kind_of(at.type) != "time" else None
    found = {
        "consumer": Source(consumer.name),
        "event": Source(event.name, None, "", words),
        "at": Source(at.name, how),
    }
    topics = next((column for column in others if column.path[-1].lower() == "topic"), None)
    if topics is not None:
        found["topic"] = Source(topics.name)
    assumed = [f"{ours} is taken to be {each.column}" for ours, each in found.items()]
    return _recognised("membership", found, {"type": "consumer", "seq": 0}, assumed, contents, topic, None)


def _recognised(
    table: str,
    found: dict[str, Source],
    values: dict[str, Any],
    assumed: Sequence[str],
    contents: Contents,
    topic: str | None,
    messages: Answered | None,
) -> Recognised:
    group = next((c for c in columns(contents.rows.schema) if len(c.path) == 1 and _GROUP.search(c.path[-1])), None)
    name = None
    if group is not None:
        counts = pc.value_counts(contents.values(group)).to_pylist()
        name = max(counts, key=lambda each: (each["counts"], str(each["values"])))["values"]
        found["subscription"] = Source(group.name)
    else:
        values["subscription"] = "sub"
    if "topic" not in found and topic is not None:
        values["topic"] = topic
    if table == "deliveries" and not {"partition", "message_id"} & set(found):
        values["partition"] = -1 if messages is None else messages.section.get("values", {}).get("partition", -1)
    section = {"columns": {ours: each.plain for ours, each in found.items()}, "values": values}
    return Recognised(table, section, tuple(assumed), name)


def _positions(contents: Contents, messages: Answered | None) -> dict[str, Source]:
    """The columns of a receive log that name a message: called as in the messages, else by known names."""
    schema = contents.rows.schema
    theirs = {} if messages is None else messages.candidate.found
    same = {ours: each for ours, each in theirs.items() if ours in POSITION and each.column in schema.names}
    if {"offset", "message_id", "entry"} & set(same):
        return {ours: _converted(ours, each, contents) for ours, each in same.items()}
    every = [each for each in recognise(schema, (), contents) if each.table == "messages"]
    named = every[0].found if every else {each.ours: each.source for each in guesses_of(schema, contents)}
    return {ours: each for ours, each in named.items() if ours in POSITION and each.column is not None}


def _converted(ours: str, each: Source, contents: Contents) -> Source:
    column = next(c for c in columns(contents.rows.schema) if c.name == each.column)
    return each if ours in ("topic", "message_id") else Source(each.column, conversion_of(ours, column, contents))


def _consumer(free: Sequence[Column], contents: Contents, *, few: bool = True) -> Column | None:
    """The column of consumers' names: texts that most rows repeat."""
    names = [
        column
        for column in free
        if kind_of(column.type) == "text" and contents[column].kind in ("text", "integer") and contents.distinct(column)
    ]
    named = [c for c in names if _CONSUMER.search(c.path[-1]) and not _NO_CONSUMER.search(c.path[-1])]
    rows = len(contents.rows)
    for column in named:
        if not few or contents.distinct(column) <= max(_MOST_CONSUMERS * rows, 4):
            return column
    return None if few or not names else names[0]


def _times(free: Sequence[Column], contents: Contents) -> Iterator[tuple[str, Column]]:
    """Times of a receive log by what they are called; of others the earlier is that of the receipt."""
    left = [column for column in free if not _PUBLISHED.search(column.path[-1])]
    found: dict[str, Column] = {}
    for column in list(left):
        name = column.path[-1]
        ours = (
            "delivered_at" if _DISPATCHED.search(name) else next((o for o, p in _TIMES.items() if p.search(name)), None)
        )
        if ours is not None and ours not in found:
            found[ours] = column
            left.remove(column)
    if "received_at" not in found and "delivered_at" not in found and left:
        found["received_at"] = min(left, key=lambda column: _mean(column, contents))
    yield from found.items()


def _mean(column: Column, contents: Contents) -> float:
    numbers = contents[column].numbers
    return 0.0 if numbers is None else float(pc.mean(numbers).as_py() or 0.0)


def _speaks_of_events(column: Column, contents: Contents) -> bool:
    if kind_of(column.type) != "text":
        return False
    words = pc.drop_null(contents.values(column))
    known = pc.is_in(pc.utf8_lower(pc.utf8_trim_whitespace(words)), pa.array(sorted(_WORDS)))
    return bool(len(words)) and float(pc.mean(known.cast(pa.float64())).as_py()) >= MOST


_HANDOVERS: Final = 0.02  # of the deliveries of a partition, where one consumer has it at a time
_STICKY: Final = 0.99  # of the keys, where each has one consumer


def policy_of(log: Contents, found: Recognised, messages: Contents, answer: Answered) -> tuple[str, str]:
    """The policy that a receive log looks like, and why: who has a partition, or a key, at a time."""
    mine, theirs = found.section["columns"], answer.section.get("columns", {})
    names = _values(log, mine["consumer"]).dictionary_encode()
    consumers = np.asarray(names.indices.fill_null(-1), np.int64)
    parts = _numbers(log, mine.get("partition"))
    times = _numbers(log, next(mine[ours] for ours in ("received_at", "delivered_at", "acked_at") if ours in mine))
    order = np.lexsort((np.arange(len(parts)), times, parts))
    within = np.diff(parts[order]) == 0
    handovers = int(np.sum((np.diff(consumers[order]) != 0) & within))
    kafka = "offset" in mine and "partition" in mine
    if handovers <= max(_HANDOVERS * len(parts), len(np.unique(parts))):
        if not kafka:
            return "pulsar.failover", "each partition has one consumer at a time"
        owners = {int(part): str(names.dictionary[int(np.bincount(consumers[parts == part]).argmax())])
                  for part in np.unique(parts)}  # fmt: skip
        return _assignor(owners), "each partition has one consumer at a time"
    if "key" not in theirs or not _by_key(log, mine, consumers, messages, theirs):
        return "pulsar.shared", "consumers share partitions, and messages of one key"
    return "pulsar.key_shared.auto_split", "consumers share partitions, and each key has one consumer"


def _assignor(owners: dict[int, str]) -> str:
    """The assignor of a Kafka group that gives partitions to these members."""
    members, parts = sorted(set(owners.values())), sorted(owners)
    most, more = divmod(len(parts), len(members))
    by_range = [name for n, name in enumerate(members) for _ in range(most + (n < more))]
    by_turns = [members[n % len(members)] for n in range(len(parts))]
    real = [owners[part] for part in parts]
    return "kafka.range" if real == by_range else "kafka.roundrobin" if real == by_turns else "kafka.cooperative_sticky"


def _by_key(log: Contents, mine: dict[str, Any], consumers: Ints, messages: Contents, theirs: dict[str, Any]) -> bool:
    """Whether the messages of a key go to one consumer."""
    position = [ours for ours in POSITION if ours in mine and ours in theirs]
    keys = _values(messages, theirs["key"]).dictionary_encode().indices.to_pylist()
    of = dict(zip(_tuples(messages, theirs, position), keys, strict=True))
    served: dict[int, set[int]] = {}
    for at, consumer in zip(_tuples(log, mine, position), consumers.tolist(), strict=True):
        if (key := of.get(at)) is not None:
            served.setdefault(key, set()).add(consumer)
    return bool(served) and sum(len(each) == 1 for each in served.values()) >= _STICKY * len(served)


def _tuples(contents: Contents, columns_: dict[str, Any], names: Sequence[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(map(str, _values(contents, columns_[name]).to_pylist()) for name in names), strict=True))


def _values(contents: Contents, given: Any) -> pa.Array:
    return contents.values(find(contents.rows.schema, given["column"] if isinstance(given, dict) else given))


def _numbers(contents: Contents, given: Any) -> Ints:
    """A column's numbers; where there is no column, 0 in each row."""
    if given is None:
        return np.zeros(len(contents.rows), np.int64)
    found = contents.named(contents.rows.schema, given["column"] if isinstance(given, dict) else given)
    if found.numbers is None:
        return np.zeros(len(contents.rows), np.int64)
    return np.asarray(pc.fill_null(found.numbers, -1), np.int64)
