"""Find left-truncated data: deliveries, messages and joins before their first row are not recorded.

Findings that this can explain are not violations. A message that was delivered before and is redelivered after a close
looks like a first delivery out of order. A message that was delivered only before looks lost. A consumer that joined
before looks unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.audit.deliveries import Flags
from subreplay.audit.rules.holding import SETTLE_TIME
from subreplay.rows.model.columns import NEVER, UNKNOWN, Ints
from subreplay.rows.model.rows import MembershipEvent, Scope
from subreplay.semantics.policies.kafka.share import is_share_group
from subreplay.semantics.timelines.timeline import Timeline

Position = tuple[int, int, int]


FIRST_DELIVERIES_TIME: Final = 100_000_000
"""How long (ns) after the first join deliveries may be the first ones of a subscription, whatever its log contains."""


FIRST_GENERATION: Final = 1
"""The first generation of a new group, or of a group that was deleted with all its commits (``ClassicGroup``,
``ModernGroup``)."""


FIRST_SHARE_EPOCH: Final = 2
"""The epoch of the first member of a new share group (``GroupMetadataManager``, 4.4.0)."""


FIRST_FETCH_TIME: Final = 1_000_000_000
"""The time (ns) within which the members of a new group look up positions and fetch."""


class FirstServed(NamedTuple):
    """The first deliveries on a topic partition: the first instant (ns), the first delivery of the lowest position, and
    whether that was a redelivery."""

    first: int
    lowest: Position
    at: int
    again: bool

    def with_others(self, other: FirstServed) -> FirstServed:
        """Return the first deliveries of both."""
        lowest = min(self, other, key=lambda served: served[1:])
        return lowest._replace(first=min(self.first, other.first))


def find_beginnings(
    stored: Mapping[Scope, Position],
    served: Mapping[Scope, FirstServed],
    timelines: Mapping[Scope, Timeline],
    known_events: Mapping[Scope, Sequence[MembershipEvent]] = MappingProxyType({}),
) -> dict[Scope, int]:
    """Return the instant (ns) from which deliveries are recorded, for topic partitions with left-truncated data.

    ``stored`` is the lowest position in each log. Data are complete if that is the first one of its ledger and first
    deliveries begin with it, or if they begin with the first join. The data of a Kafka group are complete if
    ``known_events`` contain its first generation and deliveries follow: it had no earlier commits. Those of a share
    group are complete if its first epoch is recorded.
    """
    if any(_begins_share_group(timeline) for timeline in timelines.values()):
        return {}
    begin = min((of_scope.first for of_scope in served.values()), default=UNKNOWN)
    first = [
        event.at.at for events in known_events.values() for event in events if event.generation == FIRST_GENERATION
    ]
    if first and begin - min(first) <= FIRST_FETCH_TIME:
        return {}
    begun = {
        scope
        for scope, of_scope in served.items()
        if scope in stored
        and not _begins_with_first_message(stored[scope], of_scope)
        and not _begins_with_first_join(timelines.get(scope), of_scope)
    }
    if begun:  # a recording begins everywhere at once, also where nothing happens to have been delivered before
        begun |= {
            scope for scope, of_scope in served.items() if _begins_before_first_join(timelines.get(scope), of_scope)
        }
    return {scope: begin for scope in served if scope in begun}


def _begins_share_group(timeline: Timeline) -> bool:
    first = timeline.epochs[1].cause if len(timeline.epochs) > 1 else None
    return is_share_group(timeline.policy) and first is not None and first.generation == FIRST_SHARE_EPOCH


def _begins_with_first_message(stored: Position, served: FirstServed) -> bool:
    _, entry, batch_index = stored
    begins = served.lowest == stored and served.at <= served.first + FIRST_DELIVERIES_TIME and not served.again
    return entry == 0 and batch_index <= 0 and begins


def _begins_with_first_join(timeline: Timeline | None, served: FirstServed) -> bool:
    if timeline is None or len(timeline.epochs) == 1 or find_earlier_joins(timeline, served.first):
        return False
    return served.first <= timeline.epochs[1].start.at + FIRST_DELIVERIES_TIME


def _begins_before_first_join(timeline: Timeline | None, served: FirstServed) -> bool:
    return timeline is None or len(timeline.epochs) == 1 or served.first < timeline.epochs[1].since.at


class Beginning(NamedTuple):
    """The beginning of a dispatcher's data.

    ``since``: the instant (ns) from which deliveries are recorded; ``UNKNOWN`` if the data are complete. ``stored`` and
    ``reached``: the publication times of the first message and of the latest one so far. ``ledger``: the ledger of the
    first message. A broker deletes whole ledgers that every subscription has acknowledged (retention).
    """

    since: int = UNKNOWN
    stored: int = UNKNOWN
    reached: int = UNKNOWN
    ledger: int = UNKNOWN

    @property
    def settled(self) -> int:
        """The instant before which due messages may have been delivered before the data begin."""
        return self.since if self.since == UNKNOWN else self.since + SETTLE_TIME

    @property
    def log_is_whole(self) -> bool:
        """Whether the log contains every further message. The clocks of producers are not exactly in its order."""
        return self.reached > self.stored + SETTLE_TIME

    def read(self, published: Ints) -> Beginning:
        """Return the beginning after some messages of the log, in its order."""
        if not len(published):
            return self
        stored = int(published[0]) if self.stored == UNKNOWN else self.stored
        return self._replace(stored=stored, reached=max(self.reached, int(published.max())))

    def missing(self, published: Ints) -> int:
        """Return the index of the message before which the log may lack others; the number of messages means all."""
        stored = self.read(published).stored
        return int(np.argmax(np.append(published > stored + SETTLE_TIME, True)))


def find_earlier_joins(timeline: Timeline, begin: int) -> dict[str, int]:
    """Return the consumers that may have joined before the data begin, and until when (ns): their leave is recorded but
    not their join.

    The result is empty if the membership goes back to the beginning. ``""`` represents names without events.
    """
    joins: dict[str, int] = {}
    for epoch in timeline.epochs[1:]:
        if epoch.cause is not None and epoch.cause.event == "join":
            joins.setdefault(epoch.cause.consumer, epoch.cause.at.at)
    left = {leave.consumer: leave.at.at for leave in reversed(timeline.orphans)}
    missing = {name: at for name, at in left.items() if at < joins.get(name, NEVER)}
    first = timeline.epochs[1].since.at if len(timeline.epochs) > 1 else NEVER
    if not missing and first <= begin:
        return {}
    return missing | dict.fromkeys(joins.keys() - missing.keys(), UNKNOWN) | {"": NEVER}


def find_never_joined(timeline: Timeline, since: int, consumers: pa.Array) -> Flags:
    """Return which deliveries go to a consumer without a recorded join, although the membership begins no later than
    the data (``since``)."""
    epochs = timeline.epochs[1:]
    known = [epoch.cause.consumer for epoch in epochs if epoch.cause is not None and epoch.cause.event == "join"]
    if not epochs or epochs[0].since.at > since:
        return np.zeros(len(consumers), np.bool_)
    return ~np.asarray(pc.is_in(consumers, pa.array(known, pa.string())), np.bool_)


def find_joined_earlier(timeline: Timeline, since: int, consumers: pa.Array, at: Ints, wrong: Flags) -> Flags:
    """Return which deliveries or commits a consumer explains that may have joined before the data begin (``since``):
    their own consumer, or the owner of ``wrong`` ones."""
    until = find_earlier_joins(timeline, since)
    if not until:
        return np.zeros(len(at), np.bool_)
    names = consumers.dictionary_encode()
    of_name = np.asarray(names.indices.fill_null(-1), np.int64)
    explained: Flags = wrong | find_possible_joins(until, names.dictionary.to_pylist(), of_name, at)
    return explained


def find_possible_joins(until: Mapping[str, int], names: list[str | None], of_name: Ints, at: Ints) -> np.ndarray:
    """Return whether the consumer of each delivery may have joined before the data begin. ``of_name`` are indices in
    ``names``, ``until`` is the result of ``find_earlier_joins``."""
    missing = until.get("", UNKNOWN)
    ends = np.array([*(until.get(name or "", missing) for name in names), UNKNOWN], np.int64)
    return np.asarray(at <= ends[of_name], np.bool_)
