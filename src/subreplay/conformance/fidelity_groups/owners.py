"""Who owned which partition when: by the callbacks of a recorded group's consumers, and by its prediction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np

from subreplay.adapters.kafka_recording.rows import Happening
from subreplay.semantics.policies.kafka.assignor import Partitions, TopicPartition
from subreplay.simulation.kafka.group_simulation import GroupReplay


class Interval(NamedTuple):
    """From ``start`` up to ``end`` (ns) a consumer fetched a partition."""

    start: int
    end: int
    consumer: str


Intervals: TypeAlias = Mapping[TopicPartition, Sequence[Interval]]


def by_callbacks(happenings: Iterable[Happening], eager: bool, end: int) -> Intervals:
    """What consumers were told. An *eager* assignor's ``assigned`` lists all partitions of a consumer, others' only the
    new ones. A killed process has none any more; what nobody gave up lasts to ``end``."""
    open_: dict[tuple[str, TopicPartition], int] = {}
    found: dict[TopicPartition, list[Interval]] = defaultdict(list)

    def close(consumer: str, topic_partitions: Iterable[TopicPartition], at: int) -> None:
        for topic_partition in topic_partitions:
            if (start := open_.pop((consumer, topic_partition), None)) is not None:
                found[topic_partition].append(Interval(start, at, consumer))

    for row in sorted(happenings, key=lambda row: row.at):
        consumer = row.consumer or ""
        mine = [one for name, one in open_ if name == consumer]
        topic_partitions = [TopicPartition(*one) for one in row.partitions or ()]
        if row.event == "assigned":
            if eager:
                close(consumer, set(mine) - set(topic_partitions), row.at)
            for topic_partition in topic_partitions:
                open_.setdefault((consumer, topic_partition), row.at)
        elif row.event in ("revoked", "lost"):
            close(consumer, topic_partitions, row.at)
        elif row.event in ("killed", "close_end"):
            close(consumer, mine, row.at)
    for consumer, topic_partition in list(open_):
        close(consumer, [topic_partition], end)
    return {topic_partition: sorted(intervals) for topic_partition, intervals in found.items()}


def by_prediction(replay: GroupReplay, partitions: Partitions, end: int) -> Intervals:
    """What members fetched, and what an evicted one believed to have until it polled, or the next one had it; ask when
    the deliveries are drawn."""
    names = [process.event.consumer for process in replay.members.processes]
    open_: dict[int, tuple[int, int]] = {}  # partition -> member, since
    found: dict[int, list[Interval]] = defaultdict(list)
    for at, which, owners in replay.fetchers():
        for number, owner in zip(which.tolist(), owners.tolist(), strict=True):
            before = open_.pop(number, None)
            if before is not None and before[1] < at:
                found[number].append(Interval(before[1], at, names[before[0]]))
            if owner >= 0:
                open_[number] = owner, at
    for number, (owner, since) in open_.items():
        found[number].append(Interval(since, end, names[owner]))
    for start, stop, owner, which in replay.believed():
        for number in which.tolist():
            after = min((one.start for one in found[number] if one.start >= start), default=end)
            found[number].append(Interval(start, min(stop, after, end), names[owner]))
            found[number].sort()
    numbers = sorted(found)
    topic_partitions = dict(zip(numbers, partitions.list_names(np.array(numbers, np.int64)), strict=True))
    return {topic_partitions[number]: _joined(found[number]) for number in numbers}


def _joined(intervals: Sequence[Interval]) -> list[Interval]:
    """Intervals of which none begins where the same consumer's ends."""
    joined: list[Interval] = []
    for one in intervals:
        if joined and joined[-1].consumer == one.consumer and joined[-1].end == one.start:
            joined[-1] = joined[-1]._replace(end=one.end)
        else:
            joined.append(one)
    return joined


def agreeing(recorded: Intervals, predicted: Intervals, start: int, end: int) -> tuple[int, int]:
    """Partition-nanoseconds between two times in which the predicted owner is one by the callbacks, or nobody is on
    both sides; and all of them."""
    topic_partitions = {*recorded, *predicted}
    right = 0
    for which in topic_partitions:
        times = sorted(
            {start, end}
            | {t for side in (recorded, predicted) for one in side.get(which, ()) for t in one[:2] if start < t < end}
        )
        for begin, stop in pairwise(times):
            here = {one.consumer for one in recorded.get(which, ()) if one.start <= begin < one.end}
            there = {one.consumer for one in predicted.get(which, ()) if one.start <= begin < one.end}
            if there <= here and bool(here) == bool(there):
                right += stop - begin
    return right, len(topic_partitions) * (end - start)


def pauses(intervals: Intervals) -> list[int]:
    """How long (ns) partitions were nobody's between two intervals."""
    return [two.start - one.end for mine in intervals.values() for one, two in pairwise(mine) if two.start > one.end]


def find_owners(intervals: Intervals, topic_partition: TopicPartition, at: int) -> str | None:
    """Who fetches a partition at a time."""
    return next((one.consumer for one in intervals.get(topic_partition, ()) if one.start <= at < one.end), None)
