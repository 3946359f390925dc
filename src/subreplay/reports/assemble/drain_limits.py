"""Find what limits a drain, and select the longest waits of a dispatch replay."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from subreplay.reports.dispatch_data import Blocked, Bound, Drain
from subreplay.reports.formatting import format_count, format_nanos, format_plural, natural_sort_key

MAX_BLOCKED = 12


class ConsumerSpread(NamedTuple):
    """The number of connected and of ``idle`` consumers during a drain.

    ``anybody`` means that any consumer can receive any message.
    """

    consumers: int
    idle: int
    anybody: bool


NO_CONSUMERS: Final = ConsumerSpread(0, 0, False)


def build_drain(
    remaining: int,
    took_ns: int | None,
    bounds: Iterable[Bound] = (),
    never: str = "",
    spread: ConsumerSpread = NO_CONSUMERS,
) -> Drain:
    """Build the drain of the ``remaining`` messages, with a sentence that names its limit.

    ``never`` explains why it does not end, and is empty if it ends.

    ``bounds`` are the hottest consumer and the hottest hash (Kafka: partition). One consumer processes a hash, so its
    work bounds every assignment. The work of a consumer bounds only the replayed assignment. No bound exceeds
    the duration of the drain.

    >>> bounds = [Bound("consumer", "c3", 60, 3_000_000_000), Bound("hash", "7", 20, 10**9)]
    >>> build_drain(90, 4_000_000_000, bounds).limit
    'At least 3 s: c3 has 60 messages to serve. With any other assignment at least 1 s: hash 7 has 20 messages, served \
one after the other.'
    """
    ordered = tuple(sorted(bounds, key=lambda b: (b.kind != "consumer", -b.busy_ns, natural_sort_key(b.name))))
    if took_ns is not None:
        ordered = tuple(replace(bound, busy_ns=min(bound.busy_ns, took_ns)) for bound in ordered)
    return Drain(remaining, took_ns, ordered, _describe_limit(remaining, took_ns, ordered, never, spread))


def _describe_limit(
    remaining: int, took_ns: int | None, bounds: tuple[Bound, ...], never: str, consumers: ConsumerSpread
) -> str:
    if took_ns is None:
        return f"It never drains. {never}".rstrip()
    if not remaining:
        return "Nothing was left when the last message was published."
    spread = max((b for b in bounds if b.kind == "consumer"), key=lambda b: b.busy_ns, default=None)
    fixed = max((b for b in bounds if b.kind != "consumer"), key=lambda b: b.busy_ns, default=None)
    if not max((b.busy_ns for b in bounds), default=0):
        return "The work itself takes no time: only waiting does."
    if fixed and (not spread or fixed.busy_ns >= spread.busy_ns):
        return f"At least {format_nanos(fixed.busy_ns)}: {_describe_serial_work(fixed)}. More consumers would not help."
    assert spread
    messages = format_plural(spread.messages, "message")
    sentence = f"At least {format_nanos(spread.busy_ns)}: {spread.name} has {messages} to serve."
    waits = f" The rest of {format_nanos(took_ns)} is waiting, not work." if took_ns > 2 * spread.busy_ns else ""
    if not fixed and waits:
        return sentence + waits
    if not fixed and spread.messages == 1:
        return sentence
    if not fixed and consumers.idle:
        idle = f"{format_count(consumers.idle)} of {format_plural(consumers.consumers, 'consumer')}"
        are = "is" if consumers.idle == 1 else "are"
        help_ = "A smaller receiver queue" if consumers.anybody else "A fairer share"
        return f"{sentence} {idle} {are} idle meanwhile: more consumers would not help. {help_} would."
    if not fixed:
        return f"{sentence} More consumers, or a fairer share, would help."
    lower_bound = format_nanos(fixed.busy_ns)
    return f"{sentence} With any other assignment at least {lower_bound}: {_describe_serial_work(fixed)}.{waits}"


def _describe_serial_work(bound: Bound) -> str:
    """Describe the messages that no assignment can process in parallel."""
    return f"{bound.kind} {bound.name} has {format_plural(bound.messages, 'message')}, served one after the other"


def select_longest(blocked: Iterable[Blocked], most: int = MAX_BLOCKED) -> tuple[Blocked, ...]:
    """Select the longest waits; ties are broken by the number of messages, then by name."""
    return tuple(sorted(blocked, key=_sort_key)[:most])


def _sort_key(row: Blocked) -> tuple[object, ...]:
    names = [natural_sort_key(name) for name in (row.consumer, row.place, row.holder)]
    return (-row.blocked_ns, -row.messages, *names, row.since, row.why)
