"""Copies of ``__consumer_offsets``, with the coordinator's log where there is one, as streams of sorted rows.

``_scanned`` reads a file. ``_decoded`` has all copies of a record together, and decodes it: the many commits, and the
records about groups. ``_named`` has those of a group, and finds names of topic ids. ``_joined`` has them together with
the group's lines of the log, and makes membership, and owners of topic partitions. ``_served`` follows each topic
partition of a group, through its owners and commits, in the order of the records, and makes deliveries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.base import FileCount, Options, Reason, Rejected, check_asked, pairs_of
from subreplay.adapters.detect import COORDINATOR_LOG, chosen
from subreplay.adapters.files import files as files_of
from subreplay.adapters.kafka_group.acknowledged import MOST, acknowledged, commit_rows
from subreplay.adapters.kafka_group.consumer_offsets import Decoded, decode_records
from subreplay.adapters.kafka_group.coordinator_log import files as log_files
from subreplay.adapters.kafka_group.coordinator_log.events import EVENTS
from subreplay.adapters.kafka_group.coordinator_log.times import Clock
from subreplay.adapters.kafka_group.copies import RECORDS, once, parts_of
from subreplay.adapters.kafka_group.progress import progress
from subreplay.adapters.kafka_group.records import TABLES
from subreplay.adapters.kafka_group.rows import OWNERS, group_rows
from subreplay.adapters.kafka_group.run import ASSIGNORS, NO_LOG, NOTES, assignors, of_commits, run_of
from subreplay.adapters.streams import (
    REJECTED,
    Batches,
    End,
    Known,
    Rows,
    Stage,
    Streamed,
    quarantine,
    size_of,
)
from subreplay.errors import InputError
from subreplay.rows.groups import whole_groups
from subreplay.rows.model.columns import ints
from subreplay.rows.model.tables import DELIVERIES, MEMBERSHIP, QUARANTINE
from subreplay.rows.sorted_blocks import GROUP

NAME: Final = "kafka-group"
_NOBODYS: Final = Reason(
    "consumer", "null", "a commit that acknowledges is of the member that owned the partition",
    "copy __consumer_offsets from before the group's generation; of a consumer that assigns itself nobody can tell",
)  # fmt: skip
_LEAP: Final = Reason(
    "offset", "", f"a commit acknowledges at most {MOST:,} records", "leave out commits that only move the group"
)
_FILE_NUMBER: Final = pa.field("file_number", pa.int32())
_RECORDS: Final = pa.schema([*RECORDS, _FILE_NUMBER])
_OF_GROUPS: Final = pa.schema(
    [*(field.with_nullable(True) for field in RECORDS), _FILE_NUMBER, pa.field("group", pa.string()),
     pa.field("event", pa.struct([field.with_nullable(True) for field in EVENTS]))]
)  # fmt: skip
"""Records about groups, and lines of the log, which have an ``event`` and no record."""
_COMMIT: Final = [*TABLES["offset_commits"], pa.field("file", pa.string()), pa.field("row", pa.int64())]
_STEPS: Final = pa.schema(
    [("group", pa.string()), ("topic", pa.string()), ("partition", pa.int32()), ("record_offset", pa.int64()),
     ("kind", pa.int8()), ("number", pa.int64()),
     ("owner", pa.struct([field.with_nullable(True) for field in OWNERS])),
     ("commit", pa.struct([field.with_nullable(True) for field in _COMMIT]))]
)  # fmt: skip
"""What happened to a topic partition of a group, by the record that tells it: it got an owner, or a commit."""
_OWNED, _COMMITTED = 0, 1
_FILES: Final = pa.schema(
    [("file", pa.string()), *((name, pa.int64()) for name in ("rows", "quarantined", "others", "no_partition"))]
)
"""Counts that are to be added up by file; ``no_partition``: parts that tell none."""
_THERE: Final = pa.schema([("kind", pa.string()), ("name", pa.string()), ("count", pa.int64())])
"""The groups and topics that records tell of, and how many records of groups there are (kind ``record``), or commits
that are the ``first`` of their partition or went ``back``; counts are to be added up."""
_NAMES: Final = pa.schema([("topic_id", pa.string()), ("topic", pa.string())])
_PAIRS: Final = pa.schema([("subscription", pa.string()), ("topic", pa.string()), ("count", pa.int64())])


class _File(NamedTuple):
    path: Path
    name: str
    number: int
    of_log: bool
    time_zone: str
    group: str | None


def streamed(path: Path, options: Options) -> Streamed:
    """How to read files of any size. Raises ``InputError`` where there is none, ``ConfigError`` where there is no such
    time zone."""
    files = chosen(path, NAME, beside=(COORDINATOR_LOG,), sure=True)
    given, zone = options.coordinator_log, options.time_zone or "UTC"
    Clock(zone)
    logs = files.beside[COORDINATOR_LOG] if given is None else files_of(given)
    parts = [
        _File(each, files.named(each), i, i >= len(files.mine), zone, options.subscription)
        for i, each in enumerate((*files.mine, *logs))
    ]
    place = ("partition", "offset", "file_number", "row")
    told = {"files": _FILES, "there": _THERE}
    return Streamed(
        size_of((*files.mine, *logs)),
        parts,
        _scanned,
        {"records": _RECORDS, "of_groups": _OF_GROUPS, REJECTED: QUARANTINE},
        told,
        (
            Stage(lambda _: partial(_decoded, options),
                  {"of_groups": _OF_GROUPS, "steps": _STEPS, REJECTED: QUARANTINE}, told,
                  "records", ("partition",), place[1:]),
            Stage(lambda _: _named, {}, {"names": _NAMES}, "of_groups", ("group",), place),
            Stage(partial(_join, options.topic), {"membership": MEMBERSHIP, "steps": _STEPS},
                  {"files": _FILES, "assignors": ASSIGNORS, "pairs": _PAIRS}, "of_groups", ("group",), place),
            Stage(lambda _: _served, {"deliveries": DELIVERIES, REJECTED: QUARANTINE}, told | {"pairs": _PAIRS},
                  "steps", ("group", "topic", "partition"), ("record_offset", "kind", "number")),
        ),
        partial(_concluded, path, options, parts, files.notes),
    )  # fmt: skip


def _scanned(file: _File) -> Rows:
    """The records of a copy, or the lines of a log that tell something of the wanted group."""
    yield "files", _counted(file.name)  # of an empty file, too
    if file.of_log:
        for lines in log_files.parts_of(file.path, file.name, file.time_zone):
            events = lines.events if file.group is None else _where(lines.events, "group", file.group)
            yield REJECTED, quarantine(lines.rejected)
            wrong = len(lines.rejected)
            yield "files", _counted(file.name, lines.lines, wrong, lines.lines - wrong)
            columns = {"file_number": [file.number] * len(events), "event": events.to_struct_array()}
            yield "of_groups", _with_nulls({**columns, "row": events["line"], "group": events["group"]}, _OF_GROUPS)
    else:
        for part in parts_of(file.path, file.name):
            yield REJECTED, quarantine(part.rejected)
            counts = part.rows, len(part.rejected), part.other_topics, int(part.without_partition)
            yield "files", _counted(file.name, *counts)
            yield (
                "records",
                part.records.append_column(
                    _FILE_NUMBER, pa.repeat(pa.scalar(file.number, pa.int32()), len(part.records))
                ),
            )


def _decoded(options: Options, batches: Batches) -> Rows:
    """Each record once: the commits of the wanted group and topic, and what is told of groups."""
    for copied in whole_groups(batches, (GROUP, "offset")):
        found = once(copied.select(_RECORDS.names).cast(_RECORDS))
        yield REJECTED, quarantine(found.rejected)
        wrong = Counter(row.file for row in found.rejected)
        for name in pc.unique(copied["file"]).to_pylist():
            records = _where(found.records, "file", name)
            every = decode_records(records)
            mine = _wanted(every, options)
            rejected = [row._replace(file=f"{name}: {row.file}") for row in every.rejected]
            yield REJECTED, quarantine(rejected)
            others = found.again[name] + _rows(every.tables) - _rows(mine)
            yield "files", _counted(name, 0, wrong[name] + len(rejected), others)
            yield "there", _there(every.tables, len(records))
            yield "of_groups", _about_groups(mine, records)
            yield "steps", _commits(mine["offset_commits"], records)


def _wanted(found: Decoded, options: Options) -> dict[str, pa.Table]:
    tables = dict(found.tables)
    if options.subscription is not None:
        tables = {name: _where(table, "group", options.subscription) for name, table in tables.items()}
    if options.topic is not None:
        tables["offset_commits"] = _where(tables["offset_commits"], "topic", options.topic)
    return tables


def _rows(tables: Mapping[str, pa.Table]) -> int:
    return sum(table.num_rows for table in tables.values())


def _there(tables: Mapping[str, pa.Table], records: int) -> pa.Table:
    groups = {group for table in tables.values() for group in pc.unique(table["group"]).to_pylist()}
    topics = {*pc.unique(tables["offset_commits"]["topic"]).to_pylist()}
    rows = [*(("group", name, 1) for name in groups), *(("topic", name, 1) for name in topics), ("record", "", records)]
    return pa.Table.from_pylist([dict(zip(_THERE.names, row, strict=True)) for row in rows], _THERE)


def _about_groups(tables: Mapping[str, pa.Table], records: pa.Table) -> pa.Table:
    place = ["record_partition", "record_offset"]
    told = [tables[name].select([*place, "group"]) for name in TABLES if name != "offset_commits"]
    found = _beside(pa.concat_tables(told), records)
    return _with_nulls({name: found[name] for name in (*_RECORDS.names, "group")}, _OF_GROUPS)


def _commits(commits: pa.Table, records: pa.Table) -> pa.Table:
    """``_STEPS``; tombstones are left out: they acknowledge nothing."""
    found = _beside(
        commits.filter(pc.invert(commits["tombstone"])), records.select(["partition", "offset", "file", "row"])
    )
    told = pa.table([found[field.name].cast(field.type) for field in _COMMIT], pa.schema(_COMMIT))
    known = {name: told[name] for name in ("group", "topic", "partition", "record_offset")}
    more = {"kind": [_COMMITTED] * len(told), "number": [0] * len(told), "commit": told.to_struct_array()}
    return _with_nulls({**known, **more}, _STEPS)


def _beside(decoded: pa.Table, records: pa.Table) -> pa.Table:
    """Decoded rows with the records that they are of: what both call alike is the decoded one's."""
    place = {"partition": "record_partition", "offset": "record_offset"}
    keys = {name: f"{name} of records" for name in records.column_names if name in decoded.column_names}
    types = {name: decoded.schema.field(name).type for name in place.values()}
    renamed = records.rename_columns([keys.get(name, name) for name in records.column_names])
    for name, other in place.items():
        renamed = renamed.append_column(f"({other})", records[name].cast(types[other]))
    return decoded.join(renamed, list(place.values()), [f"({other})" for other in place.values()], "inner")


def _named(batches: Batches) -> Rows:
    for rows in whole_groups(batches):
        yield "names", names_of_ids(_of_records(rows))


def names_of_ids(tables: Mapping[str, pa.Table]) -> pa.Table:
    """The topics of ids that members tell who subscribe to one topic only: all that they are given is of it."""
    topics: dict[tuple[str, str], set[str]] = {}
    for row in tables["members"].select(["group", "member_id", "topics", "regex", "tombstone"]).to_pylist():
        if not row["tombstone"]:
            told = topics.setdefault((row["group"], row["member_id"]), set())
            told |= {"", *(row["topics"] or ())} if row["regex"] else {*(row["topics"] or ())}
    names: set[tuple[str, str]] = set()
    for row in tables["current_assignments"].select(["group", "member_id", "assigned"]).to_pylist():
        told = topics.get((row["group"], row["member_id"]), set())
        if len(told) == 1 and "" not in told:
            names |= {(one["topic_id"], *told) for one in row["assigned"] or ()}
    return pa.Table.from_pylist([dict(zip(_NAMES.names, pair, strict=True)) for pair in sorted(names)], _NAMES)


def topic_names(names: pa.Table) -> dict[str, str]:
    """The names of topic ids of which one topic only is told."""
    told: dict[str, set[str]] = {}
    for row in names.to_pylist():
        told.setdefault(row["topic_id"], set()).add(row["topic"])
    return {topic_id: next(iter(topics)) for topic_id, topics in told.items() if len(topics) == 1}


def _of_records(rows: pa.Table) -> dict[str, pa.Table]:
    return decode_records(rows.filter(pc.is_null(rows["event"]))).tables


def _join(topic: str | None, known: Known) -> partial[Rows]:
    return partial(_joined, topic, topic_names(known["names"]))


def _joined(topic: str | None, names: Mapping[str, str], batches: Batches) -> Rows:
    """Membership of whole groups, and who owned which topic partition."""
    for rows in whole_groups(batches):
        lines = rows.filter(pc.is_valid(rows["event"]))
        every = pa.Table.from_struct_array(lines["event"]) if len(lines) else EVENTS.empty_table()
        events = log_files.once(every.cast(EVENTS))
        kept = events.group_by(["file", "line"]).aggregate([]).group_by("file").aggregate([([], "count_all")])
        for name, count in zip(*(column.to_pylist() for column in kept.columns), strict=True):
            yield "files", _counted(name, others=-count)
        found = group_rows(_of_records(rows), events, names)
        membership = pa.concat_tables([found.membership, found.decisions])
        membership = membership if topic is None else _where(membership, "topic", topic)
        yield "membership", membership
        yield "pairs", _pairs(membership)
        yield "assignors", pa.Table.from_pylist([*assignors(found)], ASSIGNORS)
        owners = found.owners.filter(pc.is_valid(found.owners["topic"]))
        steps = {"group": owners["subscription"], "topic": owners["topic"], "partition": owners["partition"],
                 "record_offset": owners["from_offset"], "kind": [_OWNED] * len(owners),
                 "number": np.arange(len(owners)), "owner": owners.to_struct_array()}  # fmt: skip
        yield "steps", _with_nulls(steps, _STEPS)


def _served(batches: Batches) -> Rows:
    """What each commit acknowledges. Of the topic partition that goes on after a batch, the latest owner and the latest
    commit are looked at again."""
    before = _STEPS.empty_table()
    for batch in batches:
        steps = pa.concat_tables([before, pa.Table.from_batches([batch]).select(_STEPS.names).cast(_STEPS)])
        is_commit = ints(steps, "kind") == _COMMITTED
        earlier = len(before) and bool(is_commit[len(before) - 1])  # the first commit was looked at before
        owners = _inner(steps.filter(pa.array(~is_commit)), "owner", OWNERS)
        commits = _inner(steps.filter(pa.array(is_commit)), "commit", pa.schema(_COMMIT))
        done = progress(commits, owners)
        acked = acknowledged(done)
        for rows in acked.deliveries():
            yield "deliveries", rows
            yield "pairs", _pairs(rows)
        rows = commit_rows(done.slice(int(earlier)), acked.leaps - int(earlier))
        yield "deliveries", rows
        yield "pairs", _pairs(rows)
        first = len(acked.first) - int(earlier)
        numbers = pa.table([["first", "back"], ["", ""], [first, len(acked.back)]], schema=_THERE)
        yield "there", numbers
        refused = [*_unowned(commits.take(pa.array(acked.nobodys)), _NOBODYS),
                   *_unowned(commits.take(pa.array(acked.leaps)), _LEAP)]  # fmt: skip
        yield REJECTED, quarantine(refused)
        for name, count in Counter(row.file for row in refused).items():
            yield "files", _counted(name, quarantined=count)
        before = _latest(steps)


def _latest(steps: pa.Table) -> pa.Table:
    """The latest owner and the latest commit of the topic partition that steps end with, the commit last."""
    last = steps.slice(max(0, len(steps) - 1))
    same = np.ones(len(steps), np.bool_)
    for name in ("group", "topic", "partition"):
        same &= pc.equal(steps[name], last[name][0]).to_numpy() if len(last) else True
    kind = ints(steps, "kind")
    found = [np.flatnonzero(same & (kind == each))[-1:] for each in (_OWNED, _COMMITTED)]
    return steps.take(pa.array(np.concatenate(found)))


def _inner(steps: pa.Table, name: str, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_struct_array(steps[name]).cast(schema) if len(steps) else schema.empty_table()


def _unowned(commits: pa.Table, reason: Reason) -> Iterator[Rejected]:
    """Commits that acknowledge something, and yet are no deliveries."""
    for row in commits.to_pylist():
        told = reason._replace(value=reason.value or str(row["offset"]))
        raw = f"commit of {row['group']} for {row['topic']}: {row['offset']}"
        yield Rejected("deliveries", row["file"], row["row"], raw, (told,))


def _concluded(
    path: Path, options: Options, parts: Iterable[_File], notes: Iterable[str], known: Known, _: Counter[str]
) -> End:
    files = _summed(known["files"], ["file"])
    there = {(row["kind"], row["name"]): row["count"] for row in _summed(known["there"], ["kind", "name"])}
    names = {of: [name for kind, name in there if kind == of] for of in ("group", "topic")}
    check_asked(path, options, names["group"], names["topic"])
    pairs = pairs_of(
        {(row["subscription"], row["topic"]): row["count"] for row in _summed(known["pairs"], _PAIRS.names[:2])}
    )
    if not pairs:
        records = there.get(("record", ""), 0)
        raise InputError(f"{path}: {records:,} records of __consumer_offsets tell of no member of a group of "
                         "consumers, and of nothing that it acknowledged")  # fmt: skip
    by_name = {row["file"]: row for row in files}
    copies = sorted({part.name for part in parts if not part.of_log})
    logs = [part.name for part in parts if part.of_log]
    counts = [
        FileCount(name, *(by_name[name][of] for of in ("rows", "quarantined", "others"))) for name in (*copies, *logs)
    ]
    group, topic = pairs[0]
    found = next((row for row in known["assignors"].to_pylist() if row["group"] == group), None)
    run, of_run = run_of(found, group, topic)
    silent = [part.name for part in parts if not part.of_log and by_name[part.name]["no_partition"]]
    of_copies = of_commits(there.get(("first", ""), 0), there.get(("back", ""), 0), silent)
    told = (*NOTES, *of_run, *of_copies, *(() if logs else (NO_LOG,)), *notes)
    return End({}, tuple(counts), run, tuple(pairs[1:]), told)


def _counted(file: str, rows: int = 0, quarantined: int = 0, others: int = 0, no_partition: int = 0) -> pa.Table:
    return pa.table([[file], [rows], [quarantined], [others], [no_partition]], schema=_FILES)


def _pairs(rows: pa.Table) -> pa.Table:
    counted = rows.select(_PAIRS.names[:2]).group_by(_PAIRS.names[:2]).aggregate([([], "count_all")])
    return counted.rename_columns(_PAIRS.names).cast(_PAIRS)


def _summed(rows: pa.Table, by: list[str]) -> list[dict[str, Any]]:
    counts = [name for name in rows.column_names if name not in by]
    sums = rows.group_by(by).aggregate([(name, "sum") for name in counts])
    found: list[dict[str, Any]] = (
        sums.select([*by, *(f"{name}_sum" for name in counts)]).rename_columns(rows.column_names).to_pylist()
    )
    return found


def _where(rows: pa.Table, name: str, value: str) -> pa.Table:
    return rows.filter(pc.equal(rows[name], value))


def _with_nulls(columns: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    """Some columns of a schema, the others null."""
    count = len(next(iter(columns.values())))
    given = [columns.get(field.name, pa.nulls(count, field.type)) for field in schema]
    arrays = [
        each if isinstance(each, pa.Array | pa.ChunkedArray) else pa.array(each, field.type)
        for each, field in zip(given, schema, strict=True)
    ]
    return pa.table([array.cast(field.type) for array, field in zip(arrays, schema, strict=True)], schema=schema)
