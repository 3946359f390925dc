"""Acts of operators and clients after which a broker delivers messages again: a reset of the cursor or of a group's
offsets, a seek, expired offsets, an unload of the topic. Or after which it never delivers them: a skipped or cleared
backlog, and messages that expire.

A run declares acts (``Terms.resets``), or evidence does. Others are recognised by what they leave in the deliveries.
First, an instant at which the broker had nobody to deliver to: all consumers had left, the active one subscribed again,
or a group was empty. Then, from a position on, everything that had been acknowledged is redelivered in order, with
redelivery count 0. ``passes.patterns`` looks for this while the log is read by position; a single message that is
redelivered after its acknowledgement does not have it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from subreplay.rows.model.columns import DAY, NEVER
from subreplay.rows.model.range_table import NOBODY
from subreplay.rows.model.words import instant, position
from subreplay.semantics.timelines.timeline import Epoch, Timeline

Kind = Literal["reset", "seek", "unload", "expired", "skip", "ttl"]
Position = tuple[int, int, int]
SECOND: Final = 1_000_000_000
TOGETHER: Final = 1 * SECOND
"""Within which time (ns) consumers that a broker disconnects at once have all left."""
RETURN: Final = 60 * SECOND
"""Within which time (ns) a client that the broker disconnected subscribes again."""
NEAR: Final = 60 * SECOND
"""How far (ns) the declared instant of an act may be from the one at which consumers left."""
RETENTION: Final = 7 * DAY
"""How long offsets of an empty group are kept by default (``offsets.retention.minutes``, KIP-211)."""


@dataclass(frozen=True)
class Reset:
    """An act that is declared or recorded: when (ns), of which kind, and from where on messages are delivered anew: a
    position, or what was published from a time (ns) on; neither: everything, and after an unload what was outstanding.
    ``partition`` None: on all of them. ``by`` says whose act it was."""

    at: int
    kind: Kind = "reset"
    to: Position | None = None
    to_time: int | None = None
    partition: int | None = None
    by: str | None = None


class Act(NamedTuple):
    """An instant (ns): what was delivered by then may be delivered anew after it.

    ``until`` is when the next consumer came. ``how`` says what the membership shows: nothing, that all consumers
    ``left`` or subscribed ``again`` on their connections, that the ``active`` one did, or that a ``group`` was empty.
    ``sought``: the deliveries show that a consumer sought back while it owned its partition.
    ``declared`` is None for an act that only the deliveries can show.
    """

    at: int
    until: int
    how: Literal["nothing", "left", "again", "active", "group", "sought"]
    consumers: tuple[str, ...] = ()
    declared: Reset | None = None

    @property
    def named(self) -> bool:
        """Whether it is known without the pattern in the deliveries."""
        return self.declared is not None or self.how == "again"

    def words(self, acknowledged: bool = True) -> str:
        """The act in words; ``acknowledged``: messages were redelivered that had been."""
        when = instant(self.at)
        if self.declared is not None:
            return _declared(self.declared)
        if self.how == "group":
            came = "nobody has come back" if self.until == NEVER else f"its first member came at {instant(self.until)}"
            cause = "an operator reset its offsets, or its application sought back (a seek)"
            if self.until - self.at >= RETENTION:
                cause = f"its offsets had expired (offsets.retention.minutes), {cause}"
            return f"the group was empty from {when}, {came} and began below the committed offset: {cause}"
        if self.how == "sought":
            return f"consumer {self.consumers[0]} sought back (its own code) before {when}"
        who = "consumers " + ", ".join(self.consumers)
        if len(self.consumers) == 1 or len(self.consumers) > MOST_NAMED:
            who = (
                f"consumer {self.consumers[0]}" if len(self.consumers) == 1 else f"all {len(self.consumers)} consumers"
            )
        if self.how == "active":
            return f"{who} subscribed again at {when}: it sought back, or an operator reset the cursor"
        one = len(self.consumers) == 1
        happened = f"{who} was disconnected" if one else f"{who} were disconnected together"
        if self.how == "again":
            happened += f" at {when} and subscribed again on {'its connection' if one else 'their connections'}"
        else:
            happened = f"{who} left at {when}" if one else f"{happened} at {when}"
        if not acknowledged:
            return f"{happened}: the topic was unloaded, or the broker closed {'it' if one else 'them'}"
        return f"{happened}: an operator reset the cursor, a consumer sought back, or the cursor was lost"

    def skipped(self) -> str:
        """The act in words, of a group that began behind messages that were published while it was empty."""
        cause = "an operator reset its offsets forward, or its application sought forward (a seek)"
        if self.until - self.at >= RETENTION:
            cause = f"its offsets had expired (offsets.retention.minutes) and auto.offset.reset is latest, {cause}"
        return f"the group was empty from {instant(self.at)} to {instant(self.until)} and began behind it: {cause}"


_VERBS: Final = {
    "reset": "the cursor was reset", "seek": "a consumer sought back", "unload": "the topic was unloaded",
    "expired": "the committed offsets expired", "skip": "the backlog was skipped", "ttl": "messages expired",
}  # fmt: skip


_DONE: Final = {
    "reset": "reset the cursor", "seek": "sought", "unload": "unloaded the topic",
    "expired": "let the committed offsets expire", "skip": "skipped the backlog", "ttl": "let messages expire",
}  # fmt: skip


_TITLES: Final = {
    "reset": "Cursor reset", "seek": "Seek", "unload": "Topic unload", "expired": "Expired offsets",
    "skip": "Backlog skipped", "ttl": "Expired messages",
}  # fmt: skip


def _declared(reset: Reset) -> str:
    forward = reset.kind in ("skip", "ttl")
    to = "" if reset.to is None else f"{', before' if forward else ' to'} {position(*reset.to)}"
    if reset.to_time is not None and not forward:
        to += f" to what was published from {instant(reset.to_time)} on"
    act = f"{reset.by} {_DONE[reset.kind]}" if reset.by else _VERBS[reset.kind]
    return f"{act} at {instant(reset.at)}{to}"


class Seen(NamedTuple):
    """An act, from which positions on messages were redelivered, how many of them had been ``acknowledged``, and how
    many there were in all."""

    act: Act
    first: tuple[str, ...]
    acknowledged: int
    redelivered: int

    @property
    def title(self) -> str:
        """What it was, in two or three words."""
        if self.act.declared is not None:
            return _TITLES[self.act.declared.kind]
        if self.act.how == "sought":
            return "Seek"
        if self.act.how == "group":
            return "Offsets reset or expired"
        return "Cursor reset or seek" if self.acknowledged else "Topic unload"

    @property
    def sentence(self) -> str:
        """The act, and what it had redelivered."""
        where = ", ".join(self.first[:MOST_NAMED]) + (", …" if len(self.first) > MOST_NAMED else "")
        what = f"{self.redelivered:,} redelivered from {where} on"
        of_these = f", {self.acknowledged:,} of them acknowledged before" if self.acknowledged else ""
        return f"{self.act.words(bool(self.acknowledged))}; {what}{of_these}"


MOST_NAMED: Final = 4
"""Positions of one act that are named."""


def acts_seen(acts: Mapping[int, Sequence[Act]], rows: Sequence[Mapping[str, Any]]) -> Iterator[Seen]:
    """The acts that ``rows`` (``sums.acts``) count; ``acts`` are those of each partition. One on several partitions is
    one act."""
    last: Seen | None = None
    for row in rows:
        partition, first, *consumer = row["consumer"].split(" ", 2)
        if consumer:
            act = Act(row["pane"], row["pane"], "sought", (*consumer,))
        else:
            act = next(act for act in acts[int(partition)] if act.at == row["pane"])
        where = first if partition == "-1" else f"{partition}/{first}"
        seen = Seen(act, (where,), row["messages"], row["redelivered"])
        if (
            last is not None
            and (last.act.how, *consumer) == (act.how, *last.act.consumers[: len(consumer)])
            and act.at <= last.act.at + NEAR
        ):
            counts = last.acknowledged + seen.acknowledged, last.redelivered + seen.redelivered
            last = Seen(last.act, (*last.first, where), *counts)
            continue
        if last is not None:
            yield last
        last = seen
    if last is not None:
        yield last


def acts_of(timeline: Timeline, resets: Sequence[Reset] = (), known: bool = True) -> tuple[Act, ...]:
    """The acts of a dispatcher, in order: those that ``resets`` declare, and, where its membership is ``known``, the
    instants at which there may be one."""
    of_membership = _of_group if timeline.policy.serving == "polled" else _of_dispatcher
    found = [*of_membership(timeline)] if known else []
    partition = timeline.scope.partition
    for reset in sorted(resets, key=lambda one: one.at):
        if reset.partition not in (None, partition):
            continue
        near = [act for act in found if act.declared is None and act.at - NEAR <= reset.at <= _end(act) + NEAR]
        if near:
            nearest = min(near, key=lambda act: max(act.at - reset.at, reset.at - _end(act), 0))
            found[found.index(nearest)] = nearest._replace(declared=reset)
        else:
            found.append(Act(reset.at, reset.at, "nothing", (), reset))
    return tuple(sorted(found, key=lambda act: act.at))


def _end(act: Act) -> int:
    return act.at if act.until == NEVER else act.until


def _of_dispatcher(timeline: Timeline) -> list[Act]:
    """Where all consumers had left, and where the active one left and came back."""
    epochs, found = timeline.epochs, list[Act]()
    here: set[int] = set()
    gone: list[tuple[int, int, str, str | None]] = []  # when, index, name, instance
    for epoch in epochs[1:]:
        for consumer in epoch.left:
            here.discard(consumer.index)
            gone.append((epoch.start.at, consumer.index, consumer.name, consumer.instance))
        if epoch.joined is not None:
            here.add(epoch.joined.index)
        if not epoch.left:
            continue
        at = epoch.start.at
        joins = _joins_after(epochs, epoch.index, at + RETURN)
        if not here:
            together = [one for one in gone if one[0] >= at - TOGETHER]
            again = {(one.name, one.instance) for one in (e.joined for e in joins) if one is not None}
            if found and found[-1].how == "active" and found[-1].at >= at - TOGETHER:
                found.pop()  # the others left with it
            same = all(one[3] is not None and one[2:] in again for one in together)
            names = tuple(dict.fromkeys(one[2] for one in together))
            found.append(Act(at, _next_join(epochs, epoch.index), "again" if same else "left", names))
        elif timeline.policy.routing == "partition":
            before = _owner(timeline, epoch.index - 1)
            for consumer in epoch.left:
                back = [
                    e for e in joins
                    if e.joined is not None and e.joined.name == consumer.name
                    and (None in (e.joined.instance, consumer.instance) or e.joined.instance == consumer.instance)
                ]  # fmt: skip
                if consumer.index == before and back:
                    found.append(Act(at, back[0].start.at, "active", (consumer.name,)))
    return found


def _of_group(timeline: Timeline) -> Iterator[Act]:
    """Where a Kafka group had no member; one that asked to join before the last one left was there."""
    here: set[int] = set()
    for epoch in timeline.epochs[1:]:
        here.difference_update(consumer.index for consumer in epoch.left)
        if epoch.joined is not None:
            here.add(epoch.joined.index)
        if epoch.left and not here:
            following = [e for e in timeline.epochs[epoch.index + 1 :] if e.joined is not None and e.cause is not None]
            asked = min((e.cause.since.at for e in following if e.cause is not None), default=NEVER)
            if asked > epoch.start.at:
                until = following[0].start.at if following else NEVER
                yield Act(epoch.start.at, until, "group", tuple(consumer.name for consumer in epoch.left))


def _joins_after(epochs: Sequence[Epoch], index: int, until: int) -> list[Epoch]:
    found = []
    for epoch in epochs[index + 1 :]:
        if epoch.start.at > until:
            break
        if epoch.joined is not None:
            found.append(epoch)
    return found


def _next_join(epochs: Sequence[Epoch], index: int) -> int:
    return next((epoch.start.at for epoch in epochs[index + 1 :] if epoch.joined is not None), NEVER)


def _owner(timeline: Timeline, epoch: int) -> int:
    if epoch < 0:
        return NOBODY
    slots = np.array([timeline.policy.space[0]])
    return int(timeline.find_owners(slots, np.zeros(1, np.uint32), np.array([epoch], np.int32))[0])
