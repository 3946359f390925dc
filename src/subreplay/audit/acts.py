"""Find acts of operators and clients that change what a broker delivers.

A broker delivers messages again after a reset of the cursor or of a group's offsets, a seek, expired offsets, or an
unload of the topic. It does not deliver messages after a skipped or cleared backlog, or if they expire.

A run declares acts (``Terms.resets``), or the data record them. Others are recognized by their pattern in the
deliveries. First, there is an instant at which the broker had no consumer: all consumers had left, the active one
subscribed again, or a group was empty. Then, from a position on, every acknowledged message is redelivered in order,
with redelivery count 0. ``passes.patterns`` looks for this while it reads the log by position. A single message that is
redelivered after its acknowledgement does not match.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from subreplay.rows.model.columns import DAY, NEVER
from subreplay.rows.model.range_table import NOBODY
from subreplay.rows.model.text_format import format_instant, format_position
from subreplay.semantics.timelines.timeline import Epoch, Timeline

Kind = Literal["reset", "seek", "unload", "expired", "skip", "ttl"]
Position = tuple[int, int, int]
SECOND_NS: Final = 1_000_000_000
DISCONNECT_TIME: Final = 1 * SECOND_NS
"""The time (ns) within which all consumers leave that a broker disconnects at once."""
RETURN_TIME: Final = 60 * SECOND_NS
"""The time (ns) within which a disconnected client subscribes again."""
DECLARED_TOLERANCE: Final = 60 * SECOND_NS
"""The largest distance (ns) between the declared instant of an act and the instant at which consumers left."""
OFFSET_RETENTION: Final = 7 * DAY
"""How long (ns) offsets of an empty group are kept by default (``offsets.retention.minutes``, KIP-211)."""


@dataclass(frozen=True)
class Reset:
    """A declared or recorded act: its instant (ns), its kind, and the messages that are delivered again.

    These start at a position or at a publication time (ns). Without either, all messages are delivered again, or after
    an unload, the outstanding ones. ``partition`` None: on all partitions. ``by`` names the actor.
    """

    at: int
    kind: Kind = "reset"
    to: Position | None = None
    to_time: int | None = None
    partition: int | None = None
    by: str | None = None


class Act(NamedTuple):
    """An instant (ns): messages that were delivered before it may be delivered again after it.

    ``until`` is the instant of the next join. ``how`` is what the membership shows: nothing, that all consumers
    ``left`` or subscribed ``again`` on their connections, that the ``active`` one did, or that a ``group`` was empty.
    ``sought``: the deliveries show that a consumer sought back while it owned its partition. ``declared`` is None for
    an act that only the deliveries show.
    """

    at: int
    until: int
    how: Literal["nothing", "left", "again", "active", "group", "sought"]
    consumers: tuple[str, ...] = ()
    declared: Reset | None = None

    @property
    def is_named(self) -> bool:
        """Whether the act is known without a pattern in the deliveries."""
        return self.declared is not None or self.how == "again"

    def describe(self, acknowledged: bool = True) -> str:
        """Describe the act. ``acknowledged``: acknowledged messages were redelivered."""
        when = format_instant(self.at)
        if self.declared is not None:
            return _describe_declared(self.declared)
        if self.how == "group":
            joined = f"its first member joined at {format_instant(self.until)}"
            came = "no member has joined since" if self.until == NEVER else joined
            cause = "an operator reset its offsets, or its application sought back"
            if self.until - self.at >= OFFSET_RETENTION:
                cause = f"its offsets had expired (offsets.retention.minutes), {cause}"
            return f"the group was empty from {when}, {came} and then read from below the committed offset: {cause}"
        if self.how == "sought":
            return f"consumer {self.consumers[0]} sought back (in its own code) before {when}"
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

    def describe_skip(self) -> str:
        """Describe the act of a group that started after messages that were published while it was empty."""
        cause = "an operator reset its offsets forward, or its application sought forward"
        if self.until - self.at >= OFFSET_RETENTION:
            cause = f"its offsets had expired (offsets.retention.minutes) and auto.offset.reset is latest, {cause}"
        empty = f"the group was empty from {format_instant(self.at)} to {format_instant(self.until)}"
        return f"{empty} and then started reading after these messages: {cause}"


_EVENTS: Final = {
    "reset": "the cursor was reset", "seek": "a consumer sought back", "unload": "the topic was unloaded",
    "expired": "the committed offsets expired", "skip": "the backlog was skipped", "ttl": "messages expired",
}  # fmt: skip


_VERBS_OF_ACTOR: Final = {
    "reset": "reset the cursor", "seek": "sought", "unload": "unloaded the topic",
    "expired": "expired the committed offsets", "skip": "skipped the backlog", "ttl": "expired messages",
}  # fmt: skip


_TITLES: Final = {
    "reset": "Cursor reset", "seek": "Seek", "unload": "Topic unload", "expired": "Expired offsets",
    "skip": "Backlog skipped", "ttl": "Expired messages",
}  # fmt: skip


def _describe_declared(reset: Reset) -> str:
    """Describe a declared act."""
    forward = reset.kind in ("skip", "ttl")
    to = "" if reset.to is None else f"{', before' if forward else ' to'} {format_position(*reset.to)}"
    if reset.to_time is not None and not forward:
        to += f" to messages published from {format_instant(reset.to_time)} on"
    act = f"{reset.by} {_VERBS_OF_ACTOR[reset.kind]}" if reset.by else _EVENTS[reset.kind]
    return f"{act} at {format_instant(reset.at)}{to}"


class SeenAct(NamedTuple):
    """An act, the first redelivered positions, and the numbers of ``acknowledged`` and of all redelivered messages."""

    act: Act
    first: tuple[str, ...]
    acknowledged: int
    redelivered: int

    @property
    def title(self) -> str:
        """A title of two or three words."""
        if self.act.declared is not None:
            return _TITLES[self.act.declared.kind]
        if self.act.how == "sought":
            return "Seek"
        if self.act.how == "group":
            return "Offsets reset or expired"
        return "Cursor reset or seek" if self.acknowledged else "Topic unload"

    @property
    def reason(self) -> str:
        """What happened, as a clause."""
        if self.act.declared is not None:
            return _EVENTS[self.act.declared.kind]
        if self.act.how == "sought":
            return "a consumer sought back"
        if self.act.how == "group":
            return "the offsets were reset or had expired"
        return "the cursor was reset or a consumer sought back" if self.acknowledged else "the topic was unloaded"

    @property
    def sentence(self) -> str:
        """A sentence with the act and its redelivered messages."""
        where = ", ".join(self.first[:MOST_NAMED]) + (", …" if len(self.first) > MOST_NAMED else "")
        what = f"{self.redelivered:,} redelivered from {where} on"
        of_these = f", {self.acknowledged:,} of them acknowledged before" if self.acknowledged else ""
        return f"{self.act.describe(bool(self.acknowledged))}; {what}{of_these}"


MOST_NAMED: Final = 4
"""The largest number of named positions of one act."""


def list_seen_acts(acts: Mapping[int, Sequence[Act]], rows: Sequence[Mapping[str, Any]]) -> Iterator[SeenAct]:
    """Yield the acts that ``rows`` (``sums.sum_acts``) count. ``acts`` are those of each partition. An act on several
    partitions is yielded once."""
    last: SeenAct | None = None
    for row in rows:
        partition, first, *consumer = row["consumer"].split(" ", 2)
        if consumer:
            act = Act(row["pane"], row["pane"], "sought", (*consumer,))
        else:
            act = next(act for act in acts[int(partition)] if act.at == row["pane"])
        where = first if partition == "-1" else f"{partition}/{first}"
        seen = SeenAct(act, (where,), row["messages"], row["redelivered"])
        if (
            last is not None
            and (last.act.how, *consumer) == (act.how, *last.act.consumers[: len(consumer)])
            and act.at <= last.act.at + DECLARED_TOLERANCE
        ):
            counts = last.acknowledged + seen.acknowledged, last.redelivered + seen.redelivered
            last = SeenAct(last.act, (*last.first, where), *counts)
            continue
        if last is not None:
            yield last
        last = seen
    if last is not None:
        yield last


def find_acts(timeline: Timeline, resets: Sequence[Reset] = (), known: bool = True) -> tuple[Act, ...]:
    """Return the acts of a dispatcher in order: the declared ``resets`` and, if its membership is ``known``, the
    instants of possible acts."""
    find_candidates = _find_empty_groups if timeline.policy.serving == "polled" else _find_disconnects
    found = [*find_candidates(timeline)] if known else []
    partition = timeline.scope.partition
    for reset in sorted(resets, key=lambda one: one.at):
        if reset.partition not in (None, partition):
            continue
        near = [
            act
            for act in found
            if act.declared is None and act.at - DECLARED_TOLERANCE <= reset.at <= _end_of_act(act) + DECLARED_TOLERANCE
        ]
        if near:
            nearest = min(near, key=lambda act: max(act.at - reset.at, reset.at - _end_of_act(act), 0))
            found[found.index(nearest)] = nearest._replace(declared=reset)
        else:
            found.append(Act(reset.at, reset.at, "nothing", (), reset))
    return tuple(sorted(found, key=lambda act: act.at))


def _end_of_act(act: Act) -> int:
    """Return the instant of the next join, or of the act if no consumer joined."""
    return act.at if act.until == NEVER else act.until


def _find_disconnects(timeline: Timeline) -> list[Act]:
    """Find instants at which all consumers had left, or at which the active one left and returned."""
    epochs, found = timeline.epochs, list[Act]()
    connected: set[int] = set()
    gone: list[tuple[int, int, str, str | None]] = []  # when, index, name, instance
    for epoch in epochs[1:]:
        for consumer in epoch.left:
            connected.discard(consumer.index)
            gone.append((epoch.start.at, consumer.index, consumer.name, consumer.instance))
        if epoch.joined is not None:
            connected.add(epoch.joined.index)
        if not epoch.left:
            continue
        at = epoch.start.at
        joins = _list_joins(epochs, epoch.index, at + RETURN_TIME)
        if not connected:
            together = [one for one in gone if one[0] >= at - DISCONNECT_TIME]
            again = {(one.name, one.instance) for one in (e.joined for e in joins) if one is not None}
            if found and found[-1].how == "active" and found[-1].at >= at - DISCONNECT_TIME:
                found.pop()  # the others left with it
            same = all(one[3] is not None and one[2:] in again for one in together)
            names = tuple(dict.fromkeys(one[2] for one in together))
            found.append(Act(at, _find_next_join(epochs, epoch.index), "again" if same else "left", names))
        elif timeline.policy.routing == "partition":
            before = _find_owner(timeline, epoch.index - 1)
            for consumer in epoch.left:
                back = [
                    e for e in joins
                    if e.joined is not None and e.joined.name == consumer.name
                    and (None in (e.joined.instance, consumer.instance) or e.joined.instance == consumer.instance)
                ]  # fmt: skip
                if consumer.index == before and back:
                    found.append(Act(at, back[0].start.at, "active", (consumer.name,)))
    return found


def _find_empty_groups(timeline: Timeline) -> Iterator[Act]:
    """Yield the times without a member of a Kafka group. A member that requested to join before the last one left ends
    none."""
    connected: set[int] = set()
    for epoch in timeline.epochs[1:]:
        connected.difference_update(consumer.index for consumer in epoch.left)
        if epoch.joined is not None:
            connected.add(epoch.joined.index)
        if epoch.left and not connected:
            following = [e for e in timeline.epochs[epoch.index + 1 :] if e.joined is not None and e.cause is not None]
            requested = min((e.cause.since.at for e in following if e.cause is not None), default=NEVER)
            if requested > epoch.start.at:
                until = following[0].start.at if following else NEVER
                yield Act(epoch.start.at, until, "group", tuple(consumer.name for consumer in epoch.left))


def _list_joins(epochs: Sequence[Epoch], index: int, until: int) -> list[Epoch]:
    """Return the epochs after an index in which a consumer joined, up to an instant."""
    found = []
    for epoch in epochs[index + 1 :]:
        if epoch.start.at > until:
            break
        if epoch.joined is not None:
            found.append(epoch)
    return found


def _find_next_join(epochs: Sequence[Epoch], index: int) -> int:
    """Return the instant of the next join; ``NEVER`` if there is none."""
    return next((epoch.start.at for epoch in epochs[index + 1 :] if epoch.joined is not None), NEVER)


def _find_owner(timeline: Timeline, epoch: int) -> int:
    """Return the owner of a partition in an epoch."""
    if epoch < 0:
        return NOBODY
    slots = np.array([timeline.policy.space[0]])
    return int(timeline.find_owners(slots, np.zeros(1, np.uint32), np.array([epoch], np.int32))[0])
