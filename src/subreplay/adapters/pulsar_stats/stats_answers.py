"""Parse polled topic statistics of Pulsar: each record is one answer of the broker.

A record is a JSON object on one line, or printed over several lines as ``pulsar-admin`` does. It is the answer of
``topics stats`` or ``topics partitioned-stats --per-partition``. It stands alone, or in field ``stats`` of an object
with its time and topic.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, cast

from subreplay.adapters.base import WHOLE_FILE, Reason
from subreplay.adapters.canonical import split_topic
from subreplay.adapters.input_files import open_gzip
from subreplay.adapters.time_parsing import TIME_FORMS, parse_time, parse_time_in_name
from subreplay.rows.model.contracts import LARGEST, PARTITION, SLOT, shorten

PollTimePlace = Literal["field", "name", "modified"]
TIME_FIELDS: Final = ("at_ns", "at", "time", "timestamp", "polled_at", "ts")
_TOPIC_FIELDS: Final = ("topic", "topicName")
_RANGE: Final = re.compile(r"\[\s*(\d{1,10})\s*,\s*(\d{1,10})\s*\]", re.ASCII)
_ANSWER_FRAGMENT: Final = re.compile(r'"(?:connectedSince|subscriptions)"')
_POLL_REMEDY: Final = "poll `pulsar-admin topics stats`, or `topics partitioned-stats --per-partition`"


class PolledConsumer(NamedTuple):
    """A consumer in one poll. ``since`` is when it connected (ns), by the broker's clock."""

    name: str
    address: str | None
    since: int
    unacked: int | None
    permits: int | None
    blocked: bool | None
    draining: int | None
    ranges: tuple[tuple[int, int], ...] | None
    blocked_hashes: tuple[tuple[int, int, int], ...] = ()  # hash, unacknowledged messages, blocked attempts
    acked: int | None = None  # the time of its last acknowledgement (ms)


@dataclass(frozen=True)
class PolledSubscription:
    """A subscription in one poll."""

    type: str | None
    mode: str | None
    out_of_order: bool | None
    active: str | None
    consumers: tuple[PolledConsumer, ...]
    unacked: int | None = None
    blocked: bool | None = None  # because of unacknowledged messages
    backlog: int | None = None  # unacknowledged messages, without those that are still delayed
    in_replay: int | None = None
    dispatched: int | None = None  # the time of the last dispatched message (ms)


@dataclass(frozen=True)
class TopicPoll:
    """The state of one topic partition in one answer, at a time (ns) by the poller's clock."""

    topic: str
    partition: int
    at: int
    subscriptions: Mapping[str, PolledSubscription]


class StatsRecord(NamedTuple):
    """The text of one answer with its first line number; ``whole`` is false where the answer is truncated."""

    line: int
    text: str
    whole: bool


class RejectedAnswer(Exception):
    """An answer does not fit the contract; ``reason`` explains it."""

    def __init__(self, column: str, value: Any, rule: str, remedy: str) -> None:
        super().__init__(rule)
        shown = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
        self.reason = Reason(column, shorten(shown or "(empty)", 200), rule, remedy)


class DamagedFile(Exception):
    """A file cannot be read beyond a line."""

    def __init__(self, line: int, why: object) -> None:
        super().__init__(str(why))
        self.line = line


def read_records(path: Path) -> Iterator[StatsRecord | None]:
    """Yield the answers of a file, plain or gzip, and None for each line outside of answers.

    Raises ``DamagedFile`` where the file is truncated or damaged, and ``OSError`` where it cannot be opened.
    """
    number, first, parts = 0, 0, list[str]()
    try:
        with path.open("rb") as plain:
            packed = plain.read(2) == b"\x1f\x8b"
        with open_gzip(path) if packed else path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                text = line.decode(errors="surrogateescape").rstrip()  # bytes that are not UTF-8 are checked later
                opens = text.startswith("{")
                if parts and opens:  # the previous answer never ended
                    yield StatsRecord(first, "\n".join(parts), whole=False)
                    parts = []
                if opens or parts:
                    first = number if opens else first
                    parts.append(text)
                    if text == "}" or (opens and len(text) > 1 and text.endswith("}")):
                        yield StatsRecord(first, "\n".join(parts), whole=True)
                        parts = []
                    elif opens and len(text) > 1 and '"' in text:  # an answer on one line, but truncated
                        yield StatsRecord(first, text, whole=False)
                        parts = []
                elif _ANSWER_FRAGMENT.search(text):
                    yield StatsRecord(number, text, whole=False)
                elif text:
                    yield None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DamagedFile(first if parts else number + 1, error) from error
    if parts:
        yield StatsRecord(first, "\n".join(parts), whole=False)


@dataclass(frozen=True)
class PollReader:
    """Reads polls from records. ``topic`` is the topic of answers that contain none. ``times`` says where the time is:
    in a field of the record (``field``, or one of ``TIME_FIELDS``), in the file name, or the modification time."""

    topic: str | None = None
    times: PollTimePlace = "field"
    field: str | None = None

    def parse_polls(self, record: StatsRecord, path: Path) -> list[TopicPoll]:
        """Return the polls of one record, one per partition. Raises ``RejectedAnswer``."""
        content = _parse_object(record)
        inner = content.get("stats", content)
        if not isinstance(inner, dict):
            raise RejectedAnswer("stats", inner, "it must be an answer of topic statistics", _POLL_REMEDY)
        at = self._find_time(content, inner, path)
        if isinstance(inner.get("subscriptions"), dict) and not inner.get("partitions"):
            about = inner.get("metadata")
            if isinstance(about, dict) and about.get("partitions"):
                raise RejectedAnswer("partitions", {}, "statistics must be those of each partition", _POLL_REMEDY)
            topic = next((content[name] for name in _TOPIC_FIELDS if isinstance(content.get(name), str)), self.topic)
            if not topic:
                raise RejectedAnswer("topic", None, "an answer must contain its topic", "name the topic with --topic")
            return [_parse_poll(topic, at, inner)]
        parts = inner.get("partitions")
        if not isinstance(parts, dict) or not parts:
            raise RejectedAnswer("subscriptions", None, "an answer must contain its subscriptions", _POLL_REMEDY)
        return [_parse_poll(topic, at, stats) for topic, stats in parts.items()]

    def _find_time(self, content: dict[str, Any], inner: dict[str, Any], path: Path) -> int:
        if self.times == "modified":
            return path.stat().st_mtime_ns
        if self.times == "name":
            if (at := parse_time_in_name(path.name)) is None:
                raise RejectedAnswer(WHOLE_FILE, path.name, "the file name must contain the time of its poll",
                              "rename the file, as in stats-20261122T012508Z.json, or set option times")  # fmt: skip
            return at
        names = TIME_FIELDS if self.field is None else (self.field,)
        found = next(((name, each[name]) for name in names for each in (content, inner) if name in each), None)
        if found is None:
            raise RejectedAnswer(names[0], None, "a poll must have its time",
                          "write the time beside the answer. If the file name contains it pass --with times=name, or "
                          "else --with times=modified")  # fmt: skip
        if (at := parse_time(found[1])) is None:
            raise RejectedAnswer(found[0], found[1], f"a time must be {TIME_FORMS}", "correct the time of the poll")
        return at


def find_missing_fields(path: Path) -> tuple[bool, bool]:
    """Check whether the first answer of a file lacks its topic, and whether it lacks its time."""
    first = next((record for record in read_records(path) if record is not None and record.whole), None)
    try:
        content = {} if first is None else _parse_object(first)
    except RejectedAnswer:
        content = {}
    inner = content.get("stats", content)
    names = {*content, *(inner if isinstance(inner, dict) else ())}
    topic = any(name in content for name in _TOPIC_FIELDS) or bool(isinstance(inner, dict) and inner.get("partitions"))
    return bool(content) and not topic, bool(content) and not names & {*TIME_FIELDS}


def _parse_object(record: StatsRecord) -> dict[str, Any]:
    remedy = "copy the whole answer, or poll again"
    if not record.whole:
        raise RejectedAnswer(
            "(record)", _describe_length(record.text), "an answer must end with its closing bracket", remedy
        )
    try:
        content = json.loads(record.text)
        record.text.encode()
        if r"\ud" in record.text.lower():
            json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise RejectedAnswer("(record)", _describe_length(record.text), "an answer must be UTF-8", remedy) from error
    except (ValueError, RecursionError) as error:
        raise RejectedAnswer(
            "(record)", _describe_length(record.text), f"an answer must be one JSON object: {error}", remedy
        ) from error
    return cast(dict[str, Any], content)


def _describe_length(text: str) -> str:
    return f"({len(text):,} characters)"


def _parse_poll(topic: str, at: int, stats: Any) -> TopicPoll:
    name, partition = split_topic(topic)
    if partition > PARTITION.most:
        raise RejectedAnswer("topic", topic, PARTITION.rule, "correct the topic's name")
    found = stats.get("subscriptions") if isinstance(stats, dict) else None
    if not isinstance(found, dict):
        raise RejectedAnswer("subscriptions", found, "an answer must contain its subscriptions", _POLL_REMEDY)
    return TopicPoll(
        name,
        partition,
        at,
        {subscription: _parse_subscription(subscription, each) for subscription, each in found.items()},
    )


def _parse_subscription(subscription: str, fields: Any) -> PolledSubscription:
    where = f"subscriptions.{subscription}"
    if not subscription or not isinstance(fields, dict) or not isinstance(fields.get("consumers"), list):
        raise RejectedAnswer(
            where, _describe_type(fields), "a subscription must have a name and a list of consumers", _POLL_REMEDY
        )
    consumers = tuple(_parse_consumer(f"{where}.consumers[{i}]", each) for i, each in enumerate(fields["consumers"]))
    return PolledSubscription(
        _get_typed(fields, "type", str), _get_typed(fields, "keySharedMode", str),
        _get_typed(fields, "allowOutOfOrderDelivery", bool), _get_typed(fields, "activeConsumerName", str), consumers,
        _get_typed(fields, "unackedMessages", int), _get_typed(fields, "blockedSubscriptionOnUnackedMsgs", bool),
        _get_typed(fields, "msgBacklogNoDelayed", int), _get_typed(fields, "msgInReplay", int),
        _get_typed(fields, "lastConsumedTimestamp", int),
    )  # fmt: skip


def _parse_consumer(where: str, fields: Any) -> PolledConsumer:
    if not isinstance(fields, dict):
        raise RejectedAnswer(where, _describe_type(fields), "a consumer must be a JSON object", _POLL_REMEDY)
    name = fields.get("consumerName")
    if not isinstance(name, str) or not name:
        raise RejectedAnswer(f"{where}.consumerName", name, "a consumer must have a name", _POLL_REMEDY)
    since = parse_time(fields.get("connectedSince"))
    if since is None:
        rule = f"a consumer must have its connection time: {TIME_FORMS}"
        raise RejectedAnswer(f"{where}.connectedSince", fields.get("connectedSince"), rule, _POLL_REMEDY)
    address = _get_typed(fields, "address", str)
    return PolledConsumer(
        name,
        address.rpartition("/")[2] if address else None,  # a host name may precede the address
        since,
        _get_typed(fields, "unackedMessages", int),
        _get_typed(fields, "availablePermits", int),
        _get_typed(fields, "blockedConsumerOnUnackedMsgs", bool),
        _get_typed(fields, "drainingHashesCount", int),
        _parse_ranges(where, fields),
        _parse_blocked_hashes(fields),
        _get_typed(fields, "lastAckedTimestamp", int),
    )


def _parse_blocked_hashes(fields: dict[str, Any]) -> tuple[tuple[int, int, int], ...]:
    """Return the draining hashes (4.x), which are blocked until this consumer has acknowledged their messages."""
    listed = fields.get("drainingHashes")
    rows = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    numbers = [[_get_typed(row, name, int) for name in ("hash", "unackMsgs", "blockedAttempts")] for row in rows]
    return tuple((slot, unacked or 0, attempts or 0) for slot, unacked, attempts in numbers if slot is not None)


def _parse_ranges(where: str, fields: dict[str, Any]) -> tuple[tuple[int, int], ...] | None:
    """Return ``keyHashRangeArrays`` (4.x), or ``keyHashRanges`` (3.x, and the classic dispatcher of 4.x)."""
    column = "keyHashRangeArrays" if fields.get("keyHashRangeArrays") is not None else "keyHashRanges"
    listed = fields.get(column)
    if listed is None:
        return None
    pairs, wrong = _parse_pairs(json.dumps(listed))
    if pairs is None:
        rule = "hash ranges must be pairs of slots, the first not above the second"
        raise RejectedAnswer(f"{where}.{column}", wrong, rule, "poll again, or correct the ranges")
    return pairs


@lru_cache(maxsize=1024)  # consumers have the same ranges in most polls
def _parse_pairs(text: str) -> tuple[tuple[tuple[int, int], ...] | None, Any]:
    """Parse ranges from JSON, or return None with the value that is not a range."""
    ranges = json.loads(text)
    if not isinstance(ranges, list):
        return None, _describe_type(ranges)
    found = []
    for each in ranges:
        match = _RANGE.fullmatch(each) if isinstance(each, str) else None
        pair = list(map(int, match.groups())) if match else each
        fits = isinstance(pair, list) and len(pair) == 2 and all(type(slot) is int for slot in pair)
        if not fits or not SLOT.least <= pair[0] <= pair[1] <= SLOT.most:
            return None, each
        found.append((pair[0], pair[1]))
    return tuple(found), None


def _get_typed(fields: dict[str, Any], name: str, kind: type) -> Any:
    """Return a value of the right type and within 64 bits, else None."""
    value = fields.get(name)
    fits = not isinstance(value, int) or -LARGEST <= value <= LARGEST
    return value if type(value) is kind and fits else None


def _describe_type(value: Any) -> str:
    return f"({type(value).__name__})"
