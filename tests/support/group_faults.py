"""Faults of recorded Kafka groups: each changes one thing in a copy of a recording, and says how it must be found."""

from __future__ import annotations

import gzip
import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from subreplay.adapters.base import SourceTables
from subreplay.adapters.kafka_recording.kafka_recording_adapter import read_tables
from subreplay.adapters.kafka_recording.recording_rows import ClientEvent
from subreplay.conformance.fidelity_groups.partition_owners import FetchInterval, build_recorded_intervals
from tests.support.groups import Audited, audit_ingested, audited

Row = dict[str, Any]
TopicPartition = tuple[str, int]
EAGER = ("range", "roundrobin", "sticky")
MILLISECOND = 1_000_000


@dataclass
class GroupRecording:
    """The rows of a recording's files, to be changed and written elsewhere. ``changed`` is applied to what is read."""

    name: str
    scenario: Row
    files: dict[str, list[Row]]
    changed: Callable[[SourceTables], SourceTables] = lambda it: it

    @classmethod
    def load(cls, folder: Path) -> GroupRecording:
        files = {
            path.name.split(".")[0]: [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
            for path in sorted(folder.glob("*.jsonl.gz"))
        }
        return cls(folder.name, json.loads((folder / "scenario.json").read_text()), files)

    def ingested(self, folder: Path) -> SourceTables:
        """What the adapter reads of it, by way of a folder."""
        for stale in folder.glob("*.jsonl"):  # of another recording
            stale.unlink()
        (folder / "scenario.json").write_text(json.dumps(self.scenario))
        for name, rows in self.files.items():
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return self.changed(read_tables(folder))

    @property
    def polls(self) -> list[Row]:
        return self.files["polls"]

    @property
    def commits(self) -> list[Row]:
        return self.files["commits"]

    def once(self) -> list[Row]:
        """Polls of records that were given to an application once."""
        times: dict[tuple[Any, ...], int] = defaultdict(int)
        for row in self.polls:
            times[record(row)] += 1
        return [row for row in self.polls if times[record(row)] == 1]

    def intervals(self) -> dict[TopicPartition, list[FetchInterval]]:
        """Who owned each partition when, by the callbacks."""
        reported = [ClientEvent.model_validate(row) for row in self.files["membership"]]
        eager = self.scenario["protocol"] == "classic" and self.scenario["assignor"] in EAGER
        owned = build_recorded_intervals(reported, eager, max(row.at for row in reported))
        return {(topic_partition.topic, topic_partition.partition): [*mine] for topic_partition, mine in owned.items()}

    def owned(self, row: Row) -> FetchInterval:
        """The interval that a poll lies in."""
        mine = self.intervals()[row["topic"], row["partition"]]
        return next(i for i in mine if i.consumer == row["consumer"] and i.start <= row["polled_at"] <= i.end)

    def others(self, row: Row, at: int) -> list[Row]:
        """Polls of other consumers, of which each owned something else at that time, one for each; not of those that
        had left, and were told later that it is lost."""
        lost = {
            (reported["consumer"], reported["at"])
            for reported in self.files["membership"]
            if reported["event"] == "lost"
        }
        owned = (i for mine in self.intervals().values() for i in mine if i.start < at < i.end)
        here = {i.consumer for i in owned if (i.consumer, i.end) not in lost}
        here &= self.readers(row["topic"])
        found = {p["consumer"]: p for p in self.polls if p["polled_at"] <= at and p["consumer"] in here}
        return [poll for consumer, poll in sorted(found.items()) if consumer != row["consumer"]]

    def readers(self, topic: str) -> set[str]:
        """The consumers that subscribe to a topic all the time."""
        named = {
            one["name"]: [one["subscribe"], *(done["topics"] for done in one["actions"] if done["do"] == "subscribe")]
            for one in self.scenario["consumers"]
        }
        return {name for name, subscriptions in named.items() if all(topic in topics for topics in subscriptions)}

    def committed(self) -> dict[TopicPartition, list[Row]]:
        """The successful commits of each partition, in order of time."""
        found: dict[TopicPartition, list[Row]] = defaultdict(list)
        for row in sorted(self.commits, key=lambda row: row["done_at"]):
            if row["ok"]:
                found[row["topic"], row["partition"]].append(row)
        return found


def record(row: Row) -> tuple[Any, ...]:
    return row["topic"], row["partition"], row["offset"]


class Unfit(Exception):
    """There is nothing in this recording that this fault could change."""


def one_of(rng: random.Random, candidates: list[Any]) -> Any:
    if not candidates:
        raise Unfit
    return rng.choice(candidates)


# Polls


def a_record_moves(r: GroupRecording, rng: random.Random) -> str:
    """A record is given to a consumer that owns other partitions, and reads its topic."""
    row = rng.choice(r.once())
    other = one_of(rng, r.others(row, row["polled_at"]))
    row |= {name: other[name] for name in ("consumer", "member_id")}
    return "WRONG_OWNER"


def an_unknown_member_polls(r: GroupRecording, rng: random.Random) -> str:
    """A record is given to a member that is not there any more, or not yet. (A static one stays when it closes.)"""
    row = rng.choice(r.once())
    static = {one["name"] for one in r.scenario["consumers"] if one["instance"] is not None}
    here = set(static)
    for reported in (one for one in r.files["membership"] if one["at"] <= row["polled_at"]):
        if reported["event"] == "subscribe":
            here.add(reported["consumer"])
        elif reported["event"] == "close_end":
            here -= {reported["consumer"]} - static
    mine = {p["member_id"] for p in r.polls if p["consumer"] in here}
    other = one_of(rng, [p for p in r.polls if p["consumer"] not in here and p["member_id"] not in mine])
    row |= {name: other[name] for name in ("consumer", "member_id")}
    return "NOT_CONNECTED"


def a_record_is_skipped(r: GroupRecording, rng: random.Random) -> str:
    """A record is committed, and given to nobody."""
    committed = {topic_partition: max(row["offset"] for row in rows) for topic_partition, rows in r.committed().items()}
    row = one_of(rng, [p for p in r.once() if p["offset"] < committed.get((p["topic"], p["partition"]), 0)])
    r.polls.remove(row)
    return "LOST"


def two_records_change_places(r: GroupRecording, rng: random.Random) -> str:
    """Two records of a partition come in the wrong order, from two polls of one consumer."""
    row = rng.choice(r.once())
    owned = r.owned(row)
    later = [
        p for p in r.once()
        if record(p)[:2] == record(row)[:2] and p["offset"] > row["offset"] and p["consumer"] == row["consumer"]
        and row["polled_at"] < p["polled_at"] <= owned.end
    ]  # fmt: skip
    other = one_of(rng, later[:20])
    for name in ("polled_at", "processed_at"):
        row[name], other[name] = other[name], row[name]
    return "PARTITION_ORDER"


def a_record_comes_before_its_owner(r: GroupRecording, rng: random.Random) -> str:
    """A record is given to a consumer while the partition is another one's."""
    turns = [
        (before, after, topic_partition) for topic_partition, mine in r.intervals().items()
        for before, after in pairwise(mine)
        if after.start >= before.end > before.start + 50 * MILLISECOND and before.consumer != after.consumer
    ]  # fmt: skip
    found = [
        (p, before) for before, after, topic_partition in turns for p in r.once()
        if (p["topic"], p["partition"]) == topic_partition and p["consumer"] == after.consumer
        and after.start <= p["polled_at"] <= after.end
        and any(q["consumer"] == p["consumer"] and q["member_id"] == p["member_id"]
                and q["polled_at"] < before.end - 30 * MILLISECOND for q in r.polls)
    ]  # fmt: skip
    row, before = one_of(rng, found)
    row["polled_at"] = before.end - 20 * MILLISECOND
    return "WRONG_OWNER"


def a_record_is_redelivered_after_its_commit(r: GroupRecording, rng: random.Random) -> str:
    """A record is given out again, to the same consumer, after it was committed, and nobody sought back."""
    row = rng.choice(r.once())
    commits = r.committed()[row["topic"], row["partition"]]
    mine = (c for c in commits if c["consumer"] == row["consumer"] and c["offset"] > row["offset"])
    commit = next((c for c in mine if c["done_at"] > row["polled_at"]), None)
    if commit is None or commit["done_at"] + MILLISECOND >= r.owned(row).end:
        raise Unfit
    at = commit["done_at"] + MILLISECOND // 2
    r.polls.append(row | {"polled_at": at, "processed_at": at})
    return "DUP_DELIVERY"


def an_outstanding_record_is_redelivered(r: GroupRecording, rng: random.Random) -> str:
    """A record is given out again while its consumer is working on it."""
    row = rng.choice(r.once())
    at = row["polled_at"] + 10_000
    commits = r.committed()[row["topic"], row["partition"]]
    if any(row["polled_at"] <= c["done_at"] <= at + 10_000 for c in commits) or r.owned(row).end < at:
        raise Unfit
    r.polls.append(row | {"polled_at": at, "processed_at": max(at, row["processed_at"] or at)})
    return "DUP_OUTSTANDING"


# Commits


def a_commit_is_anothers(r: GroupRecording, rng: random.Random) -> str:
    """A commit that was taken is of a consumer that owns other partitions."""
    row = rng.choice([c for c in r.commits if c["ok"]])
    other = one_of(rng, r.others(row, row["done_at"]))
    row["consumer"] = other["consumer"]
    return "COMMIT_NOT_OWNER"


def a_refused_commit_is_taken(r: GroupRecording, rng: random.Random) -> str:
    """The commit of a consumer that was too slow is taken."""
    lost = {row["consumer"]: row["at"] for row in r.files["membership"] if row["event"] == "lost"}
    late = [c for c in r.commits if not c["ok"] and lost.get(c["consumer"], 0) - c["done_at"] in range(10**9)]
    owners = r.intervals()
    late = [
        c for c in late
        if any(i.consumer != c["consumer"] and i.start < c["done_at"] < i.end
               for i in owners[c["topic"], c["partition"]])
    ]  # fmt: skip
    one_of(rng, late).update(ok=True, error=None)
    return "COMMIT_NOT_OWNER"


def a_commit_goes_back(r: GroupRecording, rng: random.Random) -> str:
    """A commit is of a lower offset than the one before it."""
    pairs = [
        (before, after) for rows in r.committed().values() for before, after in pairwise(rows)
        if 1 < before["offset"] <= after["offset"]
    ]  # fmt: skip
    before, after = one_of(rng, pairs)
    after["offset"] = rng.randrange(max(0, before["offset"] - 20), before["offset"])
    return "COMMIT_BACK"


def a_commit_runs_ahead(r: GroupRecording, rng: random.Random) -> str:
    """A commit is of a higher offset than what its consumer was given."""
    highest: dict[TopicPartition, int] = defaultdict(int)
    for row in r.polls:
        highest[row["topic"], row["partition"]] = max(highest[row["topic"], row["partition"]], row["offset"])
    row = one_of(rng, [c for c in r.commits if c["ok"] and c["offset"] < highest[c["topic"], c["partition"]] - 30])
    given = [
        p["offset"] for p in r.polls if record(p)[:2] == record(row)[:2] and p["polled_at"] <= row["done_at"]
    ]  # fmt: skip
    row["offset"] = max(given) + 1 + rng.randrange(1, 10)
    if row["offset"] > highest[row["topic"], row["partition"]]:
        raise Unfit
    return "COMMIT_AHEAD"


# Ownership


def _turns(r: GroupRecording) -> Iterator[tuple[TopicPartition, FetchInterval, FetchInterval]]:
    for topic_partition, mine in sorted(r.intervals().items()):
        for before, after in pairwise(mine):
            if before.consumer != after.consumer and before.end <= after.start:
                yield topic_partition, before, after


def an_interval_ends_late(r: GroupRecording, rng: random.Random) -> str:
    """A consumer is told that its partitions are revoked when another one owns one of them already."""
    topic_partition, before, after = one_of(rng, [*_turns(r)])
    row = _callback(r, "revoked", before.consumer, before.end, topic_partition)
    row["at"] = rng.randrange(after.start + 1, max(after.start + 2, min(after.end, after.start + 10**9)))
    return "TWO_OWNERS"


def an_interval_begins_early(r: GroupRecording, rng: random.Random) -> str:
    """A consumer is assigned partitions while another one owns one of them."""
    topic_partition, before, after = one_of(rng, [*_turns(r)])
    row = _callback(r, "assigned", after.consumer, after.start, topic_partition)
    row["at"] = rng.randrange(max(before.start + 1, before.end - 10**9), before.end)
    return "TWO_OWNERS"


def _callback(r: GroupRecording, event: str, consumer: str, at: int, topic_partition: TopicPartition) -> Row:
    found = [
        row for row in r.files["membership"]
        if row["event"] == event and row["consumer"] == consumer and row["at"] == at
        and "-".join(map(str, topic_partition)) in row["partitions"]
    ]  # fmt: skip
    if not found:
        raise Unfit
    return found[0]


def a_callback_names_another_partition(r: GroupRecording, rng: random.Random) -> str:
    """A consumer is assigned a partition that the coordinator gave to somebody else."""
    rows = [row for row in r.files["membership"] if row["event"] == "assigned" and row["partitions"]]
    names = {name for row in rows for name in row["partitions"]}
    row = rng.choice(rows)
    # what it had in an earlier generation, and may have on, does not count
    mine = {n for other in rows if other["member_id"] == row["member_id"] for n in other["partitions"]}
    row["partitions"] = [*row["partitions"][1:], one_of(rng, sorted(names - mine))]
    return "TOLD_DIFFERS"


def an_assignment_is_swapped(r: GroupRecording, rng: random.Random) -> str:
    """The coordinator gave a partition to a member that must not have it."""
    seed = rng.random()

    def swapped(it: SourceTables) -> SourceTables:
        rows = it.tables["membership"].to_pylist()
        decided = [row for row in rows if row["event"] == "owner"]
        first = [row for row in decided if row["generation"] == decided[0]["generation"]]
        row = first[int(seed * len(first))]
        other = one_of(random.Random(seed), [d for d in decided if d["consumer"] != row["consumer"]])
        row["consumer"] = other["consumer"]
        return replace(
            it, tables=it.tables | {"membership": pa.Table.from_pylist(rows, it.tables["membership"].schema)}
        )

    r.changed = swapped
    return "OWNER_DIFFERS"


FAULTS: tuple[Callable[[GroupRecording, random.Random], str], ...] = (
    a_record_moves, an_unknown_member_polls, a_record_is_skipped, two_records_change_places,
    a_record_comes_before_its_owner,
    a_record_is_redelivered_after_its_commit, an_outstanding_record_is_redelivered, a_commit_is_anothers,
    a_refused_commit_is_taken, a_commit_goes_back, a_commit_runs_ahead, an_interval_ends_late,
    an_interval_begins_early, a_callback_names_another_partition, an_assignment_is_swapped,
)  # fmt: skip


class Trial(NamedTuple):
    """What a fault must be found as, and what was found that the untouched recording does not have."""

    recording: str
    expected: str
    found: dict[str, int]
    rejected: int

    @property
    def caught(self) -> bool:
        return self.found.get(self.expected, 0) > 0


def trial(fault: Callable[[GroupRecording, random.Random], str], folders: list[Path], seed: int, folder: Path) -> Trial:
    """Inject a fault into one of the recordings, as the seed says; audit it. ``folder`` is written to."""
    rng = random.Random(f"{fault.__name__} {seed}")
    for _ in range(200):
        source = rng.choice(folders)
        changed = _loaded(source)
        try:
            expected = fault(changed, rng)
            it = changed.ingested(folder)
        except Unfit:
            continue
        found = audit_ingested(it)
        before = _untouched(source).failing
        more = {code: count - before.get(code, 0) for code, count in found.failing.items()}
        return Trial(source.name, expected, {c: n for c, n in more.items() if n > 0}, found.rejected)
    raise AssertionError(f"{fault.__name__}: no recording has a place for it")


def _loaded(folder: Path) -> GroupRecording:
    it = _kept(folder)
    return GroupRecording(it.name, it.scenario, {name: [dict(row) for row in rows] for name, rows in it.files.items()})


@cache
def _kept(folder: Path) -> GroupRecording:
    return GroupRecording.load(folder)


@cache
def _untouched(folder: Path) -> Audited:
    return audited(folder)
