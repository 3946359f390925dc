"""Adapter ``pulsar-stats``: what polled topic statistics of a Pulsar broker tell of a subscription's members.

Joins are exact (``connectedSince``); a leave is known to the interval between two polls; a consumer that came and went
between two polls was never seen. Under Key_Shared they have the broker's own hash ranges, too.
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

from subreplay.adapters.base import FileCount, Options, Rejected, told_of
from subreplay.adapters.canonical import base_topic
from subreplay.adapters.detect import chosen
from subreplay.adapters.pulsar_policies import Selector, best_selector, policy_of, unranked
from subreplay.adapters.pulsar_stats.answers import Collected, PollCounts, answers
from subreplay.adapters.pulsar_stats.evidence import concluded_limits, silent
from subreplay.adapters.pulsar_stats.membership import (
    POLLED,
    RANGES_SEEN,
    SESSIONS,
    Held,
    Session,
    membership,
    polled_rows,
    range_rows,
    session_rows,
    sessions,
)
from subreplay.adapters.pulsar_stats.polls import Damaged, Reader, Times, lacks
from subreplay.adapters.pulsar_stats.selectors import selectors
from subreplay.adapters.streams import End
from subreplay.adapters.times import in_name
from subreplay.errors import ConfigError, InputError

__all__ = [
    "NOT_SEEN", "POLLED", "RANGES_SEEN", "SESSIONS", "PollCounts", "Stats", "Times", "counted", "stats",
]  # fmt: skip

NAME: Final = "pulsar-stats"
UNNAMED: Final = "persistent://TENANT/NAMESPACE/TOPIC"
"""The topic of answers that do not contain it, as long as nobody names it."""
_SHOWN: Final = 10  # consumers, and hashes of one
NOT_SEEN: Final = (
    "membership is from polled statistics: a leave is known to the interval between two polls only, whether it was a "
    "crash is not told, and a consumer that came and went between two polls was never seen"
)
"""What polled membership cannot prove; for whoever judges deliveries by it."""
NOTES: Final = (
    NOT_SEEN,
    "statistics have no messages and no deliveries: name them as traffic.messages, such as {from: pulsar-table, path: "
    "...}, and traffic.deliveries, such as {from: otlp-spans, path: ...}",
)


@dataclass(frozen=True)
class Stats:
    """Canonical ``membership``, and what it has no columns for: ``sessions`` (``SESSIONS``), ``ranges``
    (``RANGES_SEEN``) and ``polled`` (``POLLED``). ``longest`` is the longest time (ns) between two polls of one topic
    partition: what a leave is known to. ``ahead`` (ns) is by how much a consumer was connected after the poll that
    shows it: how far the clocks of the broker and of who polled differ at least. ``selectors`` are concluded from the
    ranges. ``found`` are the sessions, for ``blocking`` and ``evidence``."""

    membership: pa.Table
    sessions: pa.Table
    ranges: pa.Table
    polled: pa.Table
    rejected: tuple[Rejected, ...]
    counts: Mapping[str, PollCounts]
    longest: int
    ahead: int
    selectors: tuple[Selector, ...]
    found: tuple[Session, ...]


def stats(
    path: Path,
    *,
    files: Collection[Path] | None = None,
    topic: str | None = None,
    times: Times = "field",
    field: str | None = None,
    topics: Collection[str] | None = None,
    subscriptions: Collection[str] | None = None,
    by_address: bool = False,
) -> Stats:
    """Read polls from a file of JSON lines or of printed answers (plain or gzip), or from all files of a folder but
    those that look like something else. ``files`` are those to read, where they are chosen already.

    ``topic`` is that of answers that tell none. ``times`` says where the time of a poll is: in a ``field`` (by default
    the first of ``at_ns``, ``at``, ``time``, …), in the file's ``name``, or when the file was ``modified``. ``topics``
    (without partitions) and ``subscriptions`` select. ``by_address`` tells consumers of one name apart by the addresses
    of their connections, which is right only where deliveries do so, too.

    Raises ``InputError`` where there is no file or no poll that fits, ``EnvironmentFailed`` where a file cannot be
    read.
    """
    paths = chosen(path, NAME).mine if files is None else files
    root = path if path.is_dir() else path.parent
    reader, collected = Reader(topic, times, field), Collected(topics, subscriptions)
    for each in paths:
        name = str(each.relative_to(root))
        collected.begin(name)
        for answer in answers(each, name, reader):
            collected.take(answer)
    check_any(path, collected.counts, collected.rejected)
    found: list[Session] = []
    held: list[Held] = []
    longest = 0
    rows: list[dict[str, Any]] = []
    chosen_by: list[Selector] = []
    for _, polls in sorted(collected.polls.items()):
        story = [polls[at][1] for at in sorted(polls)]
        longest = max([longest, *(after.at - before.at for before, after in pairwise(story))])
        of_partition, ranges = sessions(story)
        found += of_partition
        held += ranges
        chosen_by += selectors(ranges)
        rows += polled_rows(story)
    joined = membership(found, by_address=by_address)
    return Stats(
        joined, session_rows(found), range_rows(held), pa.Table.from_pylist(rows, schema=POLLED),
        tuple(collected.rejected), collected.counts, longest,
        max([0, *(session.seen.since - session.first for session in found)]), tuple(chosen_by), tuple(found),
    )  # fmt: skip


def check_any(path: Path, counts: Mapping[str, PollCounts], rejected: Iterable[Rejected]) -> None:
    """That any poll fits. Raises ``InputError`` with the first that does not."""
    if not any(count.valid for count in counts.values()):
        first = next((f" the first: {one}" for one in rejected), "")
        raise InputError(f"{path}: no poll of topic statistics fits in {len(counts):,} files;{first}")


def assumed(path: Path) -> Options:
    """What a first look goes by: where the first answer does not contain its time, that of the file's name, or of its
    modification; and a topic to be replaced where it has none."""
    first = chosen(path, NAME).mine[0]
    try:
        no_topic, no_time = lacks(first)
    except (Damaged, OSError):
        return Options()
    times = None if not no_time else "name" if in_name(first.name) is not None else "modified"
    return Options(topic=UNNAMED if no_topic else None, times=times)


class Asked(NamedTuple):
    """What options ask for."""

    reader: Reader
    topics: list[str] | None
    subscriptions: list[str] | None

    @classmethod
    def of(cls, options: Options) -> Asked:
        """Raises ``ConfigError`` where the time of polls is nowhere."""
        if options.times not in (None, *get_args(Times)):
            raise ConfigError(f"option 'times': write {', '.join(get_args(Times))}, not {options.times!r}")
        topics = None if options.topic is None else [base_topic(options.topic)[0]]
        subscriptions = None if options.subscription is None else [options.subscription]
        return cls(Reader(options.topic, cast(Times, options.times or "field")), topics, subscriptions)


def ended(
    path: Path, options: Options, membership: pa.Table, counts: Mapping[str, PollCounts],
    shown: Iterable[Selector], found: Sequence[Session], notes: Iterable[str],
) -> End:  # fmt: skip
    """What is told at the end. Raises ``InputError`` where the polls show nobody."""
    pairs = told_of({"membership": membership})
    if not pairs:
        raise InputError(f"{path}: the polls show no consumer{_of(options)}")
    run, untold = _run(membership, *pairs[0], best_selector(shown, *pairs[0]))
    concluded, said = concluded_limits(found, *pairs[0])
    run |= {"liveness": concluded} if concluded else {}
    every = *NOTES, *untold, *said, *blocking(found), *silent(found), *notes
    return End({"membership": membership}, of_files(counts), run, tuple(pairs[1:]), every)


def counted(found: Stats) -> tuple[FileCount, ...]:
    """The polls of each file, and its lines outside of any, as rows."""
    return of_files(found.counts)


def of_files(counts: Mapping[str, PollCounts]) -> tuple[FileCount, ...]:
    """The same of counts."""
    return tuple(
        FileCount(name, of.polls + of.passed_over, of.quarantined, of.repeated + of.passed_over)
        for name, of in counts.items()
    )


def _of(options: Options) -> str:
    asked = [f"{name} {getattr(options, name)!r}" for name in ("topic", "subscription") if name in options.given]
    return f" of {' and '.join(asked)}" if asked else ""


def blocking(found: Iterable[Session]) -> tuple[str, ...]:
    """Sentences about the consumers that block hashes, by the last poll that shows it; the most blocked first."""
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


def _run(
    membership: pa.Table, subscription: str, topic: str, selector: Selector | None
) -> tuple[dict[str, Any], list[str]]:
    """A run to start from, and what is not known of it."""
    same = pc.and_(pc.equal(membership["subscription"], subscription), pc.equal(membership["topic"], topic))
    mine = membership.filter(same)
    policy, notes = policy_of(mine, subscription, selector)
    traffic, untold = unranked(membership)
    return {"subscription": {"name": subscription, "topic": topic, **policy}} | traffic, [*notes, *untold]
