"""The answers of files: each is valid, there already, or rejected."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from subreplay.adapters.base import Reason, Rejected
from subreplay.adapters.pulsar_stats.polls import Damaged, Poll, Reader, Refused, Shown, records
from subreplay.failures import describe_os_error


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

    def more(self, **more: int) -> PollCounts:
        """With so many more."""
        return replace(self, **{name: getattr(self, name) + number for name, number in more.items()})


class Answer(NamedTuple):
    """What one answer says at a time (ns): a poll of each topic partition. ``content`` is its fingerprint."""

    file: str
    line: int
    size: int  # characters
    content: bytes
    at: int
    polls: tuple[Poll, ...]


def answers(path: Path, name: str, reader: Reader) -> Iterator[Answer | Rejected | str]:
    """The answers of a file, those that do not fit, and the file's name for each line outside of any.

    Raises ``EnvironmentFailed`` where it cannot be read.
    """
    try:
        for record in records(path):
            if record is None:
                yield name
                continue
            try:
                polls = tuple(reader.polls(record, path))
            except Refused as refused:
                yield _rejected(name, record.line, len(record.text), refused)
            else:
                content = hashlib.sha256(record.text.encode()).digest()
                yield Answer(name, record.line, len(record.text), content, polls[0].at, polls)
    except Damaged as error:
        reason = Reason("(file)", name, f"the file is cut off or damaged here: {error}", "copy it again")
        yield Rejected("membership", name, error.line, "(the rest of the file)", (reason,))
    except OSError as error:
        raise describe_os_error(error, path, "read") from error


def _rejected(name: str, line: int, size: int, refused: Refused) -> Rejected:
    return Rejected("membership", name, line, f"({size:,} characters)", (refused.reason,))


class Collected:
    """Polls by topic partition and time, with the fingerprints of their answers. ``topics`` and ``subscriptions``
    select (None: all)."""

    def __init__(self, topics: Collection[str] | None, subscriptions: Collection[str] | None) -> None:
        self.topics, self.subscriptions = topics, subscriptions
        self.polls: dict[tuple[str, int], dict[int, tuple[bytes, Poll]]] = defaultdict(dict)
        self.rejected: list[Rejected] = []
        self.counts: dict[str, PollCounts] = {}

    def begin(self, name: str) -> None:
        """A file, which may hold nothing."""
        self.counts.setdefault(name, PollCounts())

    def take(self, told: Answer | Rejected | str) -> None:
        """What ``answers`` gives, in its order."""
        if isinstance(told, str):
            self._count(told, passed_over=1)
        elif isinstance(told, Rejected):
            self._reject(told)
        else:
            self._take(told)

    def _take(self, answer: Answer) -> None:
        known = [self.polls[poll.topic, poll.partition].get(poll.at) for poll in answer.polls]
        if any(before is not None and before[0] != answer.content for before in known):
            refused = Refused("at", str(answer.at), "a topic partition is polled once at a time",
                              "give each answer its own time")  # fmt: skip
            self._reject(_rejected(answer.file, answer.line, answer.size, refused))
            return
        if any(known):
            self._count(answer.file, polls=1, repeated=1)
            return
        kept = [poll for poll in answer.polls if self.topics is None or poll.topic in self.topics]
        for poll in kept:
            self.polls[poll.topic, poll.partition][poll.at] = answer.content, self._selected(poll)
        self._count(answer.file, polls=1, valid=1, others=len(answer.polls) - len(kept))

    def _selected(self, poll: Poll) -> Poll:
        if self.subscriptions is None:
            return poll
        wanted: dict[str, Shown] = {s: shown for s, shown in poll.subscriptions.items() if s in self.subscriptions}
        return replace(poll, subscriptions=wanted)

    def _reject(self, rejected: Rejected) -> None:
        self.rejected.append(rejected)
        self._count(rejected.file, polls=1, quarantined=1)

    def _count(self, name: str, **more: int) -> None:
        self.begin(name)
        self.counts[name] = self.counts[name].more(**more)
