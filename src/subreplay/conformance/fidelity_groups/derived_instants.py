"""Derive the times of a recorded Kafka group's rebalances from earlier recorded events.

The inputs are the state when a rebalance began: the members, their last heartbeats, the trigger, the joins, and the
batches on which applications worked. Derived are the times at which each member is notified, rejoins and has its
partitions, and the time of the new generation. Under the consumer protocol they are the times at which each member is
notified of a target, gives up partitions, and gets free ones.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from subreplay.adapters.kafka_recording.kafka_recording_adapter import KafkaRecording
from subreplay.adapters.kafka_recording.recording_rows import GroupRequest, PlannedApplication
from subreplay.conformance.fidelity_groups.planned_group import MS, SYNC_TIME, get_group_setting

InstantKind = Literal["told", "joined", "complete", "assigned", "revoked"]
MAX_SIMULTANEOUS_GAP = 5 * MS
"""Events within this time are one: a member that joins so soon after the start of a rebalance triggered it."""


class DerivedInstant(NamedTuple):
    """An instant of a rebalance (ns): derived and recorded. ``consumer`` is empty for instants of the whole group."""

    generation: int
    consumer: str
    what: InstantKind
    derived: int
    recorded: int


@dataclass(frozen=True)
class ApplicationBatch:
    """An application's work on the records of one poll; it ends when its commit is answered."""

    start: int
    end: int


def derive_instants(recording: KafkaRecording) -> list[DerivedInstant]:
    """Derive all instants that can be derived."""
    batches = find_batches(recording)
    protocol = (
        _derive_classic(recording, batches)
        if recording.scenario.protocol == "classic"
        else _derive_consumer_protocol(recording, batches)
    )
    return list(protocol)


def find_batches(recording: KafkaRecording) -> dict[str, list[ApplicationBatch]]:
    """Return the batches of each consumer, in order."""
    work: dict[str, dict[int, int]] = defaultdict(dict)
    for poll in recording.polls:
        if poll.processed_at is not None:
            ends = work[poll.consumer]
            ends[poll.polled_at] = max(ends.get(poll.polled_at, 0), poll.processed_at)
    commits: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for commit in recording.commits:
        if commit.kind == "sync" and commit.at is not None:
            commits[commit.consumer].append((commit.at, commit.done_at))
    batches_by_consumer: dict[str, list[ApplicationBatch]] = {}
    for consumer, ends in work.items():
        commit_times = sorted(set(commits[consumer]))
        rows = []
        for start, end in sorted(ends.items()):
            index = bisect_left(commit_times, (end, 0))
            if index < len(commit_times) and commit_times[index][0] < end + MAX_SIMULTANEOUS_GAP:
                end = commit_times[index][1]
            rows.append(ApplicationBatch(start, end))
        batches_by_consumer[consumer] = rows
    return batches_by_consumer


def _find_free_time(batches: Sequence[ApplicationBatch], at: int) -> int:
    """Return when an application polls next after a time: at the end of its batch, or at once if it is idle."""
    index = bisect_right(batches, at, key=lambda batch: batch.start) - 1
    return max(batches[index].end, at) if index >= 0 else at


def _find_next_heartbeat(heartbeats: Sequence[int], interval: int, at: int) -> int | None:
    """Return the next heartbeat after a time, computed from the last one before it."""
    index = bisect_right(heartbeats, at) - 1
    if index < 0:
        return None
    return heartbeats[index] + ((at - heartbeats[index]) // interval + 1) * interval


# the classic protocol


def _derive_classic(
    recording: KafkaRecording, batches: Mapping[str, Sequence[ApplicationBatch]]
) -> Iterator[DerivedInstant]:
    scenario = recording.scenario
    applications = {one.name: one for one in scenario.consumers}
    heartbeats = _find_heartbeats(recording, ("heartbeat", "join_group"))
    joins: dict[int, dict[str, GroupRequest]] = defaultdict(dict)
    for row in recording.requests:
        if row.api == "join_group" and row.error == 0:
            joins[int(row.response["generationId"])].setdefault(row.consumer, row)
    refused = {
        (row.consumer, int(row.request["generationId"])): row.answered_at
        for row in recording.requests
        if row.api == "sync_group" and row.error == 27
    }
    generations_by_number = {
        row["generation"]: row for row in recording.groups.generations.to_pylist() if row["prepared_at"] is not None
    }
    delay = int(scenario.broker.get("group.initial.rebalance.delay.ms", 3_000)) * MS
    cooperative = scenario.assignor == "cooperative-sticky"
    members: set[str] = set()
    for number in sorted(joins):
        complete = min(row.answered_at for row in joins[number].values())
        joined_requests = {name: row for name, row in joins[number].items() if row.received_at <= complete}
        if not members:
            derived = _find_first_completion(sorted(row.received_at for row in joined_requests.values()), delay)
        else:
            began = (
                int(generations_by_number[number]["prepared_at"].timestamp() * 1e6) * 1_000
                if number in generations_by_number
                else complete
            )
            derived = 0
            for name, row in joined_requests.items():
                if name not in members or row.received_at <= began + MAX_SIMULTANEOUS_GAP:  # it came, or began it
                    derived = max(derived, row.received_at)
                    continue
                notified_at = refused.get((name, number - 1))  # its SyncGroup found the next rebalance
                if notified_at is None:
                    notified_at = _find_next_heartbeat(
                        heartbeats[name], _get_heartbeat_interval(applications[name]), began
                    )
                if notified_at is None:
                    derived = max(derived, row.received_at)
                    continue
                answered = [
                    r.received_at
                    for r in recording.requests
                    if r.consumer == name and r.api == "heartbeat" and r.error == 27
                ]
                if (answered_at := next((at for at in answered if began <= at <= row.received_at), None)) is not None:
                    yield DerivedInstant(number, name, "told", notified_at, answered_at)
                joined = _find_free_time(batches.get(name, ()), notified_at)
                yield DerivedInstant(number, name, "joined", joined, row.received_at)
                derived = max(derived, joined)
        yield DerivedInstant(number, "", "complete", derived, complete)
        yield from _derive_assignments(recording, number, joined_requests, derived, batches, cooperative)
        members = set(joined_requests)


def _get_heartbeat_interval(application: PlannedApplication) -> int:
    return int(application.props.get("heartbeat.interval.ms", 3_000)) * MS


def _find_heartbeats(recording: KafkaRecording, apis: Iterable[str]) -> dict[str, list[int]]:
    """Return the start times of heartbeat intervals: heartbeats, and answers to joins."""
    batches_by_consumer: dict[str, list[int]] = defaultdict(list)
    for row in recording.requests:
        if row.api in apis:
            batches_by_consumer[row.consumer].append(row.answered_at if row.api == "join_group" else row.received_at)
    return defaultdict(list, {name: sorted(times) for name, times in batches_by_consumer.items()})


def _find_first_completion(joins: Sequence[int], delay: int) -> int:
    """Return when the first generation is complete: after a delay without a join."""
    end = joins[0] + delay
    while any(end - delay < at <= end for at in joins[1:]):
        end += delay
    return end


def _derive_assignments(
    recording: KafkaRecording,
    number: int,
    joined_requests: Mapping[str, GroupRequest],
    complete: int,
    batches: Mapping[str, Sequence[ApplicationBatch]],
    cooperative: bool,
) -> Iterator[DerivedInstant]:
    leader = next(
        (name for name, row in joined_requests.items() if row.response["leader"] == row.response["memberId"]), None
    )
    assigned_at = complete + SYNC_TIME
    if cooperative and leader is not None:
        assigned_at = _find_free_time(batches.get(leader, ()), complete) + SYNC_TIME
    for name in joined_requests:
        callback_times = [
            row.at
            for row in recording.client_events
            if row.consumer == name and row.event == "assigned" and row.generation == number
        ]
        if callback_times:
            due = assigned_at
            if cooperative:
                due = max(
                    assigned_at,
                    _find_free_time(batches.get(name, ()), _find_free_time(batches.get(name, ()), complete)),
                )
                due = _find_free_time(batches.get(name, ()), due)
            yield DerivedInstant(number, name, "assigned", due, callback_times[0])


# the consumer protocol


def _derive_consumer_protocol(
    recording: KafkaRecording, batches: Mapping[str, Sequence[ApplicationBatch]]
) -> Iterator[DerivedInstant]:
    interval = get_group_setting(recording.scenario, "group.consumer.heartbeat.interval.ms", 5_000)
    heartbeats = _find_heartbeats(recording, ("consumer_group_heartbeat",))
    targets = [
        (int(row["at"].timestamp() * 1e6) * 1_000, row["generation"])
        for row in recording.groups.generations.to_pylist()
        if row["at"] is not None
    ]
    requests = {  # the heartbeat that had the target computed brings it, too; the log's times are whole milliseconds
        (row.consumer, ms): row.received_at
        for row in recording.requests
        if row.api == "consumer_group_heartbeat"
        for ms in range(row.received_at // MS, row.answered_at // MS + 1)
    }
    freed: dict[tuple[str, int], int] = {}
    closing: set[str] = set()
    for row in sorted(recording.client_events, key=lambda row: row.at):
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
            acknowledged = [at for at in heartbeats[name] if at >= row.at]
            for topic_partition in row.partitions:
                freed[topic_partition] = acknowledged[0] if acknowledged else row.at
        if row.event == "lost" or (row.event == "revoked" and name in closing):
            continue
        notified_at = requests.get((name, since // MS)) or _find_heartbeat_of_response(
            heartbeats[name], interval, since, row.at
        )
        if notified_at is not None:
            yield DerivedInstant(number, name, row.event, _find_free_time(batches.get(name, ()), notified_at), row.at)


def _find_heartbeat_of_response(heartbeats: Sequence[int], interval: int, since: int, at: int) -> int | None:
    """Return the heartbeat whose response notifies a member: an acknowledgement sent meanwhile, or the next one."""
    due = _find_next_heartbeat(heartbeats, interval, since)
    own = [beat for beat in heartbeats if since <= beat < at and (due is None or beat < due - interval // 10)]
    return own[0] if own else due


def find_median_error(batches_by_consumer: Iterable[DerivedInstant], what: InstantKind, quantile: float = 0.5) -> float:
    """Return the median (or another quantile) of the error of derived instants in ms, NaN if there are none."""
    errors = [abs(one.derived - one.recorded) for one in batches_by_consumer if one.what == what]
    return float(np.quantile(errors, quantile)) / 1e6 if errors else float("nan")
