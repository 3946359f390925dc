"""The owner of each partition over time: by the callbacks of a recorded group's consumers, and by its prediction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np

from subreplay.adapters.kafka_recording.recording_rows import ClientEvent
from subreplay.semantics.policies.kafka.assignor import Partitions, TopicPartition
from subreplay.simulation.kafka.group_simulation import GroupReplay


class FetchInterval(NamedTuple):
    """From ``start`` up to ``end`` (ns) a consumer fetched a partition."""

    start: int
    end: int
    consumer: str


FetchIntervals: TypeAlias = Mapping[TopicPartition, Sequence[FetchInterval]]


def build_recorded_intervals(events: Iterable[ClientEvent], eager: bool, end: int) -> FetchIntervals:
    """Build the intervals from callbacks. An *eager* assignor's ``assigned`` lists all partitions, others' only the new
    ones.

    A killed process loses its partitions. An interval without an end lasts to ``end``.
    """
    open_intervals: dict[tuple[str, TopicPartition], int] = {}
    intervals_by_partition: dict[TopicPartition, list[FetchInterval]] = defaultdict(list)

    def close(consumer: str, topic_partitions: Iterable[TopicPartition], at: int) -> None:
        for topic_partition in topic_partitions:
            if (start := open_intervals.pop((consumer, topic_partition), None)) is not None:
                intervals_by_partition[topic_partition].append(FetchInterval(start, at, consumer))

    for row in sorted(events, key=lambda row: row.at):
        consumer = row.consumer or ""
        own_partitions = [one for name, one in open_intervals if name == consumer]
        topic_partitions = [TopicPartition(*one) for one in row.partitions or ()]
        if row.event == "assigned":
            if eager:
                close(consumer, set(own_partitions) - set(topic_partitions), row.at)
            for topic_partition in topic_partitions:
                open_intervals.setdefault((consumer, topic_partition), row.at)
        elif row.event in ("revoked", "lost"):
            close(consumer, topic_partitions, row.at)
        elif row.event in ("killed", "close_end"):
            close(consumer, own_partitions, row.at)
    for consumer, topic_partition in list(open_intervals):
        close(consumer, [topic_partition], end)
    return {topic_partition: sorted(intervals) for topic_partition, intervals in intervals_by_partition.items()}


def build_predicted_intervals(replay: GroupReplay, partitions: Partitions, end: int) -> FetchIntervals:
    """Build the intervals of fetching members, and of evicted ones until they polled or the next owner started.

    The deliveries must be drawn before.
    """
    names = [process.event.consumer for process in replay.members.processes]
    open_intervals: dict[int, tuple[int, int]] = {}  # partition -> member, since
    intervals_by_partition: dict[int, list[FetchInterval]] = defaultdict(list)
    for at, which, owners in replay.iterate_fetchers():
        for number, owner in zip(which.tolist(), owners.tolist(), strict=True):
            before = open_intervals.pop(number, None)
            if before is not None and before[1] < at:
                intervals_by_partition[number].append(FetchInterval(before[1], at, names[before[0]]))
            if owner >= 0:
                open_intervals[number] = owner, at
    for number, (owner, since) in open_intervals.items():
        intervals_by_partition[number].append(FetchInterval(since, end, names[owner]))
    for start, stop, owner, which in replay.iterate_stale_assignments():
        for number in which.tolist():
            after = min((one.start for one in intervals_by_partition[number] if one.start >= start), default=end)
            intervals_by_partition[number].append(FetchInterval(start, min(stop, after, end), names[owner]))
            intervals_by_partition[number].sort()
    numbers = sorted(intervals_by_partition)
    topic_partitions = dict(zip(numbers, partitions.list_names(np.array(numbers, np.int64)), strict=True))
    return {topic_partitions[number]: _merge_adjacent(intervals_by_partition[number]) for number in numbers}


def _merge_adjacent(intervals: Sequence[FetchInterval]) -> list[FetchInterval]:
    """Merge intervals of a consumer in which one begins where the other ends."""
    joined: list[FetchInterval] = []
    for one in intervals:
        if joined and joined[-1].consumer == one.consumer and joined[-1].end == one.start:
            joined[-1] = joined[-1]._replace(end=one.end)
        else:
            joined.append(one)
    return joined


def measure_agreement_time(
    recorded: FetchIntervals, predicted: FetchIntervals, start: int, end: int
) -> tuple[int, int]:
    """Return the partition-nanoseconds in which the predicted owner is a recorded one, or both have none; and the
    total."""
    topic_partitions = {*recorded, *predicted}
    right = 0
    for which in topic_partitions:
        times = sorted(
            {start, end}
            | {t for side in (recorded, predicted) for one in side.get(which, ()) for t in one[:2] if start < t < end}
        )
        for begin, stop in pairwise(times):
            recorded_owners = {one.consumer for one in recorded.get(which, ()) if one.start <= begin < one.end}
            predicted_owners = {one.consumer for one in predicted.get(which, ()) if one.start <= begin < one.end}
            if predicted_owners <= recorded_owners and bool(recorded_owners) == bool(predicted_owners):
                right += stop - begin
    return right, len(topic_partitions) * (end - start)


def measure_possible_owners(
    recorded: FetchIntervals, runs: Sequence[FetchIntervals], start: int, end: int
) -> tuple[float, float]:
    """Return the percentage of partition-seconds in which the recorded owner is that of at least one run, and the mean
    number of different owners in the runs (nobody counts as an owner)."""
    right = different = 0
    topic_partitions = {*recorded, *(which for run in runs for which in run)}
    for which in topic_partitions:
        sides = [side.get(which, ()) for side in (recorded, *runs)]
        times = sorted({start, end} | {t for side in sides for one in side for t in one[:2] if start < t < end})
        for begin, stop in pairwise(times):
            real, *predicted = (
                frozenset(one.consumer for one in side if one.start <= begin < one.end) for side in sides
            )
            possible = {*predicted}
            right += (stop - begin) * any(owners <= real and bool(owners) == bool(real) for owners in possible)
            different += (stop - begin) * len(possible)
    whole = len(topic_partitions) * (end - start)
    return (100 * right / whole, different / whole) if whole else (100.0, 1.0)


def list_pauses(intervals: FetchIntervals) -> list[int]:
    """List how long (ns) partitions had no owner between two intervals."""
    return [
        two.start - one.end
        for own_partitions in intervals.values()
        for one, two in pairwise(own_partitions)
        if two.start > one.end
    ]


def find_owner(intervals: FetchIntervals, topic_partition: TopicPartition, at: int) -> str | None:
    """Return the consumer that fetches a partition at a time."""
    return next((one.consumer for one in intervals.get(topic_partition, ()) if one.start <= at < one.end), None)
