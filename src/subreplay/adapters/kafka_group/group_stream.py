"""Fold copies of ``__consumer_offsets``, with the coordinator's log if there is one, as streams of sorted rows.

``_scan_file`` reads a file. ``_decode_copies`` receives all copies of a record together, decodes commits and records
about groups, and finds names of topic ids in commits. ``_find_topic_names`` receives the records of a group, and finds
names of topic ids. ``_build_membership`` receives them with the group's lines of the log, and builds membership and
owners of topic partitions. ``_build_deliveries`` follows each topic partition of a group through its owners and commits
in record order.
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

from subreplay.adapters.base import FileCount, Options, Reason, RejectedRow, check_names_exist, rank_subscriptions
from subreplay.adapters.format_detection import COORDINATOR_LOG, select_files
from subreplay.adapters.input_files import list_files as files_of
from subreplay.adapters.kafka_group.acknowledged_records import MAX_RECORDS, build_commit_rows, find_acknowledged
from subreplay.adapters.kafka_group.commit_progress import build_progress
from subreplay.adapters.kafka_group.consumer_offsets import DecodedRecords, decode_records
from subreplay.adapters.kafka_group.coordinator_log import log_files
from subreplay.adapters.kafka_group.coordinator_log.log_clock import LocalClock
from subreplay.adapters.kafka_group.coordinator_log.log_events import COORDINATOR_EVENTS
from subreplay.adapters.kafka_group.group_records import RECORD_TABLES
from subreplay.adapters.kafka_group.group_rows import OWNERS, build_group_rows
from subreplay.adapters.kafka_group.group_run import (
    ASSIGNORS,
    NO_LOG,
    NOTES,
    build_run,
    describe_commits,
    list_assignors,
)
from subreplay.adapters.kafka_group.offset_commits import TOPIC_IDS, list_topic_ids
from subreplay.adapters.kafka_group.protocol_bytes import MalformedBytes
from subreplay.adapters.kafka_group.record_copies import COPIED_RECORDS, drop_repeated_records, read_copy
from subreplay.adapters.kafka_group.share_state import (
    StartOffset,
    StartOffsets,
    build_start_offsets,
    decode_share_state,
)
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
from subreplay.errors import InputError
from subreplay.rows.groups import read_whole_groups
from subreplay.rows.model.columns import ints
from subreplay.rows.model.tables import DELIVERIES, MEMBERSHIP, QUARANTINE
from subreplay.rows.sorted_blocks import GROUP

NAME: Final = "kafka-group"
_NO_OWNER: Final = Reason(
    "consumer", "null", "a commit must belong to the member that owned the partition",
    "copy __consumer_offsets from before the group's generation; consumers with assign() have no known owner",
)  # fmt: skip
_LEAP_REASON: Final = Reason(
    "offset",
    "",
    f"a commit must acknowledge at most {MAX_RECORDS:,} records",
    "remove commits that only move the group",
)
_FILE_NUMBER: Final = pa.field("file_number", pa.int32())
_RECORDS: Final = pa.schema([*COPIED_RECORDS, _FILE_NUMBER])
_GROUP_RECORDS: Final = pa.schema(
    [*(field.with_nullable(True) for field in COPIED_RECORDS), _FILE_NUMBER, pa.field("group", pa.string()),
     pa.field("event", pa.struct([field.with_nullable(True) for field in COORDINATOR_EVENTS]))]
)  # fmt: skip
"""Records about groups, and lines of the log; a line has an ``event`` and no record."""
_COMMIT_FIELDS: Final = [*RECORD_TABLES["offset_commits"], pa.field("file", pa.string()), pa.field("row", pa.int64())]
_STEPS: Final = pa.schema(
    [("group", pa.string()), ("topic", pa.string()), ("partition", pa.int32()), ("record_offset", pa.int64()),
     ("kind", pa.int8()), ("number", pa.int64()),
     ("owner", pa.struct([field.with_nullable(True) for field in OWNERS])),
     ("commit", pa.struct([field.with_nullable(True) for field in _COMMIT_FIELDS]))]
)  # fmt: skip
"""The events of a topic partition of a group, by record: a new owner, or a commit."""
_OWNER_STEP, _COMMIT_STEP = 0, 1
_FILES: Final = pa.schema(
    [("file", pa.string()), *((name, pa.int64()) for name in ("rows", "quarantined", "others", "no_partition"))]
)
"""Counts to be summed by file; ``no_partition`` counts parts without partitions."""
_CONTENT_COUNTS: Final = pa.schema([("kind", pa.string()), ("name", pa.string()), ("count", pa.int64())])
"""Counts to be summed: the groups and topics in the records, the number of records about groups (kind ``record``), and
commits that are the ``first`` of their partition or went ``back``."""
_PAIRS: Final = pa.schema([("subscription", pa.string()), ("topic", pa.string()), ("count", pa.int64())])


class _CopyFile(NamedTuple):
    path: Path
    name: str
    number: int
    is_log: bool
    time_zone: str
    group: str | None


def open_stream(path: Path, options: Options) -> SourceStream:
    """Describe how to read files of any size. Raises ``InputError`` where there is no file, and ``ConfigError`` where
    the time zone does not exist."""
    files = select_files(path, NAME, companions=(COORDINATOR_LOG,), certain=True)
    configured, zone = options.coordinator_log, options.time_zone or "UTC"
    LocalClock(zone)
    logs = files.companions[COORDINATOR_LOG] if configured is None else files_of(configured)
    parts = [
        _CopyFile(each, files.relative_name(each), i, i >= len(files.files), zone, options.subscription)
        for i, each in enumerate((*files.files, *logs))
    ]
    place = ("partition", "offset", "file_number", "row")
    notes_of_run = {"files": _FILES, "there": _CONTENT_COUNTS}
    return SourceStream(
        sum_file_sizes((*files.files, *logs)),
        parts,
        _scan_file,
        {"records": _RECORDS, "states": _RECORDS, "of_groups": _GROUP_RECORDS, REJECTED: QUARANTINE},
        notes_of_run,
        (
            Stage(
                lambda _: partial(_decode_copies, options),
                {"of_groups": _GROUP_RECORDS, "steps": _STEPS, REJECTED: QUARANTINE},
                notes_of_run | {"names": TOPIC_IDS},
                "records",
                ("partition",),
                place[1:],
            ),
            Stage(lambda _: _find_topic_names, {}, {"names": TOPIC_IDS}, "of_groups", ("group",), place),
            Stage(
                partial(_plan_membership, options.topic),
                {"membership": MEMBERSHIP, "steps": _STEPS},
                {"files": _FILES, "assignors": ASSIGNORS, "pairs": _PAIRS},
                "of_groups",
                ("group",),
                place,
            ),
            Stage(
                partial(_plan_start_offsets, options),
                {"deliveries": DELIVERIES, REJECTED: QUARANTINE},
                {"files": _FILES, "pairs": _PAIRS},
                "states",
                ("partition",),
                place[1:],
            ),
            Stage(
                lambda _: _build_deliveries,
                {"deliveries": DELIVERIES, REJECTED: QUARANTINE},
                notes_of_run | {"pairs": _PAIRS},
                "steps",
                ("group", "topic", "partition"),
                ("record_offset", "kind", "number"),
            ),
        ),
        partial(_build_result, path, options, parts, files.notes),
    )


def _scan_file(file: _CopyFile) -> Rows:
    """Read the records of a copy, or the lines of a log about the selected group."""
    yield "files", _build_file_counts(file.name)  # so that an empty file is counted
    if file.is_log:
        for lines in log_files.read_log(file.path, file.name, file.time_zone):
            events = lines.events if file.group is None else _select_equal(lines.events, "group", file.group)
            yield REJECTED, build_quarantine(lines.rejected)
            wrong = len(lines.rejected)
            yield "files", _build_file_counts(file.name, lines.lines, wrong, lines.lines - wrong)
            columns = {"file_number": [file.number] * len(events), "event": events.to_struct_array()}
            yield (
                "of_groups",
                _fill_columns({**columns, "row": events["line"], "group": events["group"]}, _GROUP_RECORDS),
            )
    else:
        for part in read_copy(file.path, file.name):
            yield REJECTED, build_quarantine(part.rejected)
            counts = part.rows, len(part.rejected), part.other_topics, int(part.without_partition)
            yield "files", _build_file_counts(file.name, *counts)
            for name, records in (("records", part.records), ("states", part.states)):
                number = pa.repeat(pa.scalar(file.number, pa.int32()), len(records))
                yield name, records.append_column(_FILE_NUMBER, number)


def _decode_copies(options: Options, batches: Batches) -> Rows:
    """Drop repeated records, and select commits of the group and topic and records about groups."""
    for copied in read_whole_groups(batches, (GROUP, "offset")):
        found = drop_repeated_records(copied.select(_RECORDS.names).cast(_RECORDS))
        yield REJECTED, build_quarantine(found.rejected)
        wrong = Counter(row.file for row in found.rejected)
        for name in pc.unique(copied["file"]).to_pylist():
            records = _select_equal(found.records, "file", name)
            every = decode_records(records)
            selected = _select_requested(every, options)
            rejected = [row._replace(file=f"{name}: {row.file}") for row in every.rejected]
            yield REJECTED, build_quarantine(rejected)
            others = found.repeated[name] + _count_rows(every.tables) - _count_rows(selected)
            yield "files", _build_file_counts(name, 0, wrong[name] + len(rejected), others)
            yield "there", _count_contents(every.tables, len(records))
            yield "names", list_topic_ids(every.tables["offset_commits"])
            yield "of_groups", _select_group_records(selected, records)
            yield "steps", _build_commit_steps(selected["offset_commits"], records)


def _select_requested(found: DecodedRecords, options: Options) -> dict[str, pa.Table]:
    tables = dict(found.tables)
    if options.subscription is not None:
        tables = {name: _select_equal(table, "group", options.subscription) for name, table in tables.items()}
    if options.topic is not None:
        tables["offset_commits"] = _select_equal(tables["offset_commits"], "topic", options.topic)
    return tables


def _count_rows(tables: Mapping[str, pa.Table]) -> int:
    return sum(table.num_rows for table in tables.values())


def _count_contents(tables: Mapping[str, pa.Table], records: int) -> pa.Table:
    groups = {group for table in tables.values() for group in pc.unique(table["group"]).to_pylist()}
    topics = {*pc.unique(tables["offset_commits"]["topic"]).to_pylist()}
    rows = [*(("group", name, 1) for name in groups), *(("topic", name, 1) for name in topics), ("record", "", records)]
    return pa.Table.from_pylist([dict(zip(_CONTENT_COUNTS.names, row, strict=True)) for row in rows], _CONTENT_COUNTS)


def _select_group_records(tables: Mapping[str, pa.Table], records: pa.Table) -> pa.Table:
    place = ["record_partition", "record_offset"]
    about_groups = [tables[name].select([*place, "group"]) for name in RECORD_TABLES if name != "offset_commits"]
    found = _join_records(pa.concat_tables(about_groups), records)
    return _fill_columns({name: found[name] for name in (*_RECORDS.names, "group")}, _GROUP_RECORDS)


def _build_commit_steps(commits: pa.Table, records: pa.Table) -> pa.Table:
    """Build ``_STEPS`` of commits. Tombstones are omitted, because they acknowledge nothing."""
    found = _join_records(
        commits.filter(pc.invert(commits["tombstone"])), records.select(["partition", "offset", "file", "row"])
    )
    rows = pa.table([found[field.name].cast(field.type) for field in _COMMIT_FIELDS], pa.schema(_COMMIT_FIELDS))
    small = {name: rows[name] for name in ("group", "topic", "partition", "record_offset")}
    more = {"kind": [_COMMIT_STEP] * len(rows), "number": [0] * len(rows), "commit": rows.to_struct_array()}
    return _fill_columns({**small, **more}, _STEPS)


def _join_records(decoded: pa.Table, records: pa.Table) -> pa.Table:
    """Join decoded rows with their records. Columns with one name keep the decoded values."""
    place = {"partition": "record_partition", "offset": "record_offset"}
    keys = {name: f"{name} of records" for name in records.column_names if name in decoded.column_names}
    types = {name: decoded.schema.field(name).type for name in place.values()}
    renamed = records.rename_columns([keys.get(name, name) for name in records.column_names])
    for name, other in place.items():
        renamed = renamed.append_column(f"({other})", records[name].cast(types[other]))
    return decoded.join(renamed, list(place.values()), [f"({other})" for other in place.values()], "inner")


def _find_topic_names(batches: Batches) -> Rows:
    for rows in read_whole_groups(batches):
        yield "names", infer_topic_names(_decode_again(rows))


def infer_topic_names(tables: Mapping[str, pa.Table]) -> pa.Table:
    """Infer the topics of ids from members that subscribe to one topic only, because all their partitions are of it."""
    topics: dict[tuple[str, str], set[str]] = {}
    for row in tables["members"].select(["group", "member_id", "topics", "regex", "tombstone"]).to_pylist():
        if not row["tombstone"]:
            subscribed = topics.setdefault((row["group"], row["member_id"]), set())
            subscribed |= {"", *(row["topics"] or ())} if row["regex"] else {*(row["topics"] or ())}
    names: set[tuple[str, str]] = set()
    for row in tables["current_assignments"].select(["group", "member_id", "assigned"]).to_pylist():
        subscribed = topics.get((row["group"], row["member_id"]), set())
        if len(subscribed) == 1 and "" not in subscribed:
            names |= {(one["topic_id"], *subscribed) for one in row["assigned"] or ()}
    for row in tables["share_partitions"].select(["initialized"]).to_pylist():
        names |= {(one["topic_id"], one["topic"]) for one in row["initialized"] or ()}
    return pa.Table.from_pylist([dict(zip(TOPIC_IDS.names, pair, strict=True)) for pair in sorted(names)], TOPIC_IDS)


def choose_topic_names(names: pa.Table) -> dict[str, str]:
    """Return the names of topic ids for which only one topic was inferred."""
    candidates: dict[str, set[str]] = {}
    for row in names.to_pylist():
        candidates.setdefault(row["topic_id"], set()).add(row["topic"])
    return {topic_id: next(iter(topics)) for topic_id, topics in candidates.items() if len(topics) == 1}


def _decode_again(rows: pa.Table) -> dict[str, pa.Table]:
    return decode_records(rows.filter(pc.is_null(rows["event"]))).tables


def _plan_membership(topic: str | None, small: SmallTables) -> partial[Rows]:
    return partial(_build_membership, topic, choose_topic_names(small["names"]))


def _build_membership(topic: str | None, names: Mapping[str, str], batches: Batches) -> Rows:
    """Build the membership of whole groups, and the owners of their topic partitions."""
    for rows in read_whole_groups(batches):
        lines = rows.filter(pc.is_valid(rows["event"]))
        every = pa.Table.from_struct_array(lines["event"]) if len(lines) else COORDINATOR_EVENTS.empty_table()
        events = log_files.drop_copied_events(every.cast(COORDINATOR_EVENTS))
        kept = events.group_by(["file", "line"]).aggregate([]).group_by("file").aggregate([([], "count_all")])
        for name, count in zip(*(column.to_pylist() for column in kept.columns), strict=True):
            yield "files", _build_file_counts(name, others=-count)
        decoded = _decode_again(rows)
        found = build_group_rows(decoded, events, names)
        membership = pa.concat_tables([found.membership, found.decisions])
        membership = membership if topic is None else _select_equal(membership, "topic", topic)
        yield "membership", membership
        yield "pairs", _count_pairs(membership)
        yield "assignors", pa.Table.from_pylist([*list_assignors(found, decoded)], ASSIGNORS)
        owners = found.owners.filter(pc.is_valid(found.owners["topic"]))
        steps = {"group": owners["subscription"], "topic": owners["topic"], "partition": owners["partition"],
                 "record_offset": owners["from_offset"], "kind": [_OWNER_STEP] * len(owners),
                 "number": np.arange(len(owners)), "owner": owners.to_struct_array()}  # fmt: skip
        yield "steps", _fill_columns(steps, _STEPS)


def _plan_start_offsets(options: Options, small: SmallTables) -> partial[Rows]:
    return partial(_build_start_offsets, options, StartOffsets(choose_topic_names(small["names"])))


def _build_start_offsets(options: Options, offsets: StartOffsets, batches: Batches) -> Rows:
    """Build the start offsets of share partitions from records of ``__share_group_state``."""
    seq = 0
    for copied in read_whole_groups(batches, (GROUP, "offset")):
        unique = drop_repeated_records(copied.select(_RECORDS.names).cast(_RECORDS))
        found: list[StartOffset] = []
        rejected = [*unique.rejected]
        times = unique.records["timestamp"].cast(pa.int64())
        for row, micros in zip(unique.records.drop_columns(["timestamp"]).to_pylist(), times.to_pylist(), strict=True):
            try:
                state = decode_share_state(row["key"], row["value"])
            except MalformedBytes as malformed:
                where = f"{row['partition']}:{row['offset']}"
                reason = Reason(malformed.column, where, malformed.rule, malformed.remedy)
                rejected.append(RejectedRow("deliveries", row["file"], row["row"], f"the record at {where}", (reason,)))
                continue
            start = offsets.apply_state(state, micros * 1_000)
            if start is not None and _is_requested(start, options):
                found.append(start)
        rows = build_start_offsets(found, seq)
        seq += len(found)
        yield "deliveries", rows
        yield "pairs", _count_pairs(rows)
        yield REJECTED, build_quarantine(rejected)
        wrong = Counter(row.file for row in rejected)
        for name in {*wrong, *unique.repeated}:
            yield "files", _build_file_counts(name, 0, wrong[name], unique.repeated[name])


def _is_requested(start: StartOffset, options: Options) -> bool:
    return start.group == (options.subscription or start.group) and start.topic == (options.topic or start.topic)


def _build_deliveries(batches: Batches) -> Rows:
    """Build what each commit acknowledges. The latest owner and commit of a topic partition that continues in the next
    batch are kept for it."""
    before = _STEPS.empty_table()
    for batch in batches:
        steps = pa.concat_tables([before, pa.Table.from_batches([batch]).select(_STEPS.names).cast(_STEPS)])
        is_commit = ints(steps, "kind") == _COMMIT_STEP
        earlier = len(before) and bool(is_commit[len(before) - 1])  # the first commit was processed before
        owners = _unpack(steps.filter(pa.array(~is_commit)), "owner", OWNERS)
        commits = _unpack(steps.filter(pa.array(is_commit)), "commit", pa.schema(_COMMIT_FIELDS))
        done = build_progress(commits, owners)
        acked = find_acknowledged(done)
        for rows in acked.build_deliveries():
            yield "deliveries", rows
            yield "pairs", _count_pairs(rows)
        rows = build_commit_rows(done.slice(int(earlier)), acked.leaps - int(earlier))
        yield "deliveries", rows
        yield "pairs", _count_pairs(rows)
        first = len(acked.first) - int(earlier)
        numbers = pa.table([["first", "back"], ["", ""], [first, len(acked.back)]], schema=_CONTENT_COUNTS)
        yield "there", numbers
        refused = [*_reject_commits(commits.take(pa.array(acked.unowned)), _NO_OWNER),
                   *_reject_commits(commits.take(pa.array(acked.leaps)), _LEAP_REASON)]  # fmt: skip
        yield REJECTED, build_quarantine(refused)
        for name, count in Counter(row.file for row in refused).items():
            yield "files", _build_file_counts(name, quarantined=count)
        before = _select_latest(steps)


def _select_latest(steps: pa.Table) -> pa.Table:
    """Return the latest owner and the latest commit of the last topic partition, the commit last."""
    last = steps.slice(max(0, len(steps) - 1))
    same = np.ones(len(steps), np.bool_)
    for name in ("group", "topic", "partition"):
        same &= pc.equal(steps[name], last[name][0]).to_numpy() if len(last) else True
    kind = ints(steps, "kind")
    found = [np.flatnonzero(same & (kind == each))[-1:] for each in (_OWNER_STEP, _COMMIT_STEP)]
    return steps.take(pa.array(np.concatenate(found)))


def _unpack(steps: pa.Table, name: str, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_struct_array(steps[name]).cast(schema) if len(steps) else schema.empty_table()


def _reject_commits(commits: pa.Table, reason: Reason) -> Iterator[RejectedRow]:
    """Yield rejected rows for commits that acknowledge records but cannot become deliveries."""
    for row in commits.to_pylist():
        own = reason._replace(value=reason.value or str(row["offset"]))
        raw = f"commit of {row['group']} for {row['topic']}: {row['offset']}"
        yield RejectedRow("deliveries", row["file"], row["row"], raw, (own,))


def _build_result(
    path: Path, options: Options, parts: Iterable[_CopyFile], notes: Iterable[str], small: SmallTables, _: Counter[str]
) -> StreamResult:
    files = _sum_counts(small["files"], ["file"])
    contents = {(row["kind"], row["name"]): row["count"] for row in _sum_counts(small["there"], ["kind", "name"])}
    names = {of: [name for kind, name in contents if kind == of] for of in ("group", "topic")}
    check_names_exist(path, options, names["group"], names["topic"])
    pairs = rank_subscriptions(
        {(row["subscription"], row["topic"]): row["count"] for row in _sum_counts(small["pairs"], _PAIRS.names[:2])}
    )
    if not pairs:
        records = contents.get(("record", ""), 0)
        raise InputError(f"{path}: the {records:,} records of __consumer_offsets contain no member of a consumer group "
                         "and no commit of one. Copy more of the topic")  # fmt: skip
    by_name = {row["file"]: row for row in files}
    copies = sorted({part.name for part in parts if not part.is_log})
    logs = [part.name for part in parts if part.is_log]
    counts = [
        FileCount(name, *(by_name[name][of] for of in ("rows", "quarantined", "others"))) for name in (*copies, *logs)
    ]
    group, topic = pairs[0]
    found = next((row for row in small["assignors"].to_pylist() if row["group"] == group), None)
    run, of_run = build_run(found, group, topic)
    unpartitioned = [part.name for part in parts if not part.is_log and by_name[part.name]["no_partition"]]
    of_copies = describe_commits(contents.get(("first", ""), 0), contents.get(("back", ""), 0), unpartitioned)
    notes_of_run = (*NOTES, *of_run, *of_copies, *(() if logs else (NO_LOG,)), *notes)
    return StreamResult({}, tuple(counts), run, tuple(pairs[1:]), notes_of_run)


def _build_file_counts(
    file: str, rows: int = 0, quarantined: int = 0, others: int = 0, no_partition: int = 0
) -> pa.Table:
    return pa.table([[file], [rows], [quarantined], [others], [no_partition]], schema=_FILES)


def _count_pairs(rows: pa.Table) -> pa.Table:
    counted = rows.select(_PAIRS.names[:2]).group_by(_PAIRS.names[:2]).aggregate([([], "count_all")])
    return counted.rename_columns(_PAIRS.names).cast(_PAIRS)


def _sum_counts(rows: pa.Table, by: list[str]) -> list[dict[str, Any]]:
    counts = [name for name in rows.column_names if name not in by]
    sums = rows.group_by(by).aggregate([(name, "sum") for name in counts])
    found: list[dict[str, Any]] = (
        sums.select([*by, *(f"{name}_sum" for name in counts)]).rename_columns(rows.column_names).to_pylist()
    )
    return found


def _select_equal(rows: pa.Table, name: str, value: str) -> pa.Table:
    return rows.filter(pc.equal(rows[name], value))


def _fill_columns(columns: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    """Build a table from some columns of a schema; the others are null."""
    count = len(next(iter(columns.values())))
    filled = [columns.get(field.name, pa.nulls(count, field.type)) for field in schema]
    arrays = [
        each if isinstance(each, pa.Array | pa.ChunkedArray) else pa.array(each, field.type)
        for each, field in zip(filled, schema, strict=True)
    ]
    return pa.table([array.cast(field.type) for array, field in zip(arrays, schema, strict=True)], schema=schema)
