"""Data that begin in mid-life: what was delivered, stored or connected before their first row is not known.

What this can explain is no broken promise: a message that came before and comes again after a close looks like a first
delivery, out of order; one that came only before looks lost; one that joined before looks like an unknown consumer.
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
from subreplay.semantics.timelines.timeline import Timeline

Position = tuple[int, int, int]


JUST_BEGUN: Final = 100_000_000
"""For how long (ns) after the first join deliveries may be a subscription's first ones, whatever its log held."""


FIRST_GENERATION: Final = 1
"""Of a group, or of a group that was deleted with all that it had committed (``ClassicGroup``, ``ModernGroup``)."""


FIRST_FETCH: Final = 1_000_000_000
"""Within which time (ns) the members of a new group have looked for positions and fetched."""


class FirstServed(NamedTuple):
    """What was delivered on a topic partition: when first (ns), and of the lowest position when first, and whether that
    was a redelivery already."""

    first: int
    lowest: Position
    at: int
    again: bool

    def with_others(self, other: FirstServed) -> FirstServed:
        """What was delivered, these deliveries and those."""
        lowest = min(self, other, key=lambda served: served[1:])
        return lowest._replace(first=min(self.first, other.first))


def beginnings(
    stored: Mapping[Scope, Position],
    served: Mapping[Scope, FirstServed],
    timelines: Mapping[Scope, Timeline],
    told: Mapping[Scope, Sequence[MembershipEvent]] = MappingProxyType({}),
) -> dict[Scope, int]:
    """Of topic partitions whose data begin in mid-life, from when on (ns) deliveries are recorded.

    ``stored`` is the lowest position in each log. Data are whole where that is the first one of its ledger and
    first deliveries begin with it, and where they begin with the first join. Those of a Kafka group are whole where its
    first generation is ``told`` of, and deliveries follow: it had committed nothing before.
    """
    begin = min((of_scope.first for of_scope in served.values()), default=UNKNOWN)
    first = [event.at.at for events in told.values() for event in events if event.generation == FIRST_GENERATION]
    if first and begin - min(first) <= FIRST_FETCH:
        return {}
    begun = {
        scope
        for scope, mine in served.items()
        if scope in stored
        and not _from_the_first_message(stored[scope], mine)
        and not _from_the_first_join(timelines.get(scope), mine)
    }
    if begun:  # a recording begins everywhere at once, also where nothing happens to have been delivered before
        begun |= {scope for scope, mine in served.items() if _before_the_first_join(timelines.get(scope), mine)}
    return {scope: begin for scope in served if scope in begun}


def _from_the_first_message(stored: Position, served: FirstServed) -> bool:
    _, entry, batch_index = stored
    begins = served.lowest == stored and served.at <= served.first + JUST_BEGUN and not served.again
    return entry == 0 and batch_index <= 0 and begins


def _from_the_first_join(timeline: Timeline | None, served: FirstServed) -> bool:
    if timeline is None or len(timeline.epochs) == 1 or joined_before(timeline, served.first):
        return False
    return served.first <= timeline.epochs[1].start.at + JUST_BEGUN


def _before_the_first_join(timeline: Timeline | None, served: FirstServed) -> bool:
    return timeline is None or len(timeline.epochs) == 1 or served.first < timeline.epochs[1].since.at


class Beginning(NamedTuple):
    """What the data of a dispatcher begin with.

    ``since``: from when on (ns) deliveries are recorded; ``UNKNOWN`` where the data are whole. ``stored`` and
    ``reached``: when the first message of the log was published, and the latest one so far. ``ledger``: the one of the
    first message; a broker deletes whole ledgers that every subscription has acknowledged (retention).
    """

    since: int = UNKNOWN
    stored: int = UNKNOWN
    reached: int = UNKNOWN
    ledger: int = UNKNOWN

    @property
    def settled(self) -> int:
        """What was due before may have been delivered before the data begin."""
        return self.since if self.since == UNKNOWN else self.since + SETTLE_TIME

    @property
    def log_is_whole(self) -> bool:
        """Whether every message behind those read is in the log: producers' times are not quite in its order."""
        return self.reached > self.stored + SETTLE_TIME

    def read(self, published: Ints) -> Beginning:
        """The same after some messages of the log, in its order."""
        if not len(published):
            return self
        stored = int(published[0]) if self.stored == UNKNOWN else self.stored
        return self._replace(stored=stored, reached=max(self.reached, int(published.max())))

    def missing(self, published: Ints) -> int:
        """Of messages in the order of the log, before which one the log may lack others; their number: all."""
        stored = self.read(published).stored
        return int(np.argmax(np.append(published > stored + SETTLE_TIME, True)))


def joined_before(timeline: Timeline, begin: int) -> dict[str, int]:
    """Of consumers that may have joined before the data begin, until when (ns): those whose leaving is told and whose
    joining is not. None where the membership reaches back to the beginning; ``""`` stands for names in no event.
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


def never_joined(timeline: Timeline, since: int, consumers: pa.Array) -> Flags:
    """Whether each delivery is to somebody of whom no join is recorded, though the membership begins no later than the
    data do (``since``)."""
    epochs = timeline.epochs[1:]
    known = [epoch.cause.consumer for epoch in epochs if epoch.cause is not None and epoch.cause.event == "join"]
    if not epochs or epochs[0].since.at > since:
        return np.zeros(len(consumers), np.bool_)
    return ~np.asarray(pc.is_in(consumers, pa.array(known, pa.string())), np.bool_)


def joined_earlier(timeline: Timeline, since: int, consumers: pa.Array, at: Ints, wrong: Flags) -> Flags:
    """Whether each delivery, or commit, is explained by somebody who may have joined before the data begin
    (``since``): its own consumer, or the owner of what looks ``wrong``."""
    until = joined_before(timeline, since)
    if not until:
        return np.zeros(len(at), np.bool_)
    names = consumers.dictionary_encode()
    of_name = np.asarray(names.indices.fill_null(-1), np.int64)
    explained: Flags = wrong | may_have_joined(until, names.dictionary.to_pylist(), of_name, at)
    return explained


def may_have_joined(until: Mapping[str, int], names: list[str | None], of_name: Ints, at: Ints) -> np.ndarray:
    """Whether the consumer of each delivery may have joined before the data begin; ``of_name`` are indices in
    ``names``, ``until`` is that of ``joined_before``."""
    missing = until.get("", UNKNOWN)
    ends = np.array([*(until.get(name or "", missing) for name in names), UNKNOWN], np.int64)
    return np.asarray(at <= ends[of_name], np.bool_)
