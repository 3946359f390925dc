"""Polls of any number, folded as streams.

``_scanned`` reads a file. ``_once`` has all answers of one time together, and leaves out those that are there already.
``_members`` has the polls of a topic partition in the order of their times, and makes sessions of them; these are few.
They compute by what ``adapter.stats`` calls with all polls at once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from subreplay.adapters.base import Options, Rejected
from subreplay.adapters.detect import chosen
from subreplay.adapters.pulsar_policies import Selector
from subreplay.adapters.pulsar_stats.adapter import NAME, Asked, check_any, ended
from subreplay.adapters.pulsar_stats.answers import Answer, Collected, PollCounts, answers
from subreplay.adapters.pulsar_stats.evidence import restored
from subreplay.adapters.pulsar_stats.membership import Session, membership, sessions
from subreplay.adapters.pulsar_stats.polls import Poll, Reader, Seen, Shown
from subreplay.adapters.pulsar_stats.selectors import selectors
from subreplay.adapters.streams import REJECTED, Batches, End, Known, Rows, Stage, Streamed, quarantine, size_of
from subreplay.rows.model.tables import QUARANTINE

_ANSWERS: Final = pa.schema([("file", pa.string()), ("file_number", pa.int32()), ("line", pa.int64()),
                             ("size", pa.int64()), ("content", pa.binary()), ("at", pa.int64()),
                             ("polls", pa.list_(pa.string()))])  # fmt: skip
_POLLS: Final = pa.schema(
    [("topic", pa.string()), ("partition", pa.int64()), ("at", pa.int64()), ("poll", pa.string())]
)
_SESSIONS: Final = pa.schema([("topic", pa.string()), ("partition", pa.int64()), ("number", pa.int64()),
                              ("session", pa.string())])  # fmt: skip
_SELECTORS: Final = pa.schema([("policy", pa.string()), ("profile", pa.string()), ("points", pa.int64()),
                               ("consumers", pa.int64()), ("exact", pa.bool_()), ("subscription", pa.string()),
                               ("topic", pa.string())])  # fmt: skip
_COUNTS: Final = pa.schema([("file", pa.string()), ("file_number", pa.int32())]
                           + [(name, pa.int64()) for name in PollCounts.__dataclass_fields__])  # fmt: skip
_FIRST: Final = pa.schema([*QUARANTINE, pa.field("file_number", pa.int32())])
_AT_ONCE: Final = 1_000


class _File(NamedTuple):
    path: Path
    name: str
    number: int
    reader: Reader


def streamed(path: Path, options: Options) -> Streamed:
    """How files of any size are read: rows of the counts are polls, and lines outside of any. Raises ``InputError``
    where there is none, ``ConfigError`` where the time of polls is nowhere."""
    asked, files = Asked.of(options), chosen(path, NAME)
    parts = tuple(_File(each, files.named(each), i, asked.reader) for i, each in enumerate(files.mine))
    counts = {"counts": _COUNTS, "first": _FIRST}
    once = partial(_once, {file.name: file.number for file in parts}, asked.topics, asked.subscriptions)
    return Streamed(
        size_of(files.mine),
        parts,
        _scanned,
        {"answers": _ANSWERS, REJECTED: QUARANTINE},
        counts,
        (
            Stage(lambda _: once, {"polls": _POLLS, REJECTED: QUARANTINE}, counts, "answers", ("at",),
                  ("file_number", "line")),
            Stage(lambda _: _members, {}, {"sessions": _SESSIONS, "selectors": _SELECTORS}, "polls",
                  ("topic", "partition"), ("at",)),
        ),
        partial(_concluded, path, options, files.notes),
    )  # fmt: skip


def _scanned(file: _File) -> Rows:
    """The answers of a file that fit by themselves."""
    others = Collected(None, None)
    others.begin(file.name)
    held: list[dict[str, Any]] = []
    for told in answers(file.path, file.name, file.reader):
        if isinstance(told, Answer):
            held.append({**told._asdict(), "file_number": file.number, "polls": [*map(_text, told.polls)]})
        else:
            others.take(told)
        if len(held) >= _AT_ONCE:
            yield "answers", pa.Table.from_pylist(held, _ANSWERS)
            held = []
    yield "answers", pa.Table.from_pylist(held, _ANSWERS)
    yield from _told(others, {file.name: file.number})


def _once(
    numbers: Mapping[str, int], topics: Collection[str] | None, subscriptions: Collection[str] | None, batches: Batches
) -> Rows:
    """The polls of answers that are there for the first time."""
    collected = Collected(topics, subscriptions)
    held: list[dict[str, Any]] = []
    for at, rows in groupby(_rows(batches), itemgetter("at")):
        collected.polls.clear()
        for row in rows:
            polls = tuple(map(_poll, row["polls"]))
            collected.take(Answer(row["file"], row["line"], row["size"], row["content"], at, polls))
        for (topic, partition), found in collected.polls.items():
            held += ({"topic": topic, "partition": partition, "at": at, "poll": _text(p)} for _, p in found.values())
        if len(held) >= _AT_ONCE:
            yield "polls", pa.Table.from_pylist(held, _POLLS)
            held = []
    yield "polls", pa.Table.from_pylist(held, _POLLS)
    yield from _told(collected, numbers)


def _members(batches: Batches) -> Rows:
    """The sessions of each topic partition, in the order in which polls show them."""
    for (topic, partition), rows in groupby(_rows(batches), itemgetter("topic", "partition")):
        found, held = sessions(_poll(row["poll"]) for row in rows)
        yield "selectors", pa.Table.from_pylist([each._asdict() for each in selectors(held)], _SELECTORS)
        told = ({"topic": topic, "partition": partition, "number": i, "session": _of_session(session)}
                for i, session in enumerate(found))  # fmt: skip
        yield "sessions", pa.Table.from_pylist([*told], _SESSIONS)


def _concluded(path: Path, options: Options, notes: Iterable[str], known: Known, lost: Counter[str]) -> End:
    counts: dict[str, PollCounts] = {}
    for row in known["counts"].sort_by("file_number").to_pylist():
        name, _ = row.pop("file"), row.pop("file_number")
        counts[name] = counts.get(name, PollCounts()).more(**row)
    first = known["first"].sort_by([("file_number", "ascending"), ("row", "ascending")])
    check_any(path, counts, map(Rejected.of, first.to_pylist()))
    order = [(name, "ascending") for name in ("topic", "partition", "number")]
    found = [_session(row["session"]) for row in known["sessions"].sort_by(order).to_pylist()]
    shown = [Selector(**row) for row in known["selectors"].to_pylist()]
    return ended(path, options, membership(found), counts, shown, found, notes)


def _told(collected: Collected, numbers: Mapping[str, int]) -> Rows:
    """What is counted and rejected."""
    counts = [{"file": name, "file_number": numbers[name], **vars(of)} for name, of in collected.counts.items()]
    yield "counts", pa.Table.from_pylist(counts, _COUNTS)
    rejected = sorted(collected.rejected, key=lambda row: (numbers[row.file], row.row))
    yield REJECTED, quarantine(rejected)
    first = quarantine(rejected[:1])
    yield "first", first.append_column("file_number", pa.array([numbers[row.file] for row in rejected[:1]], pa.int32()))


def _rows(batches: Batches) -> Iterator[dict[str, Any]]:
    return (row for batch in batches for row in batch.to_pylist())


def _text(poll: Poll) -> str:
    shown = {name: vars(each) for name, each in poll.subscriptions.items()}
    return json.dumps([poll.topic, poll.partition, poll.at, shown])


def _poll(text: str) -> Poll:
    topic, partition, at, shown = json.loads(text)
    return Poll(topic, partition, at, {name: _shown(each) for name, each in shown.items()})


def _of_session(session: Session) -> str:
    """Of its subscription all but who else is there."""
    return json.dumps({**vars(session), "shown": {**vars(session.shown), "consumers": []}})


def _session(text: str) -> Session:
    told = json.loads(text)
    at_hashes = told["blocking"]
    blocking = None if at_hashes is None else (at_hashes[0], _tuples(at_hashes[1]))
    return Session(**told | restored(told)
                   | {"shown": _shown(told["shown"]), "seen": _seen(told["seen"]), "blocking": blocking})  # fmt: skip


def _shown(told: dict[str, Any]) -> Shown:
    return Shown(**told | {"consumers": tuple(map(_seen, told["consumers"]))})


def _seen(told: list[Any]) -> Seen:
    seen = Seen(*told)
    ranges = None if seen.ranges is None else _tuples(seen.ranges)
    return seen._replace(ranges=ranges, blocked_hashes=_tuples(seen.blocked_hashes))


def _tuples(lists: Iterable[Any]) -> Any:
    return tuple(map(tuple, lists))
