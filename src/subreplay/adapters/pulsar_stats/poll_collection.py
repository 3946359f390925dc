"""Collect the answers of files: each is valid, repeated, or rejected."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from subreplay.adapters.base import WHOLE_FILE, Reason, RejectedRow
from subreplay.adapters.pulsar_stats.stats_answers import (
    DamagedFile,
    PolledSubscription,
    PollReader,
    RejectedAnswer,
    TopicPoll,
    read_records,
)
from subreplay.failures import describe_os_error


@dataclass(frozen=True)
class PollCounts:
    """Counts of one file: ``polls = valid + repeated + quarantined`` answers. ``skipped`` are lines outside of
    answers, and ``others`` the polls in valid answers of topics that are not selected."""

    polls: int = 0
    valid: int = 0
    repeated: int = 0
    quarantined: int = 0
    skipped: int = 0
    others: int = 0

    def add(self, **counts: int) -> PollCounts:
        """Add to some of the counts."""
        return replace(self, **{name: getattr(self, name) + number for name, number in counts.items()})


class StatsAnswer(NamedTuple):
    """One answer: a poll of each topic partition at one time (ns). ``content`` is the fingerprint of its text."""

    file: str
    line: int
    size: int  # characters
    content: bytes
    at: int
    polls: tuple[TopicPoll, ...]


def read_answers(path: Path, name: str, reader: PollReader) -> Iterator[StatsAnswer | RejectedRow | str]:
    """Yield the answers of a file, the rejected ones, and the file's name for each line outside of answers.

    Raises ``EnvironmentFailed`` where the file cannot be read.
    """
    try:
        for record in read_records(path):
            if record is None:
                yield name
                continue
            try:
                polls = tuple(reader.parse_polls(record, path))
            except RejectedAnswer as refused:
                yield _reject_answer(name, record.line, len(record.text), refused)
            else:
                content = hashlib.sha256(record.text.encode()).digest()
                yield StatsAnswer(name, record.line, len(record.text), content, polls[0].at, polls)
    except DamagedFile as error:
        reason = Reason(WHOLE_FILE, name, f"the file is truncated or damaged at this line: {error}", "copy it again")
        yield RejectedRow("membership", name, error.line, "(the rest of the file)", (reason,))
    except OSError as error:
        raise describe_os_error(error, path, "read") from error


def _reject_answer(name: str, line: int, size: int, refused: RejectedAnswer) -> RejectedRow:
    return RejectedRow("membership", name, line, f"({size:,} characters)", (refused.reason,))


class PollCollection:
    """Polls by topic partition and time, with the fingerprints of their answers. ``topics`` and ``subscriptions``
    select polls (None: all)."""

    def __init__(self, topics: Collection[str] | None, subscriptions: Collection[str] | None) -> None:
        self.topics, self.subscriptions = topics, subscriptions
        self.polls: dict[tuple[str, int], dict[int, tuple[bytes, TopicPoll]]] = defaultdict(dict)
        self.rejected: list[RejectedRow] = []
        self.counts: dict[str, PollCounts] = {}

    def add_file(self, name: str) -> None:
        """Add a file to the counts, even if it contains no answer."""
        self.counts.setdefault(name, PollCounts())

    def add(self, item: StatsAnswer | RejectedRow | str) -> None:
        """Add one item of ``read_answers``, in its order."""
        if isinstance(item, str):
            self._count(item, skipped=1)
        elif isinstance(item, RejectedRow):
            self._reject(item)
        else:
            self._add_answer(item)

    def _add_answer(self, answer: StatsAnswer) -> None:
        known = [self.polls[poll.topic, poll.partition].get(poll.at) for poll in answer.polls]
        if any(before is not None and before[0] != answer.content for before in known):
            refused = RejectedAnswer("at", str(answer.at), "a topic partition has one poll at a time",
                              "correct the times of the answers")  # fmt: skip
            self._reject(_reject_answer(answer.file, answer.line, answer.size, refused))
            return
        if any(known):
            self._count(answer.file, polls=1, repeated=1)
            return
        selected = [poll for poll in answer.polls if self.topics is None or poll.topic in self.topics]
        for poll in selected:
            self.polls[poll.topic, poll.partition][poll.at] = answer.content, self._select_subscriptions(poll)
        self._count(answer.file, polls=1, valid=1, others=len(answer.polls) - len(selected))

    def _select_subscriptions(self, poll: TopicPoll) -> TopicPoll:
        if self.subscriptions is None:
            return poll
        wanted: dict[str, PolledSubscription] = {
            s: shown for s, shown in poll.subscriptions.items() if s in self.subscriptions
        }
        return replace(poll, subscriptions=wanted)

    def _reject(self, rejected: RejectedRow) -> None:
        self.rejected.append(rejected)
        self._count(rejected.file, polls=1, quarantined=1)

    def _count(self, name: str, **counts: int) -> None:
        self.add_file(name)
        self.counts[name] = self.counts[name].add(**counts)
