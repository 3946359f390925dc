"""What limits a drain, and who blocked longest: the judgements of a dispatch replay that need no clock."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from subreplay.reports import words
from subreplay.reports.dispatch_data import Blocked, Bound, Drain

MOST_BLOCKED = 12


class Spread(NamedTuple):
    """How many consumers are connected while a backlog drains, how many of them are ``idle`` meanwhile, and whether
    ``anybody`` may be given any message."""

    consumers: int
    idle: int
    anybody: bool


NOBODY: Final = Spread(0, 0, False)


def drain(
    left: int, took_ns: int | None, bounds: Iterable[Bound] = (), never: str = "", spread: Spread = NOBODY
) -> Drain:
    """The drain of what was ``left``, with the sentence that names what limits it; ``never``: why it does not end.

    ``bounds`` are the hottest consumer and the hottest hash (Kafka: partition). A hash goes to one consumer at a time,
    so its work bounds every assignment; that of the consumer bounds only the one that was replayed. No bound is longer
    than the drain took.

    >>> drain(90, 4_000_000_000, [Bound("consumer", "c3", 60, 3_000_000_000), Bound("hash", "7", 20, 10**9)]).limit
    'Not below 3 s: c3 has 60 messages to serve. Spread otherwise 1 s is the least: hash 7 has 20 messages, served one \
after the other.'
    """
    ordered = tuple(sorted(bounds, key=lambda b: (b.kind != "consumer", -b.busy_ns, words.natural(b.name))))
    if took_ns is not None:
        ordered = tuple(replace(bound, busy_ns=min(bound.busy_ns, took_ns)) for bound in ordered)
    return Drain(left, took_ns, ordered, _limit(left, took_ns, ordered, never, spread))


def _limit(left: int, took_ns: int | None, bounds: tuple[Bound, ...], never: str, consumers: Spread) -> str:
    if took_ns is None:
        return f"It never drains. {never}".rstrip()
    if not left:
        return "Nothing was left when the last message was published."
    spread = max((b for b in bounds if b.kind == "consumer"), key=lambda b: b.busy_ns, default=None)
    fixed = max((b for b in bounds if b.kind != "consumer"), key=lambda b: b.busy_ns, default=None)
    if not max((b.busy_ns for b in bounds), default=0):
        return "The work itself takes no time: only waiting does."
    if fixed and (not spread or fixed.busy_ns >= spread.busy_ns):
        return f"Not below {words.nanos(fixed.busy_ns)}: {_serial(fixed)}. More consumers would not help."
    assert spread
    messages = words.plural(spread.messages, "message")
    sentence = f"Not below {words.nanos(spread.busy_ns)}: {spread.name} has {messages} to serve."
    waits = f" The rest of {words.nanos(took_ns)} is waiting, not work." if took_ns > 2 * spread.busy_ns else ""
    if not fixed and waits:
        return sentence + waits
    if not fixed and spread.messages == 1:
        return sentence
    if not fixed and consumers.idle:
        idle = f"{words.count(consumers.idle)} of {words.plural(consumers.consumers, 'consumer')}"
        are = "is" if consumers.idle == 1 else "are"
        help_ = "A smaller receiver queue" if consumers.anybody else "A more even share"
        return f"{sentence} {idle} {are} idle meanwhile: more consumers would not help. {help_} would."
    if not fixed:
        return f"{sentence} More consumers, or a more even share, would help."
    return f"{sentence} Spread otherwise {words.nanos(fixed.busy_ns)} is the least: {_serial(fixed)}.{waits}"


def _serial(bound: Bound) -> str:
    """Messages that no assignment serves side by side."""
    return f"{bound.kind} {bound.name} has {words.plural(bound.messages, 'message')}, served one after the other"


def longest(blocked: Iterable[Blocked], most: int = MOST_BLOCKED) -> tuple[Blocked, ...]:
    """The rows that waited longest; ties by the messages that waited, then by name."""
    return tuple(sorted(blocked, key=_by_weight)[:most])


def _by_weight(row: Blocked) -> tuple[object, ...]:
    names = [words.natural(name) for name in (row.consumer, row.place, row.holder)]
    return (-row.blocked_ns, -row.messages, *names, row.since, row.why)
