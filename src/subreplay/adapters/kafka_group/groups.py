"""Copies of ``__consumer_offsets``, with the coordinator's log where there is one, as ``ingest`` wants them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.base import FileCount, Ingested, Options, Reason, Rejected, check_asked, told_of
from subreplay.adapters.files import files as files_of
from subreplay.adapters.kafka_group.acknowledged import MOST, Acknowledged, acknowledged, commit_rows
from subreplay.adapters.kafka_group.consumer_offsets import Decoded, decode_records, joined
from subreplay.adapters.kafka_group.coordinator_log.files import Logged, logged
from subreplay.adapters.kafka_group.copies import Copy, copied
from subreplay.adapters.kafka_group.progress import progress
from subreplay.adapters.kafka_group.rows import GroupRows, group_rows
from subreplay.adapters.looks import COORDINATOR_LOG, Chosen, chosen
from subreplay.errors import InputError

NAME: Final = "kafka-group"
POLICIES: Final = {
    ("classic", "range"): "kafka.range",
    ("classic", "roundrobin"): "kafka.roundrobin",
    ("classic", "sticky"): "kafka.sticky",
    ("classic", "cooperative-sticky"): "kafka.cooperative_sticky",
    ("consumer", "uniform"): "kafka.uniform",
    ("consumer", "range"): "kafka.server_range",
}
"""Policies by protocol and assignor."""
_NO_DELAYS: Final = {"session.timeout.ms": 0, "group.initial.rebalance.delay.ms": 0}
"""Events have the instants of complete rebalances: the coordinator has waited already."""
NOTES: Final = (
    "records of __consumer_offsets have no messages: name them as traffic.messages, such as {from: kafka-table.spark, "
    "path: ...}",
    "deliveries are commits and what these acknowledge: they do not tell what was delivered, so rules that need it are "
    "not applicable. Receipts come from traffic.deliveries, such as {from: otlp-spans, path: ...}",
)
_NO_LOG: Final = (
    "without the coordinator's log (option coordinator_log) a member's leave is known by the next generation only, and "
    "counts as a leave though it may have been a failure"
)
_NOBODYS: Final = Reason(
    "consumer", "null", "a commit that acknowledges is of the member that owned the partition",
    "copy __consumer_offsets from before the group's generation; of a consumer that assigns itself nobody can tell",
)  # fmt: skip
_LEAP: Final = Reason(
    "offset", "", f"a commit acknowledges at most {MOST:,} records", "leave out commits that only move the group"
)


def read(path: Path, options: Options) -> Ingested:
    """Membership of groups, and deliveries by their commits, of a file or of the files of a folder.

    Logs of the coordinator that lie in the folder, or are given, tell exact instants. Raises ``InputError`` where there
    is no record of the topic and group that are asked for.
    """
    files = chosen(path, NAME, beside=(COORDINATOR_LOG,), sure=True)
    copy = copied((each, files.named(each)) for each in files.mine)
    decoded, rejected, counts = _decoded(copy, options, path)
    log = _log(files, options)
    rows = group_rows(decoded.tables, None if log is None else log.events, topic_names(decoded.tables))
    done = progress(decoded.tables["offset_commits"], rows.owners)
    acked = acknowledged(done)
    membership = pa.concat_tables([rows.membership, rows.decisions])
    if options.topic is not None:
        membership = membership.filter(pc.equal(membership["topic"], options.topic))
    deliveries = [acked.deliveries, commit_rows(done, acked.leaps, len(acked.deliveries))]
    tables = {"membership": membership, "deliveries": pa.concat_tables(deliveries)}
    pairs = told_of(tables)
    if not pairs:
        raise InputError(f"{path}: {len(copy.records):,} records of __consumer_offsets tell of no member of a group of "
                         "consumers, and of nothing that it acknowledged")  # fmt: skip
    unowned = [*_unowned(decoded.tables["offset_commits"], copy, acked)]
    wrong = Counter(row.file for row in unowned)
    every = [each._replace(quarantined=each.quarantined + wrong[each.file]) for each in counts]
    run, notes = _run(rows, *pairs[0])
    return Ingested(
        tables,
        (*rejected, *unowned, *(log.rejected if log else ())),
        (*every, *(log.counts if log else ())),
        run,
        tuple(pairs[1:]),
        (*NOTES, *notes, *_of_commits(acked, copy), *(() if log else (_NO_LOG,)), *files.notes),
    )


def topic_names(tables: dict[str, pa.Table]) -> dict[str, str]:
    """The names of topic ids that members tell who subscribe to one topic only: all that they are given is of it."""
    topics: dict[tuple[str, str], set[str]] = {}
    for row in tables["members"].select(["group", "member_id", "topics", "regex", "tombstone"]).to_pylist():
        if not row["tombstone"]:
            told = topics.setdefault((row["group"], row["member_id"]), set())
            told |= {"", *(row["topics"] or ())} if row["regex"] else {*(row["topics"] or ())}
    names: dict[str, set[str]] = {}
    for row in tables["current_assignments"].select(["group", "member_id", "assigned"]).to_pylist():
        told = topics.get((row["group"], row["member_id"]), set())
        if len(told) == 1 and "" not in told:
            for topic_partition in row["assigned"] or ():
                names.setdefault(topic_partition["topic_id"], set()).update(told)
    return {topic_id: next(iter(told)) for topic_id, told in names.items() if len(told) == 1}


def _decoded(copy: Copy, options: Options, path: Path) -> tuple[Decoded, list[Rejected], list[FileCount]]:
    """What the records of the wanted group and topic tell, and the rows of each file."""
    parts, rejected, counts = list[Decoded](), list(copy.rejected), list[FileCount]()
    groups, topics = set[str](), set[str]()
    for name in sorted(copy.rows):
        every = decode_records(copy.records.filter(pc.equal(copy.records["file"], name)))
        groups |= {group for table in every.tables.values() for group in pc.unique(table["group"]).to_pylist()}
        topics |= {*pc.unique(every.tables["offset_commits"]["topic"]).to_pylist()}
        found = _wanted(every, options)
        rejected += [row._replace(file=f"{name}: {row.file}") for row in found.rejected]
        quarantined = len(found.rejected) + sum(row.file == name for row in copy.rejected)
        counts.append(FileCount(name, copy.rows[name], quarantined, copy.others[name] + _rows(every) - _rows(found)))
        parts.append(found)
    check_asked(path, options, groups, topics)
    return joined(parts), rejected, counts


def _rows(decoded: Decoded) -> int:
    return sum(table.num_rows for table in decoded.tables.values())


def _wanted(found: Decoded, options: Options) -> Decoded:
    tables = dict(found.tables)
    if options.subscription is not None:
        tables = {name: table.filter(pc.equal(table["group"], options.subscription)) for name, table in tables.items()}
    if options.topic is not None:
        commits = tables["offset_commits"]
        tables["offset_commits"] = commits.filter(pc.equal(commits["topic"], options.topic))
    return Decoded(tables, found.rejected, found.counts)


def _log(files: Chosen, options: Options) -> Logged | None:
    given = options.coordinator_log
    paths = files.beside[COORDINATOR_LOG] if given is None else files_of(given)
    if not paths:
        return None
    return logged(((each, files.named(each)) for each in paths), options.time_zone or "UTC", options.subscription)


def _unowned(commits: pa.Table, copy: Copy, acked: Acknowledged) -> Iterator[Rejected]:
    """Commits that acknowledge something, and yet are no deliveries."""
    commits = commits.filter(pc.invert(commits["tombstone"]))
    for rows, reason in ((acked.nobodys, _NOBODYS), (acked.leaps, _LEAP)):
        found = commits.take(pa.array(rows)).select(["record_partition", "record_offset", "group", "topic", "offset"])
        where = copy.records.select(["partition", "offset", "file", "row"]).rename_columns(["p", "o", "file", "row"])
        keys = [pa.field("p", pa.int64()), pa.field("o", pa.int64())]
        found = found.set_column(0, keys[0], found["record_partition"].cast(pa.int64()))
        for row in found.set_column(1, keys[1], found["record_offset"]).join(where, ["p", "o"]).to_pylist():
            told = reason._replace(value=reason.value or str(row["offset"]))
            raw = f"commit of {row['group']} for {row['topic']}: {row['offset']}"
            yield Rejected("deliveries", row["file"], row["row"], raw, (told,))


def _of_commits(acked: Acknowledged, copy: Copy) -> Iterator[str]:
    if len(acked.first):
        yield (f"what the first commit of a partition here acknowledges is not told ({len(acked.first):,} commits): "
               "nobody knows where its group began")  # fmt: skip
    if len(acked.back):
        yield f"{len(acked.back):,} commits went back: what they take back comes again as a delivery of its own"
    if copy.without_partition:
        files = ", ".join(copy.without_partition)
        yield f"{files}: no record tells its partition of __consumer_offsets, which is taken to be 0"


def _run(rows: GroupRows, group: str, topic: str) -> tuple[dict[str, Any], list[str]]:
    """A run to start from: the policy of the latest generation, as far as it is told."""
    run: dict[str, Any] = {"name": group, "topic": topic}
    generations = [row for row in rows.generations.to_pylist() if row["subscription"] == group]
    protocol = generations[-1]["protocol"] if generations else None
    asked = [row["assignor"] for row in rows.members.to_pylist() if row["subscription"] == group and row["assignor"]]
    told = [row["assignor"] for row in generations if row["protocol"] == protocol and row["assignor"]] or asked
    run["profile"] = "kafka-4.0"
    if protocol is None or not told or (protocol, told[-1]) not in POLICIES:
        why = f"assignor {told[-1]} is none that is known" if told else "the assignor is not told"
        return {"subscription": run}, [f"{why}: set subscription.policy to one of kafka.*"]
    run["policy"] = POLICIES[protocol, told[-1]]
    run["options"] = _NO_DELAYS
    notes = []
    if len(set(told)) > 1:
        notes.append(f"the group changed its assignor ({', '.join(dict.fromkeys(told))}): the policy is the last one")
    if protocol == "classic":
        notes.append("the release of the clients, which assign by themselves, is not told: check profile (kafka-2.3)")
    return {"subscription": run}, notes
