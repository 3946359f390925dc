"""Polled topic statistics of Pulsar, one answer a record: what the broker said of each subscription, and when.

A record is a JSON object on one line, or one that is printed over several as ``pulsar-admin`` does. It is the answer of
``topics stats``, or of ``topics partitioned-stats --per-partition``, by itself or in field ``stats`` of an object that
says when and of which topic it is.
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

from subreplay.adapters.base import Reason
from subreplay.adapters.canonical import base_topic
from subreplay.adapters.times import FORMS, in_name, instant
from subreplay.rows.model.contracts import LARGEST, PARTITION, SLOT, shortened

Times = Literal["field", "name", "modified"]
TIME_FIELDS: Final = ("at_ns", "at", "time", "timestamp", "polled_at", "ts")
_TOPIC_FIELDS: Final = ("topic", "topicName")
_RANGE: Final = re.compile(r"\[\s*(\d{1,10})\s*,\s*(\d{1,10})\s*\]", re.ASCII)
_REMAINS: Final = re.compile(r'"(?:connectedSince|subscriptions)"')
_POLL_AGAIN: Final = "poll `pulsar-admin topics stats`, or `topics partitioned-stats --per-partition`"


class Seen(NamedTuple):
    """A consumer as one poll shows it. ``since`` is when it connected (ns), by the broker's clock."""

    name: str
    address: str | None
    since: int
    unacked: int | None
    permits: int | None
    blocked: bool | None
    draining: int | None
    ranges: tuple[tuple[int, int], ...] | None
    blocked_hashes: tuple[tuple[int, int, int], ...] = ()  # hash, unacknowledged messages, blocked attempts
    acked: int | None = None  # when it last acknowledged (ms)


@dataclass(frozen=True)
class Shown:
    """A subscription as one poll shows it."""

    type: str | None
    mode: str | None
    out_of_order: bool | None
    active: str | None
    consumers: tuple[Seen, ...]
    unacked: int | None = None
    blocked: bool | None = None  # on unacknowledged messages
    backlog: int | None = None  # not acknowledged, without those whose delay has not passed
    in_replay: int | None = None
    dispatched: int | None = None  # when a message was last (ms)


@dataclass(frozen=True)
class Poll:
    """What one answer says of one topic partition at a time (ns, by the clock of who asked)."""

    topic: str
    partition: int
    at: int
    subscriptions: Mapping[str, Shown]


class Record(NamedTuple):
    """Text of one answer, by the line where it begins; ``whole`` is false where it ends too early."""

    line: int
    text: str
    whole: bool


class Refused(Exception):
    """A record that does not fit, with the reason."""

    def __init__(self, column: str, value: Any, rule: str, remedy: str) -> None:
        super().__init__(rule)
        shown = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
        self.reason = Reason(column, shortened(shown or "(empty)", 200), rule, remedy)


class Damaged(Exception):
    """A file that cannot be read beyond a line."""

    def __init__(self, line: int, why: object) -> None:
        super().__init__(str(why))
        self.line = line


def records(path: Path) -> Iterator[Record | None]:
    """The answers of a file, plain or gzip; None for each line outside of any. Raises ``Damaged`` where the file is cut
    off or damaged, and ``OSError`` where it cannot be opened."""
    number, first, parts = 0, 0, list[str]()
    try:
        with path.open("rb") as plain:
            packed = plain.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rb") if packed else path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                text = line.decode(errors="surrogateescape").rstrip()  # what is no UTF-8 is found where it matters
                opens = text.startswith("{")
                if parts and opens:  # the one before never ended
                    yield Record(first, "\n".join(parts), whole=False)
                    parts = []
                if opens or parts:
                    first = number if opens else first
                    parts.append(text)
                    if text == "}" or (opens and len(text) > 1 and text.endswith("}")):
                        yield Record(first, "\n".join(parts), whole=True)
                        parts = []
                    elif opens and len(text) > 1 and '"' in text:  # one line, or never whole
                        yield Record(first, text, whole=False)
                        parts = []
                elif _REMAINS.search(text):
                    yield Record(number, text, whole=False)
                elif text:
                    yield None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Damaged(first if parts else number + 1, error) from error
    if parts:
        yield Record(first, "\n".join(parts), whole=False)


@dataclass(frozen=True)
class Reader:
    """How records tell their topic and time. ``topic`` is that of answers that tell none; ``times`` where the time is:
    in a field of the record (``field``, or one of ``TIME_FIELDS``), in the file's name, or its modification."""

    topic: str | None = None
    times: Times = "field"
    field: str | None = None

    def polls(self, record: Record, path: Path) -> list[Poll]:
        """The polls of one record: one a partition. Raises ``Refused``."""
        told = _object(record)
        inner = told.get("stats", told)
        if not isinstance(inner, dict):
            raise Refused("stats", inner, "it is the answer to a poll", _POLL_AGAIN)
        at = self._time(told, inner, path)
        if isinstance(inner.get("subscriptions"), dict) and not inner.get("partitions"):
            about = inner.get("metadata")
            if isinstance(about, dict) and about.get("partitions"):
                raise Refused("partitions", {}, "statistics are of one partition each", _POLL_AGAIN)
            topic = next((told[name] for name in _TOPIC_FIELDS if isinstance(told.get(name), str)), self.topic)
            if not topic:
                raise Refused("topic", None, "an answer does not contain its topic", "name it by --topic")
            return [_poll(topic, at, inner)]
        parts = inner.get("partitions")
        if not isinstance(parts, dict) or not parts:
            raise Refused("subscriptions", None, "an answer has its subscriptions", _POLL_AGAIN)
        return [_poll(topic, at, stats) for topic, stats in parts.items()]

    def _time(self, told: dict[str, Any], inner: dict[str, Any], path: Path) -> int:
        if self.times == "modified":
            return path.stat().st_mtime_ns
        if self.times == "name":
            if (at := in_name(path.name)) is None:
                raise Refused("(file)", path.name, "the file's name has the time of its poll",
                              "name it so, such as stats-20261122T012508Z.json, or say where the time is")  # fmt: skip
            return at
        names = TIME_FIELDS if self.field is None else (self.field,)
        found = next(((name, each[name]) for name in names for each in (told, inner) if name in each), None)
        if found is None:
            raise Refused(names[0], None, "a poll has its time",
                          "write it beside the answer, or pass --with times=name where the file's name has it, or "
                          "--with times=modified")  # fmt: skip
        if (at := instant(found[1])) is None:
            raise Refused(found[0], found[1], f"a time is {FORMS}", "correct the time of the poll")
        return at


def lacks(path: Path) -> tuple[bool, bool]:
    """Whether the first answer of a file does not contain its topic, and whether it does not contain its time."""
    first = next((record for record in records(path) if record is not None and record.whole), None)
    try:
        told = {} if first is None else _object(first)
    except Refused:
        told = {}
    inner = told.get("stats", told)
    names = {*told, *(inner if isinstance(inner, dict) else ())}
    topic = any(name in told for name in _TOPIC_FIELDS) or bool(isinstance(inner, dict) and inner.get("partitions"))
    return bool(told) and not topic, bool(told) and not names & {*TIME_FIELDS}


def _object(record: Record) -> dict[str, Any]:
    remedy = "copy the whole answer, or poll again"
    if not record.whole:
        raise Refused("(record)", _length(record.text), "an answer ends with its bracket", remedy)
    try:
        told = json.loads(record.text)
        record.text.encode()
        if r"\ud" in record.text.lower():
            json.dumps(told, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise Refused("(record)", _length(record.text), "JSON is UTF-8", remedy) from error
    except (ValueError, RecursionError) as error:
        raise Refused("(record)", _length(record.text), f"an answer is one JSON object: {error}", remedy) from error
    return cast(dict[str, Any], told)


def _length(text: str) -> str:
    return f"({len(text):,} characters)"


def _poll(topic: str, at: int, stats: Any) -> Poll:
    name, partition = base_topic(topic)
    if partition > PARTITION.most:
        raise Refused("topic", topic, PARTITION.rule, "correct the topic's name")
    found = stats.get("subscriptions") if isinstance(stats, dict) else None
    if not isinstance(found, dict):
        raise Refused("subscriptions", found, "an answer has its subscriptions", _POLL_AGAIN)
    return Poll(name, partition, at, {subscription: _shown(subscription, told) for subscription, told in found.items()})


def _shown(subscription: str, told: Any) -> Shown:
    where = f"subscriptions.{subscription}"
    if not subscription or not isinstance(told, dict) or not isinstance(told.get("consumers"), list):
        raise Refused(where, _kind(told), "a subscription has its name and its consumers", _POLL_AGAIN)
    consumers = tuple(_seen(f"{where}.consumers[{i}]", each) for i, each in enumerate(told["consumers"]))
    return Shown(
        _typed(told, "type", str), _typed(told, "keySharedMode", str), _typed(told, "allowOutOfOrderDelivery", bool),
        _typed(told, "activeConsumerName", str), consumers, _typed(told, "unackedMessages", int),
        _typed(told, "blockedSubscriptionOnUnackedMsgs", bool), _typed(told, "msgBacklogNoDelayed", int),
        _typed(told, "msgInReplay", int), _typed(told, "lastConsumedTimestamp", int),
    )  # fmt: skip  # fmt: skip


def _seen(where: str, told: Any) -> Seen:
    if not isinstance(told, dict):
        raise Refused(where, _kind(told), "a consumer is an object", _POLL_AGAIN)
    name = told.get("consumerName")
    if not isinstance(name, str) or not name:
        raise Refused(f"{where}.consumerName", name, "a name is not empty", _POLL_AGAIN)
    since = instant(told.get("connectedSince"))
    if since is None:
        rule = f"it says since when it is connected, {FORMS}"
        raise Refused(f"{where}.connectedSince", told.get("connectedSince"), rule, _POLL_AGAIN)
    address = _typed(told, "address", str)
    return Seen(
        name,
        address.rpartition("/")[2] if address else None,  # a host's name may stand before
        since,
        _typed(told, "unackedMessages", int),
        _typed(told, "availablePermits", int),
        _typed(told, "blockedConsumerOnUnackedMsgs", bool),
        _typed(told, "drainingHashesCount", int),
        _ranges(where, told),
        _blocked_hashes(told),
        _typed(told, "lastAckedTimestamp", int),
    )


def _blocked_hashes(told: dict[str, Any]) -> tuple[tuple[int, int, int], ...]:
    """The hashes that drain (4.x): others wait for them until this consumer has acknowledged their messages."""
    given = told.get("drainingHashes")
    rows = [each for each in given if isinstance(each, dict)] if isinstance(given, list) else []
    numbers = [[_typed(row, name, int) for name in ("hash", "unackMsgs", "blockedAttempts")] for row in rows]
    return tuple((slot, unacked or 0, attempts or 0) for slot, unacked, attempts in numbers if slot is not None)


def _ranges(where: str, told: dict[str, Any]) -> tuple[tuple[int, int], ...] | None:
    """``keyHashRangeArrays`` (4.x), or ``keyHashRanges`` (3.x, and the classic dispatcher of 4.x)."""
    column = "keyHashRangeArrays" if told.get("keyHashRangeArrays") is not None else "keyHashRanges"
    given = told.get(column)
    if given is None:
        return None
    pairs, odd = _pairs(json.dumps(given))
    if pairs is None:
        rule = "ranges are pairs of slots, the first not above the second"
        raise Refused(f"{where}.{column}", odd, rule, "poll again, or correct them")
    return pairs


@lru_cache(maxsize=1024)  # consumers have the same ranges in most polls
def _pairs(given: str) -> tuple[tuple[tuple[int, int], ...] | None, Any]:
    """Ranges from JSON; or none, and what is not one."""
    ranges = json.loads(given)
    if not isinstance(ranges, list):
        return None, _kind(ranges)
    found = []
    for each in ranges:
        text = _RANGE.fullmatch(each) if isinstance(each, str) else None
        pair = list(map(int, text.groups())) if text else each
        fits = isinstance(pair, list) and len(pair) == 2 and all(type(slot) is int for slot in pair)
        if not fits or not SLOT.least <= pair[0] <= pair[1] <= SLOT.most:
            return None, each
        found.append((pair[0], pair[1]))
    return tuple(found), None


def _typed(told: dict[str, Any], name: str, kind: type) -> Any:
    """A value of its type, a number of 64 bits; anything else tells nothing."""
    value = told.get(name)
    fits = not isinstance(value, int) or -LARGEST <= value <= LARGEST
    return value if type(value) is kind and fits else None


def _kind(value: Any) -> str:
    return f"({type(value).__name__})"
