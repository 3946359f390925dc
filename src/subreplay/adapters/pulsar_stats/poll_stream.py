"""Fold polls of any number as streams.

``_scan_file`` reads a file. ``_drop_repeated`` receives all answers of one time together and drops the repeated ones.
``_build_sessions`` receives the polls of a topic partition in time order and builds its sessions, which are few. They
share their functions with ``stats_adapter.read_stats``, which has all polls at once.
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

from subreplay.adapters.base import Options, RejectedRow
from subreplay.adapters.format_detection import select_files
from subreplay.adapters.pulsar_policies import InferredSelector
from subreplay.adapters.pulsar_stats.hash_range_selectors import infer_selectors
from subreplay.adapters.pulsar_stats.limits_and_silences import restore_fields
from subreplay.adapters.pulsar_stats.poll_collection import PollCollection, PollCounts, StatsAnswer, read_answers
from subreplay.adapters.pulsar_stats.polled_membership import PolledSession, build_membership, build_sessions
from subreplay.adapters.pulsar_stats.stats_adapter import NAME, PollSelection, build_result, check_any_valid
from subreplay.adapters.pulsar_stats.stats_answers import PolledConsumer, PolledSubscription, PollReader, TopicPoll
from subreplay.adapters.streams import (
    REJECTED,
    Batches,
    Rows,
    SmallTables,
    SourceStream,
    Stage,
    StreamResult,
    build_quarantine,
    sum_file_sizes,
)
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
_BATCH_ROWS: Final = 1_000  # rows of a batch


class _PollFile(NamedTuple):
    path: Path
    name: str
    number: int
    reader: PollReader


def open_stream(path: Path, options: Options) -> SourceStream:
    """Describe how to read files of any size. The counts count polls and lines outside of answers.

    Raises ``InputError`` where there is no file, and ``ConfigError`` for an unknown place of the poll time.
    """
    selection, files = PollSelection.from_options(options), select_files(path, NAME)
    parts = tuple(_PollFile(each, files.relative_name(each), i, selection.reader) for i, each in enumerate(files.files))
    counts = {"counts": _COUNTS, "first": _FIRST}
    once = partial(
        _drop_repeated, {file.name: file.number for file in parts}, selection.topics, selection.subscriptions
    )
    return SourceStream(
        sum_file_sizes(files.files),
        parts,
        _scan_file,
        {"answers": _ANSWERS, REJECTED: QUARANTINE},
        counts,
        (
            Stage(lambda _: once, {"polls": _POLLS, REJECTED: QUARANTINE}, counts, "answers", ("at",),
                  ("file_number", "line")),
            Stage(lambda _: _build_session_rows, {}, {"sessions": _SESSIONS, "selectors": _SELECTORS}, "polls",
                  ("topic", "partition"), ("at",)),
        ),
        partial(_build_result, path, options, files.notes),
    )  # fmt: skip


def _scan_file(file: _PollFile) -> Rows:
    """Read the answers of a file that are valid by themselves."""
    others = PollCollection(None, None)
    others.add_file(file.name)
    rows: list[dict[str, Any]] = []
    for item in read_answers(file.path, file.name, file.reader):
        if isinstance(item, StatsAnswer):
            rows.append({**item._asdict(), "file_number": file.number, "polls": [*map(_write_poll, item.polls)]})
        else:
            others.add(item)
        if len(rows) >= _BATCH_ROWS:
            yield "answers", pa.Table.from_pylist(rows, _ANSWERS)
            rows = []
    yield "answers", pa.Table.from_pylist(rows, _ANSWERS)
    yield from _yield_counts(others, {file.name: file.number})


def _drop_repeated(
    numbers: Mapping[str, int], topics: Collection[str] | None, subscriptions: Collection[str] | None, batches: Batches
) -> Rows:
    """Build the polls of answers that are not repeated."""
    collected = PollCollection(topics, subscriptions)
    found: list[dict[str, Any]] = []
    for at, rows in groupby(_iterate_rows(batches), itemgetter("at")):
        collected.polls.clear()
        for row in rows:
            polls = tuple(map(_restore_poll, row["polls"]))
            collected.add(StatsAnswer(row["file"], row["line"], row["size"], row["content"], at, polls))
        for (topic, partition), by_time in collected.polls.items():
            found += (
                {"topic": topic, "partition": partition, "at": at, "poll": _write_poll(p)} for _, p in by_time.values()
            )
        if len(found) >= _BATCH_ROWS:
            yield "polls", pa.Table.from_pylist(found, _POLLS)
            found = []
    yield "polls", pa.Table.from_pylist(found, _POLLS)
    yield from _yield_counts(collected, numbers)


def _build_session_rows(batches: Batches) -> Rows:
    """Build the sessions of each topic partition, in the order in which polls show them."""
    for (topic, partition), rows in groupby(_iterate_rows(batches), itemgetter("topic", "partition")):
        found, ranges = build_sessions(_restore_poll(row["poll"]) for row in rows)
        yield "selectors", pa.Table.from_pylist([each._asdict() for each in infer_selectors(ranges)], _SELECTORS)
        texts = ({"topic": topic, "partition": partition, "number": i, "session": _write_session(session)}
                 for i, session in enumerate(found))  # fmt: skip
        yield "sessions", pa.Table.from_pylist([*texts], _SESSIONS)


def _build_result(
    path: Path, options: Options, notes: Iterable[str], small: SmallTables, quarantined: Counter[str]
) -> StreamResult:
    counts: dict[str, PollCounts] = {}
    for row in small["counts"].sort_by("file_number").to_pylist():
        name, _ = row.pop("file"), row.pop("file_number")
        counts[name] = counts.get(name, PollCounts()).add(**row)
    first = small["first"].sort_by([("file_number", "ascending"), ("row", "ascending")])
    check_any_valid(path, counts, map(RejectedRow.from_row, first.to_pylist()))
    order = [(name, "ascending") for name in ("topic", "partition", "number")]
    found = [_restore_session(row["session"]) for row in small["sessions"].sort_by(order).to_pylist()]
    shown = [InferredSelector(**row) for row in small["selectors"].to_pylist()]
    return build_result(path, options, build_membership(found), counts, shown, found, notes)


def _yield_counts(collected: PollCollection, numbers: Mapping[str, int]) -> Rows:
    """Yield the counts and the rejected rows."""
    counts = [{"file": name, "file_number": numbers[name], **vars(of)} for name, of in collected.counts.items()]
    yield "counts", pa.Table.from_pylist(counts, _COUNTS)
    rejected = sorted(collected.rejected, key=lambda row: (numbers[row.file], row.row))
    yield REJECTED, build_quarantine(rejected)
    first = build_quarantine(rejected[:1])
    yield "first", first.append_column("file_number", pa.array([numbers[row.file] for row in rejected[:1]], pa.int32()))


def _iterate_rows(batches: Batches) -> Iterator[dict[str, Any]]:
    return (row for batch in batches for row in batch.to_pylist())


def _write_poll(poll: TopicPoll) -> str:
    shown = {name: vars(each) for name, each in poll.subscriptions.items()}
    return json.dumps([poll.topic, poll.partition, poll.at, shown])


def _restore_poll(text: str) -> TopicPoll:
    topic, partition, at, shown = json.loads(text)
    return TopicPoll(topic, partition, at, {name: _restore_subscription(each) for name, each in shown.items()})


def _write_session(session: PolledSession) -> str:
    """Convert a session to JSON, without the other consumers of its subscription."""
    return json.dumps({**vars(session), "shown": {**vars(session.shown), "consumers": []}})


def _restore_session(text: str) -> PolledSession:
    fields = json.loads(text)
    at_hashes = fields["blocking"]
    blocking = None if at_hashes is None else (at_hashes[0], _to_tuples(at_hashes[1]))
    return PolledSession(
        **fields
        | restore_fields(fields)
        | {
            "shown": _restore_subscription(fields["shown"]),
            "seen": _restore_consumer(fields["seen"]),
            "blocking": blocking,
        }
    )


def _restore_subscription(fields: dict[str, Any]) -> PolledSubscription:
    return PolledSubscription(**fields | {"consumers": tuple(map(_restore_consumer, fields["consumers"]))})


def _restore_consumer(values: list[Any]) -> PolledConsumer:
    seen = PolledConsumer(*values)
    ranges = None if seen.ranges is None else _to_tuples(seen.ranges)
    return seen._replace(ranges=ranges, blocked_hashes=_to_tuples(seen.blocked_hashes))


def _to_tuples(lists: Iterable[Any]) -> Any:
    return tuple(map(tuple, lists))
