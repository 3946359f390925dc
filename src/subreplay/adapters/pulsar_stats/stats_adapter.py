"""Adapter ``pulsar-read_stats``: the members of a subscription from polled topic statistics of a Pulsar broker.

Joins are exact (``connectedSince``), and a leave is known to the interval between two polls. A consumer that connected
and left between two polls is missing. Under Key_Shared, polls also contain the broker's own hash ranges.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple, cast, get_args

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.base import FileCount, Options, RejectedRow, describe_first, list_subscriptions
from subreplay.adapters.canonical import split_topic
from subreplay.adapters.format_detection import select_files
from subreplay.adapters.pulsar_policies import InferredSelector, choose_selector, infer_policy, note_missing_priorities
from subreplay.adapters.pulsar_stats.hash_range_selectors import infer_selectors
from subreplay.adapters.pulsar_stats.limits_and_silences import describe_silent_consumers, infer_limits
from subreplay.adapters.pulsar_stats.poll_collection import PollCollection, PollCounts, read_answers
from subreplay.adapters.pulsar_stats.polled_membership import (
    POLLED,
    RANGES_SEEN,
    SESSIONS,
    PolledSession,
    RangePeriod,
    build_membership,
    build_polled_rows,
    build_range_table,
    build_session_table,
    build_sessions,
)
from subreplay.adapters.pulsar_stats.stats_answers import DamagedFile, PollReader, PollTimePlace, find_missing_fields
from subreplay.adapters.streams import StreamResult
from subreplay.adapters.time_parsing import parse_time_in_name
from subreplay.errors import ConfigError, InputError

__all__ = [
    "LIMITS_OF_POLLS", "POLLED", "RANGES_SEEN", "SESSIONS", "PollCounts", "PollTimePlace", "PolledStats", "count_files",
    "read_stats",
]  # fmt: skip

NAME: Final = "pulsar-stats"
PLACEHOLDER_TOPIC: Final = "persistent://TENANT/NAMESPACE/TOPIC"
"""The placeholder topic of answers that do not contain one."""
_SHOWN: Final = 10  # consumers that a note lists, and hashes of one consumer
LIMITS_OF_POLLS: Final = (
    "membership comes from polled statistics: a leave is known only to the interval between two polls, a crash looks "
    "like a leave, and a consumer that connected and left between two polls is missing"
)
"""The limits of polled membership, for the rules that judge deliveries by it."""
NOTES: Final = (
    LIMITS_OF_POLLS,
    "statistics contain no messages and no deliveries. Name them as traffic.messages, such as {from: pulsar-table, "
    "path: ...}, and traffic.deliveries, such as {from: otlp-spans, path: ...}",
)


@dataclass(frozen=True)
class PolledStats:
    """The canonical ``membership`` of polls, and facts that it has no columns for.

    ``sessions`` (``SESSIONS``), ``ranges`` (``RANGES_SEEN``) and ``polled`` (``POLLED``) are tables. ``longest``
    is the longest time (ns) between two polls of one topic partition, which bounds the precision of a leave. ``ahead``
    (ns) is the largest time by which a consumer connected after the poll that shows it. The clocks of the broker and
    the poller differ at least by that. ``selectors`` are inferred from the ranges. ``found`` are the sessions,
    for notes and limits.
    """

    membership: pa.Table
    sessions: pa.Table
    ranges: pa.Table
    polled: pa.Table
    rejected: tuple[RejectedRow, ...]
    counts: Mapping[str, PollCounts]
    longest: int
    ahead: int
    selectors: tuple[InferredSelector, ...]
    found: tuple[PolledSession, ...]


def read_stats(
    path: Path,
    *,
    files: Collection[Path] | None = None,
    topic: str | None = None,
    times: PollTimePlace = "field",
    field: str | None = None,
    topics: Collection[str] | None = None,
    subscriptions: Collection[str] | None = None,
    by_address: bool = False,
) -> PolledStats:
    """Read polls from a file of JSON lines or printed answers (plain or gzip), or from all matching files of a folder.

    ``files`` are the files to read if they are already selected. ``topic`` is the topic of answers that contain none.
    ``times`` says where the time of a poll is: in a ``field`` (by default the first of ``at_ns``, ``at``, ``time``, …),
    in the file's ``name``, or in its modification time (``modified``). ``topics`` (without partitions) and
    ``subscriptions`` select. ``by_address`` distinguishes consumers with equal names by the address of their
    connection, which is right only where deliveries do so too.

    Raises ``InputError`` where there is no file or no valid poll, and ``EnvironmentFailed`` where a file cannot be
    read.
    """
    paths = select_files(path, NAME).files if files is None else files
    root = path if path.is_dir() else path.parent
    reader, collected = PollReader(topic, times, field), PollCollection(topics, subscriptions)
    for each in paths:
        name = str(each.relative_to(root))
        collected.add_file(name)
        for answer in read_answers(each, name, reader):
            collected.add(answer)
    check_any_valid(path, collected.counts, collected.rejected)
    found: list[PolledSession] = []
    periods: list[RangePeriod] = []
    longest = 0
    rows: list[dict[str, Any]] = []
    inferred: list[InferredSelector] = []
    for _, polls in sorted(collected.polls.items()):
        in_order = [polls[at][1] for at in sorted(polls)]
        longest = max([longest, *(after.at - before.at for before, after in pairwise(in_order))])
        of_partition, ranges = build_sessions(in_order)
        found += of_partition
        periods += ranges
        inferred += infer_selectors(ranges)
        rows += build_polled_rows(in_order)
    joined = build_membership(found, by_address=by_address)
    return PolledStats(
        joined, build_session_table(found), build_range_table(periods), pa.Table.from_pylist(rows, schema=POLLED),
        tuple(collected.rejected), collected.counts, longest,
        max([0, *(session.seen.since - session.first for session in found)]), tuple(inferred), tuple(found),
    )  # fmt: skip


def check_any_valid(path: Path, counts: Mapping[str, PollCounts], rejected: Iterable[RejectedRow]) -> None:
    """Check that any poll is valid. Raises ``InputError`` with the first rejected row."""
    if not any(count.valid for count in counts.values()):
        first = describe_first(path, rejected)
        raise InputError(
            f"{path}: none of the polls in {len(counts):,} files is a valid answer of topic statistics.{first}"
        )


def assume_options(path: Path) -> Options:
    """Assume the options of a first look from the first answer.

    If it has no time, take the time in the file name, or else the modification time. If it has no topic, assume a
    placeholder.
    """
    first = select_files(path, NAME).files[0]
    try:
        no_topic, no_time = find_missing_fields(first)
    except (DamagedFile, OSError):
        return Options()
    times = None if not no_time else "name" if parse_time_in_name(first.name) is not None else "modified"
    return Options(topic=PLACEHOLDER_TOPIC if no_topic else None, times=times)


class PollSelection(NamedTuple):
    """The polls that the options select, and how to read them."""

    reader: PollReader
    topics: list[str] | None
    subscriptions: list[str] | None

    @classmethod
    def from_options(cls, options: Options) -> PollSelection:
        """Select polls by the options. Raises ``ConfigError`` for an unknown place of the poll time."""
        if options.times not in (None, *get_args(PollTimePlace)):
            raise ConfigError(f"option 'times' is {options.times!r}. Write one of {', '.join(get_args(PollTimePlace))}")
        topics = None if options.topic is None else [split_topic(options.topic)[0]]
        subscriptions = None if options.subscription is None else [options.subscription]
        return cls(PollReader(options.topic, cast(PollTimePlace, options.times or "field")), topics, subscriptions)


def build_result(
    path: Path, options: Options, membership: pa.Table, counts: Mapping[str, PollCounts],
    shown: Iterable[InferredSelector], found: Sequence[PolledSession], notes: Iterable[str],
) -> StreamResult:  # fmt: skip
    """Build the result. Raises ``InputError`` where the polls show no consumer."""
    pairs = list_subscriptions({"membership": membership})
    if not pairs:
        raise InputError(
            f"{path}: the polls contain no consumer{_describe_selection(options)}. Check --topic and --subscription"
        )
    run, run_notes = _build_run(membership, *pairs[0], choose_selector(shown, *pairs[0]))
    limits, limit_notes = infer_limits(found, *pairs[0])
    run |= {"liveness": limits} if limits else {}
    every = (
        *NOTES,
        *run_notes,
        *limit_notes,
        *describe_blocking_consumers(found),
        *describe_silent_consumers(found),
        *notes,
    )
    return StreamResult({"membership": membership}, build_file_counts(counts), run, tuple(pairs[1:]), every)


def count_files(found: PolledStats) -> tuple[FileCount, ...]:
    """Count the polls of each file and its lines outside of answers, as rows."""
    return build_file_counts(found.counts)


def build_file_counts(counts: Mapping[str, PollCounts]) -> tuple[FileCount, ...]:
    """Convert the counts of polls and lines of each file to row counts."""
    return tuple(
        FileCount(name, of.polls + of.skipped, of.quarantined, of.repeated + of.skipped) for name, of in counts.items()
    )


def _describe_selection(options: Options) -> str:
    requested = [
        f"{name} {getattr(options, name)!r}" for name in ("topic", "subscription") if name in options.present_names
    ]
    return f" of {' and '.join(requested)}" if requested else ""


def describe_blocking_consumers(found: Iterable[PolledSession]) -> tuple[str, ...]:
    """Describe the consumers that block hashes in their last such poll, those with the most blocked attempts first."""
    by_attempts = []
    for session in found:
        at, hashes = session.blocking or (0, ())
        if not hashes:
            continue
        where = f"{session.topic}{'' if session.partition < 0 else f', partition {session.partition}'}"
        attempts, unacked = (sum(each[i] for each in hashes) for i in (2, 1))
        order = sorted(hashes, key=lambda each: (-each[2], -each[1], each[0]))
        shown = [
            f"{slot} ({unacked:,} unacknowledged, {attempts:,} blocked attempts)" for slot, unacked, attempts in order
        ]
        rest = [f"{len(order) - _SHOWN:,} more"] if len(order) > _SHOWN else []
        by_attempts.append((-attempts, (
            f"subscription {session.subscription} of {where}: consumer {session.seen.name} ({session.seen.address}) "
            f"blocked {len(hashes):,} hashes for others with {unacked:,} unacknowledged messages at "
            f"{datetime.fromtimestamp(at // 1_000_000_000, timezone.utc):%Y-%m-%d %H:%M:%S} UTC: "
            f"{'; '.join(shown[:_SHOWN] + rest)}"
        )))  # fmt: skip
    sentences = [text for _, text in sorted(by_attempts)]
    more = len(sentences) - _SHOWN
    return (*sentences[:_SHOWN], *([f"{more:,} more consumers blocked hashes"] if more > 0 else []))


def _build_run(
    membership: pa.Table, subscription: str, topic: str, selector: InferredSelector | None
) -> tuple[dict[str, Any], list[str]]:
    """Build a run to start from, and notes about unknown settings."""
    same = pc.and_(pc.equal(membership["subscription"], subscription), pc.equal(membership["topic"], topic))
    members = membership.filter(same)
    policy, notes = infer_policy(members, subscription, selector)
    traffic, priority_notes = note_missing_priorities(membership)
    return {"subscription": {"name": subscription, "topic": topic, **policy}} | traffic, [*notes, *priority_notes]
