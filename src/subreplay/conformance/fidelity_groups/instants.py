"""The rebalances of a recorded Kafka group, each derived from what was recorded before it.

Given is what there was when the rebalance began: who was in the group, the last heartbeat of each member, what began
it, who joined when, and the batches on which applications worked. Derived is who hears of it when, when each rejoins,
when the generation is there, and when each member has its partitions. Under the consumer protocol it is when each
member hears of a target, gives up what it loses, and gets what is free.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from subreplay.adapters.kafka_recording.adapter import Recording
from subreplay.adapters.kafka_recording.rows import Application, Request
from subreplay.conformance.fidelity_groups.plan import MS, SYNCING

What = Literal["told", "joined", "complete", "assigned", "revoked"]
SAME = 5 * MS
"""What happens within this is one thing: who joins so soon after a rebalance began is who began it."""


class Derived(NamedTuple):
    """An instant of a rebalance (ns): derived and recorded. ``consumer`` is empty for what is of the whole group."""

    generation: int
    consumer: str
    what: What
    derived: int
    recorded: int


@dataclass(frozen=True)
class Batch:
    """An application's work on what one poll brought; it ends when its commit is answered."""

    start: int
    end: int


def derived_instants(it: Recording) -> list[Derived]:
    """Every instant that can be derived."""
    batches = batches_of(it)
    protocol = _classic(it, batches) if it.scenario.protocol == "classic" else _consumer(it, batches)
    return list(protocol)


def batches_of(it: Recording) -> dict[str, list[Batch]]:
    """The batches of each consumer, in order."""
    work: dict[str, dict[int, int]] = defaultdict(dict)
    for poll in it.polls:
        if poll.processed_at is not None:
            ends = work[poll.consumer]
            ends[poll.polled_at] = max(ends.get(poll.polled_at, 0), poll.processed_at)
    commits: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for commit in it.commits:
        if commit.kind == "sync" and commit.at is not None:
            commits[commit.consumer].append((commit.at, commit.done_at))
    found: dict[str, list[Batch]] = {}
    for consumer, ends in work.items():
        asked = sorted(set(commits[consumer]))
        rows = []
        for start, end in sorted(ends.items()):
            index = bisect_left(asked, (end, 0))
            if index < len(asked) and asked[index][0] < end + SAME:
                end = asked[index][1]
            rows.append(Batch(start, end))
        found[consumer] = rows
    return found


def _free_at(batches: Sequence[Batch], at: int) -> int:
    """When an application that is told something at a time polls next: when its batch ends, at once if it is idle."""
    index = bisect_right(batches, at, key=lambda batch: batch.start) - 1
    return max(batches[index].end, at) if index >= 0 else at


def _heartbeat(beats: Sequence[int], interval: int, at: int) -> int | None:
    """The next heartbeat after a time, by the last one before it."""
    index = bisect_right(beats, at) - 1
    if index < 0:
        return None
    return beats[index] + ((at - beats[index]) // interval + 1) * interval


# the classic protocol


def _classic(it: Recording, batches: Mapping[str, Sequence[Batch]]) -> Iterator[Derived]:
    scenario = it.scenario
    applications = {one.name: one for one in scenario.consumers}
    beats = _beats(it, ("heartbeat", "join_group"))
    joins: dict[int, dict[str, Request]] = defaultdict(dict)
    for row in it.requests:
        if row.api == "join_group" and row.error == 0:
            joins[int(row.response["generationId"])].setdefault(row.consumer, row)
    refused = {
        (row.consumer, int(row.request["generationId"])): row.answered_at
        for row in it.requests
        if row.api == "sync_group" and row.error == 27
    }
    told = {row["generation"]: row for row in it.groups.generations.to_pylist() if row["prepared_at"] is not None}
    delay = int(scenario.broker.get("group.initial.rebalance.delay.ms", 3_000)) * MS
    cooperative = scenario.assignor == "cooperative-sticky"
    members: set[str] = set()
    for number in sorted(joins):
        complete = min(row.answered_at for row in joins[number].values())
        mine = {name: row for name, row in joins[number].items() if row.received_at <= complete}
        if not members:
            derived = _initial(sorted(row.received_at for row in mine.values()), delay)
        else:
            began = int(told[number]["prepared_at"].timestamp() * 1e6) * 1_000 if number in told else complete
            derived = 0
            for name, row in mine.items():
                if name not in members or row.received_at <= began + SAME:  # it came, or began it
                    derived = max(derived, row.received_at)
                    continue
                heard = refused.get((name, number - 1))  # its SyncGroup found the next rebalance
                if heard is None:
                    heard = _heartbeat(beats[name], _interval(applications[name]), began)
                if heard is None:
                    derived = max(derived, row.received_at)
                    continue
                answered = [
                    r.received_at for r in it.requests if r.consumer == name and r.api == "heartbeat" and r.error == 27
                ]
                if (told_at := next((at for at in answered if began <= at <= row.received_at), None)) is not None:
                    yield Derived(number, name, "told", heard, told_at)
                joined = _free_at(batches.get(name, ()), heard)
                yield Derived(number, name, "joined", joined, row.received_at)
                derived = max(derived, joined)
        yield Derived(number, "", "complete", derived, complete)
        yield from _assigned(it, number, mine, derived, batches, cooperative)
        members = set(mine)


def _interval(application: Application) -> int:
    return int(application.props.get("heartbeat.interval.ms", 3_000)) * MS


def _beats(it: Recording, apis: Iterable[str]) -> dict[str, list[int]]:
    """From when each consumer's next heartbeat is counted: its heartbeats, and the answers to its joins."""
    found: dict[str, list[int]] = defaultdict(list)
    for row in it.requests:
        if row.api in apis:
            found[row.consumer].append(row.answered_at if row.api == "join_group" else row.received_at)
    return defaultdict(list, {name: sorted(times) for name, times in found.items()})


def _initial(joins: Sequence[int], delay: int) -> int:
    """When the first generation is complete: after a delay in which nobody came."""
    end = joins[0] + delay
    while any(end - delay < at <= end for at in joins[1:]):
        end += delay
    return end


def _assigned(
    it: Recording, number: int, mine: Mapping[str, Request], complete: int, batches: Mapping[str, Sequence[Batch]],
    cooperative: bool,
) -> Iterator[Derived]:  # fmt: skip
    leader = next((name for name, row in mine.items() if row.response["leader"] == row.response["memberId"]), None)
    given = complete + SYNCING
    if cooperative and leader is not None:
        given = _free_at(batches.get(leader, ()), complete) + SYNCING
    for name in mine:
        took = [
            row.at
            for row in it.happenings
            if row.consumer == name and row.event == "assigned" and row.generation == number
        ]
        if took:
            due = given
            if cooperative:
                due = max(given, _free_at(batches.get(name, ()), _free_at(batches.get(name, ()), complete)))
                due = _free_at(batches.get(name, ()), due)
            yield Derived(number, name, "assigned", due, took[0])


# the consumer protocol


def _consumer(it: Recording, batches: Mapping[str, Sequence[Batch]]) -> Iterator[Derived]:
    interval = int(it.scenario.broker.get("group.consumer.heartbeat.interval.ms", 5_000)) * MS
    beats = _beats(it, ("consumer_group_heartbeat",))
    targets = [
        (int(row["at"].timestamp() * 1e6) * 1_000, row["generation"])
        for row in it.groups.generations.to_pylist()
        if row["at"] is not None
    ]
    asking = {  # the heartbeat that had the target computed brings it, too; the log's times are whole milliseconds
        (row.consumer, ms): row.received_at
        for row in it.requests
        if row.api == "consumer_group_heartbeat"
        for ms in range(row.received_at // MS, row.answered_at // MS + 1)
    }
    freed: dict[tuple[str, int], int] = {}
    closing: set[str] = set()
    for row in sorted(it.happenings, key=lambda row: row.at):
        name = row.consumer or ""
        if row.event == "close_begin":
            closing.add(name)
        if row.event not in ("assigned", "revoked", "lost") or not row.partitions:
            continue
        decided, number = max((one for one in targets if one[0] <= row.at), default=(0, 0))
        since = decided
        if row.event == "assigned":
            since = max([decided, *(freed.get(one, 0) for one in row.partitions)])
        else:
            acknowledged = [at for at in beats[name] if at >= row.at]
            for topic_partition in row.partitions:
                freed[topic_partition] = acknowledged[0] if acknowledged else row.at
        if row.event == "lost" or (row.event == "revoked" and name in closing):
            continue
        heard = asking.get((name, since // MS)) or _heard(beats[name], interval, since, row.at)
        if heard is not None:
            yield Derived(number, name, row.event, _free_at(batches.get(name, ()), heard), row.at)


def _heard(beats: Sequence[int], interval: int, since: int, at: int) -> int | None:
    """The heartbeat that tells a member: an acknowledgement of its own that was sent meanwhile, or the next one."""
    due = _heartbeat(beats, interval, since)
    own = [beat for beat in beats if since <= beat < at and (due is None or beat < due - interval // 10)]
    return own[0] if own else due


def off(found: Iterable[Derived], what: What, quantile: float = 0.5) -> float:
    """How far (ms) derived instants are from the recorded ones; not a number if there are none."""
    errors = [abs(one.derived - one.recorded) for one in found if one.what == what]
    return float(np.quantile(errors, quantile)) / 1e6 if errors else float("nan")
