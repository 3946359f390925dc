"""Recognise receive logs and member lists of applications by the names and contents of their columns.

A receive log records which consumer received which message and when; it becomes table ``deliveries``. A member list
records which consumer joined and left and when; it becomes table ``membership``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.source.answered_questions import AnsweredCandidate
from subreplay.adapters.source.column_mapping import ColumnSource
from subreplay.adapters.source.sample_contents import MIN_SHARE, SampleContents
from subreplay.adapters.source.source_columns import SourceColumn, find_column, iterate_columns, value_kind
from subreplay.adapters.source.source_recognition import guess_columns, guess_conversion, list_candidates
from subreplay.rows.model.columns import Ints

POSITION_TARGETS: Final = ("topic", "partition", "offset", "message_id", "ledger", "entry", "batch_index")
_CONSUMER_NAME: Final = re.compile(
    r"consumer|worker|member|receiver|handler|processor|instance|host|pod|node|client|thread|process|listener|empf|"
    r"verbraucher|consom|consum|trabajador|потреб|消费",
    re.IGNORECASE,
)
_OTHER_NAME: Final = re.compile(r"group|_at$|time|count|subscription|producer", re.IGNORECASE)
_GROUP_NAME: Final = re.compile(r"^(consumer_?)?group(_?id|_?name)?$|^subscription(_?name)?$", re.IGNORECASE)
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
_PUBLISH_NAME: Final = re.compile(r"publish|produc|creat|sent|send|insert", re.IGNORECASE)
_DISPATCH_NAME: Final = re.compile(r"^(delivered|dispatched)_?at$", re.IGNORECASE)
_ATTEMPT_NAME: Final = re.compile(
    r"redeliver|attempt|retr|tries|delivery_?count|deliveries|versuch|intento", re.IGNORECASE
)
_EVENTS: Final = {
    "join": ("join", "joined", "joins", "start", "started", "connect", "connected", "subscribe", "subscribed", "up",
             "add", "added", "register", "registered", "in", "enter", "online"),
    "leave": ("leave", "left", "leaves", "stop", "stopped", "disconnect", "disconnected", "close", "closed", "down",
              "unsubscribe", "unsubscribed", "remove", "removed", "out", "exit", "exited", "offline", "shutdown"),
    "crash": ("crash", "crashed", "died", "dead", "kill", "killed", "lost", "timeout", "timed out", "evicted"),
}  # fmt: skip
_EVENT_BY_WORD: Final = {word: event for event, words in _EVENTS.items() for word in words}
_MAX_CONSUMER_SHARE: Final = 0.2  # of the rows


class RecognisedFile(NamedTuple):
    """A recognised file: the section of a run file that reads it, and the assumptions."""

    table: str
    section: dict[str, Any]
    assumed: tuple[str, ...]
    subscription: str | None = None


def recognise_receive_log(
    contents: SampleContents, messages: AnsweredCandidate | None, topic: str | None
) -> RecognisedFile | None:
    """Recognise a file as table ``deliveries``, or return None. ``messages`` is the recognised source of messages,
    whose position columns probably have the same names."""
    schema = contents.rows.schema
    found = _find_positions(contents, messages)
    if not {"offset", "message_id", "entry"} & set(found):
        return None
    taken = {each.column for each in found.values()}
    free = [column for column in iterate_columns(schema) if len(column.path) == 1 and column.name not in taken]
    consumer = _find_consumer(free, contents)
    times = dict(
        _find_times([column for column in free if contents[column].kind == "time" or contents[column].unit], contents)
    )
    if consumer is None or not times:
        return None
    assumed = [f"consumer is taken to be {consumer.name}"]
    found["consumer"] = ColumnSource(consumer.name)
    for target, column in times.items():
        found[target] = ColumnSource(
            column.name,
            guess_conversion("publish_time", column, contents) if value_kind(column.type) != "time" else None,
        )
        assumed.append(f"{target} is taken to be {column.name}")
    values: dict[str, Any] = {"seq": 0, "source": "observed"}
    attempt = next((c for c in free if _ATTEMPT_NAME.search(c.path[-1]) and contents[c].kind == "integer"), None)
    if attempt is None:
        values["redelivery_count"] = 0
        assumed.append("redelivery_count: no column contains it, so each delivery counts as the first of its message")
    else:
        from_1 = pc.min(contents[attempt].numbers).as_py() >= 1
        text = value_kind(attempt.type) == "text"
        found["redelivery_count"] = ColumnSource(attempt.name, "from_1" if from_1 else "integer" if text else None)
        assumed.append(f"redelivery_count is taken to be {attempt.name}" + (", which counts from 1" if from_1 else ""))
    return _build_recognised("deliveries", found, values, assumed, contents, topic, messages)


def recognise_member_list(contents: SampleContents, topic: str | None) -> RecognisedFile | None:
    """Recognise a file as table ``membership``, or return None."""
    free = [column for column in iterate_columns(contents.rows.schema) if len(column.path) == 1]
    event = next((column for column in free if _has_event_names(column, contents)), None)
    times = [column for column in free if contents[column].kind == "time" or contents[column].unit]
    others = [column for column in free if column is not event]
    consumer = _find_consumer(others, contents, must_repeat=False) if event is not None else None
    if event is None or consumer is None or not times:
        return None
    events = set(pc.unique(contents.values(event)).to_pylist()) - {None}
    words = {
        word: _EVENT_BY_WORD[word.strip().lower()] for word in sorted(events) if word.strip().lower() in _EVENT_BY_WORD
    }
    words = {source: canonical for source, canonical in words.items() if source != canonical}
    at = times[0]
    how = guess_conversion("publish_time", at, contents) if value_kind(at.type) != "time" else None
    found = {
        "consumer": ColumnSource(consumer.name),
        "event": ColumnSource(event.name, None, "", words),
        "at": ColumnSource(at.name, how),
    }
    topics = next((column for column in others if column.path[-1].lower() == "topic"), None)
    if topics is not None:
        found["topic"] = ColumnSource(topics.name)
    assumed = [f"{target} is taken to be {each.column}" for target, each in found.items()]
    return _build_recognised("membership", found, {"type": "consumer", "seq": 0}, assumed, contents, topic, None)


def _build_recognised(
    table: str,
    found: dict[str, ColumnSource],
    values: dict[str, Any],
    assumed: Sequence[str],
    contents: SampleContents,
    topic: str | None,
    messages: AnsweredCandidate | None,
) -> RecognisedFile:
    group = next(
        (c for c in iterate_columns(contents.rows.schema) if len(c.path) == 1 and _GROUP_NAME.search(c.path[-1])), None
    )
    name = None
    if group is not None:
        counts = pc.value_counts(contents.values(group)).to_pylist()
        name = max(counts, key=lambda each: (each["counts"], str(each["values"])))["values"]
        found["subscription"] = ColumnSource(group.name)
    else:
        values["subscription"] = "sub"
    if "topic" not in found and topic is not None:
        values["topic"] = topic
    if table == "deliveries" and not {"partition", "message_id"} & set(found):
        values["partition"] = -1 if messages is None else messages.section.get("values", {}).get("partition", -1)
    section = {"columns": {target: each.plain for target, each in found.items()}, "values": values}
    return RecognisedFile(table, section, tuple(assumed), name)


def _find_positions(contents: SampleContents, messages: AnsweredCandidate | None) -> dict[str, ColumnSource]:
    """Find the columns that locate a message: named as in the messages, else by known names."""
    schema = contents.rows.schema
    known = {} if messages is None else messages.candidate.found
    same = {
        target: each for target, each in known.items() if target in POSITION_TARGETS and each.column in schema.names
    }
    if {"offset", "message_id", "entry"} & set(same):
        return {target: _add_conversion(target, each, contents) for target, each in same.items()}
    every = [each for each in list_candidates(schema, (), contents) if each.table == "messages"]
    named = every[0].found if every else {each.target: each.source for each in guess_columns(schema, contents)}
    return {target: each for target, each in named.items() if target in POSITION_TARGETS and each.column is not None}


def _add_conversion(target: str, each: ColumnSource, contents: SampleContents) -> ColumnSource:
    column = next(c for c in iterate_columns(contents.rows.schema) if c.name == each.column)
    return (
        each
        if target in ("topic", "message_id")
        else ColumnSource(each.column, guess_conversion(target, column, contents))
    )


def _find_consumer(
    free: Sequence[SourceColumn], contents: SampleContents, *, must_repeat: bool = True
) -> SourceColumn | None:
    """Find the column of consumer names: texts that most rows repeat."""
    names = [
        column
        for column in free
        if value_kind(column.type) == "text"
        and contents[column].kind in ("text", "integer")
        and contents.count_distinct(column)
    ]
    named = [c for c in names if _CONSUMER_NAME.search(c.path[-1]) and not _OTHER_NAME.search(c.path[-1])]
    rows = len(contents.rows)
    for column in named:
        if not must_repeat or contents.count_distinct(column) <= max(_MAX_CONSUMER_SHARE * rows, 4):
            return column
    return None if must_repeat or not names else names[0]


def _find_times(free: Sequence[SourceColumn], contents: SampleContents) -> Iterator[tuple[str, SourceColumn]]:
    """Yield the time columns of a receive log by their names; of the others the earliest is the receipt."""
    remaining = [column for column in free if not _PUBLISH_NAME.search(column.path[-1])]
    found: dict[str, SourceColumn] = {}
    for column in list(remaining):
        name = column.path[-1]
        target = (
            "delivered_at"
            if _DISPATCH_NAME.search(name)
            else next((o for o, p in _TIMES.items() if p.search(name)), None)
        )
        if target is not None and target not in found:
            found[target] = column
            remaining.remove(column)
    if "received_at" not in found and "delivered_at" not in found and remaining:
        found["received_at"] = min(remaining, key=lambda column: _compute_mean(column, contents))
    yield from found.items()


def _compute_mean(column: SourceColumn, contents: SampleContents) -> float:
    numbers = contents[column].numbers
    return 0.0 if numbers is None else float(pc.mean(numbers).as_py() or 0.0)


def _has_event_names(column: SourceColumn, contents: SampleContents) -> bool:
    if value_kind(column.type) != "text":
        return False
    words = pc.drop_null(contents.values(column))
    known = pc.is_in(pc.utf8_lower(pc.utf8_trim_whitespace(words)), pa.array(sorted(_EVENT_BY_WORD)))
    return bool(len(words)) and float(pc.mean(known.cast(pa.float64())).as_py()) >= MIN_SHARE


_MAX_HANDOVER_SHARE: Final = 0.02  # the share of a partition's deliveries, where one consumer has it at a time
_MIN_STICKY_SHARE: Final = 0.99  # the share of keys with one consumer each


def infer_log_policy(
    log: SampleContents, found: RecognisedFile, messages: SampleContents, answer: AnsweredCandidate
) -> tuple[str, str]:
    """Infer the policy of a receive log, and explain it: which consumer has a partition or a key at a time."""
    log_columns, message_columns = found.section["columns"], answer.section.get("columns", {})
    names = _read_values(log, log_columns["consumer"]).dictionary_encode()
    consumers = np.asarray(names.indices.fill_null(-1), np.int64)
    parts = _read_numbers(log, log_columns.get("partition"))
    time_columns = (
        log_columns[target] for target in ("received_at", "delivered_at", "acked_at") if target in log_columns
    )
    times = _read_numbers(log, next(time_columns))
    order = np.lexsort((np.arange(len(parts)), times, parts))
    within = np.diff(parts[order]) == 0
    handovers = int(np.sum((np.diff(consumers[order]) != 0) & within))
    kafka = "offset" in log_columns and "partition" in log_columns
    if handovers <= max(_MAX_HANDOVER_SHARE * len(parts), len(np.unique(parts))):
        if not kafka:
            return "pulsar.failover", "each partition has one consumer at a time"
        owners = {int(part): str(names.dictionary[int(np.bincount(consumers[parts == part]).argmax())])
                  for part in np.unique(parts)}  # fmt: skip
        return _infer_assignor(owners), "each partition has one consumer at a time"
    if "key" not in message_columns or not _has_one_consumer_per_key(
        log, log_columns, consumers, messages, message_columns
    ):
        return "pulsar.shared", "consumers share partitions, and messages of one key"
    return "pulsar.key_shared.auto_split", "consumers share partitions, and each key has one consumer"


def _infer_assignor(owners: dict[int, str]) -> str:
    """Infer the assignor of a Kafka group from the owners of its partitions."""
    members, parts = sorted(set(owners.values())), sorted(owners)
    base, more = divmod(len(parts), len(members))
    by_range = [name for n, name in enumerate(members) for _ in range(base + (n < more))]
    by_turns = [members[n % len(members)] for n in range(len(parts))]
    real = [owners[part] for part in parts]
    return "kafka.range" if real == by_range else "kafka.roundrobin" if real == by_turns else "kafka.cooperative_sticky"


def _has_one_consumer_per_key(
    log: SampleContents,
    log_columns: dict[str, Any],
    consumers: Ints,
    messages: SampleContents,
    message_columns: dict[str, Any],
) -> bool:
    """Check whether all messages of a key go to one consumer."""
    position = [target for target in POSITION_TARGETS if target in log_columns and target in message_columns]
    keys = _read_values(messages, message_columns["key"]).dictionary_encode().indices.to_pylist()
    key_by_position = dict(zip(_read_tuples(messages, message_columns, position), keys, strict=True))
    consumers_by_key: dict[int, set[int]] = {}
    for at, consumer in zip(_read_tuples(log, log_columns, position), consumers.tolist(), strict=True):
        if (key := key_by_position.get(at)) is not None:
            consumers_by_key.setdefault(key, set()).add(consumer)
    single = sum(len(each) == 1 for each in consumers_by_key.values())
    return bool(consumers_by_key) and single >= _MIN_STICKY_SHARE * len(consumers_by_key)


def _read_tuples(contents: SampleContents, columns_: dict[str, Any], names: Sequence[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(map(str, _read_values(contents, columns_[name]).to_pylist()) for name in names), strict=True))


def _read_values(contents: SampleContents, column: Any) -> pa.Array:
    return contents.values(find_column(contents.rows.schema, column["column"] if isinstance(column, dict) else column))


def _read_numbers(contents: SampleContents, column: Any) -> Ints:
    """Read the numbers of a column; without a column they are 0."""
    if column is None:
        return np.zeros(len(contents.rows), np.int64)
    found = contents.find(contents.rows.schema, column["column"] if isinstance(column, dict) else column)
    if found.numbers is None:
        return np.zeros(len(contents.rows), np.int64)
    return np.asarray(pc.fill_null(found.numbers, -1), np.int64)
