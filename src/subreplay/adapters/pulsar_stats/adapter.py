"""Adapter ``pulsar-stats``: what polled topic statistics of a Pulsar broker tell of a subscription's members.

Joins are exact (``connectedSince``); a leave is known to the interval between two polls; a consumer that came and went
between two polls was never seen. Under Key_Shared they have the broker's own hash ranges, too.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, cast, get_args

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.base import FileCount, Ingested, Options, Reason, Rejected, told_of
from subreplay.adapters.canonical import base_topic
from subreplay.adapters.looks import chosen
from subreplay.adapters.pulsar_policies import policy_of, unranked
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
from subreplay.adapters.pulsar_stats.polls import Damaged, Poll, Reader, Record, Refused, Shown, Times, records
from subreplay.errors import ConfigError, InputError
from subreplay.failures import of_system

__all__ = [
    "NOT_SEEN", "POLLED", "RANGES_SEEN", "SESSIONS", "PollCounts", "Stats", "Times", "counted", "read", "stats",
]  # fmt: skip

NAME: Final = "pulsar-stats"
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
class PollCounts:
    """``polls = valid + repeated + quarantined`` answers of one file; ``passed_over`` are lines outside of any, and
    ``others`` the polls, of valid answers, of topics that are not wanted."""

    polls: int = 0
    valid: int = 0
    repeated: int = 0
    quarantined: int = 0
    passed_over: int = 0
    others: int = 0


@dataclass(frozen=True)
class Stats:
    """Canonical ``membership``, and what it has no columns for: ``sessions`` (``SESSIONS``), ``ranges``
    (``RANGES_SEEN``) and ``polled`` (``POLLED``). ``longest`` is the longest time (ns) between two polls of one topic
    partition: what a leave is known to. ``ahead`` (ns) is by how much a consumer was connected after the poll that
    shows it: how far the clocks of the broker and of who polled differ at least."""

    membership: pa.Table
    sessions: pa.Table
    ranges: pa.Table
    polled: pa.Table
    rejected: tuple[Rejected, ...]
    counts: Mapping[str, PollCounts]
    longest: int
    ahead: int


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
    collected = _Collected(Reader(topic, times, field), topics, subscriptions)
    for each in paths:
        collected.add(each, str(each.relative_to(root)))
    if not any(count.valid for count in collected.counts.values()):
        first = next((f" the first: {one}" for one in collected.rejected), "")
        raise InputError(f"{path}: no poll of topic statistics fits in {len(paths):,} files;{first}")
    found: list[Session] = []
    held: list[Held] = []
    longest = 0
    rows: list[dict[str, Any]] = []
    for _, polls in sorted(collected.polls.items()):
        story = [polls[at][1] for at in sorted(polls)]
        longest = max([longest, *(after.at - before.at for before, after in pairwise(story))])
        of_place, ranges = sessions(story)
        found += of_place
        held += ranges
        rows += polled_rows(story)
    joined = membership(found, by_address=by_address)
    return Stats(
        joined, session_rows(found), range_rows(held), pa.Table.from_pylist(rows, schema=POLLED),
        tuple(collected.rejected), collected.counts, longest,
        max([0, *(session.seen.since - session.first for session in found)]),
    )  # fmt: skip


def read(path: Path, options: Options) -> Ingested:
    """``stats`` as an adapter gives them: rows of the counts are polls, and lines outside of any."""
    if options.times not in (None, *get_args(Times)):
        raise ConfigError(f"option 'times': write {', '.join(get_args(Times))}, not {options.times!r}")
    files = chosen(path, NAME)
    topics = None if options.topic is None else [base_topic(options.topic)[0]]
    found = stats(
        path, files=files.mine, topic=options.topic, times=cast(Times, options.times or "field"), topics=topics,
        subscriptions=None if options.subscription is None else [options.subscription],
    )  # fmt: skip
    pairs = told_of({"membership": found.membership})
    if not pairs:
        raise InputError(f"{path}: the polls show no consumer{_of(options)}")
    run, notes = _run(found, *pairs[0])
    return Ingested({"membership": found.membership}, found.rejected, counted(found), run, tuple(pairs[1:]),
                    (*NOTES, *notes, *files.notes))  # fmt: skip


def counted(found: Stats) -> tuple[FileCount, ...]:
    """The polls of each file, and its lines outside of any, as rows."""
    return tuple(
        FileCount(name, of.polls + of.passed_over, of.quarantined, of.repeated + of.passed_over)
        for name, of in found.counts.items()
    )


def _of(options: Options) -> str:
    asked = [f"{name} {getattr(options, name)!r}" for name in ("topic", "subscription") if name in options.given]
    return f" of {' and '.join(asked)}" if asked else ""


def _run(found: Stats, subscription: str, topic: str) -> tuple[dict[str, Any], list[str]]:
    """A run to start from, and what is not known of it."""
    whole = {name: found.membership[name] for name in ("subscription", "topic")}
    mine = found.membership.filter(
        pc.and_(pc.equal(whole["subscription"], subscription), pc.equal(whole["topic"], topic))
    )
    policy, notes = policy_of(mine, subscription)
    traffic, untold = unranked(found.membership)
    return {"subscription": {"name": subscription, "topic": topic, **policy}} | traffic, [*notes, *untold]


class _Collected:
    """Polls by topic partition and time, with the fingerprints of their answers."""

    def __init__(self, reader: Reader, topics: Collection[str] | None, subscriptions: Collection[str] | None) -> None:
        self.reader, self.topics, self.subscriptions = reader, topics, subscriptions
        self.polls: dict[tuple[str, int], dict[int, tuple[bytes, Poll]]] = defaultdict(dict)
        self.rejected: list[Rejected] = []
        self.counts: dict[str, PollCounts] = {}

    def add(self, path: Path, name: str) -> None:
        self.counts[name] = PollCounts()
        try:
            for record in records(path):
                if record is None:
                    self._count(name, passed_over=1)
                else:
                    self._take(record, path, name)
        except Damaged as error:
            reason = Reason("(file)", name, f"the file is cut off or damaged here: {error}", "copy it again")
            self._quarantine(name, error.line, "(the rest of the file)", reason)
        except OSError as error:
            raise of_system(error, path, "read") from error

    def _take(self, record: Record, path: Path, name: str) -> None:
        try:
            polls = self.reader.polls(record, path)
            content = hashlib.sha256(record.text.encode()).digest()
            known = [self.polls[poll.topic, poll.partition].get(poll.at) for poll in polls]
            if any(before is not None and before[0] != content for before in known):
                raise Refused("at", str(polls[0].at), "a topic partition is polled once at a time",
                              "give each answer its own time")  # fmt: skip
        except Refused as refused:
            self._quarantine(name, record.line, f"({len(record.text):,} characters)", refused.reason)
            return
        if any(known):
            self._count(name, polls=1, repeated=1)
            return
        kept = [poll for poll in polls if self.topics is None or poll.topic in self.topics]
        for poll in kept:
            self.polls[poll.topic, poll.partition][poll.at] = content, self._selected(poll)
        self._count(name, polls=1, valid=1, others=len(polls) - len(kept))

    def _selected(self, poll: Poll) -> Poll:
        if self.subscriptions is None:
            return poll
        wanted: dict[str, Shown] = {s: shown for s, shown in poll.subscriptions.items() if s in self.subscriptions}
        return replace(poll, subscriptions=wanted)

    def _quarantine(self, name: str, line: int, raw: str, reason: Reason) -> None:
        self.rejected.append(Rejected("membership", name, line, raw, (reason,)))
        self._count(name, polls=1, quarantined=1)

    def _count(self, name: str, **more: int) -> None:
        before = self.counts[name]
        self.counts[name] = replace(before, **{key: getattr(before, key) + n for key, n in more.items()})
