"""Find the sessions of a dispatcher's consumers: which consumer was connected when, searched by consumer and instant.

If a consumer received messages without a recorded join, the membership is completed as it may have been.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from subreplay.audit.deliveries import Flags
from subreplay.kernels.compiled import compiled
from subreplay.rows.model.columns import Ints
from subreplay.rows.model.rows import Instant, MembershipEvent, Scope
from subreplay.semantics.timelines.membership import ServedInterval
from subreplay.semantics.timelines.timeline import Timeline

FOREVER = Instant(int(np.iinfo(np.int64).max), 0)
UNKNOWN_CONSUMER = -1
# Numbers of names and instances: one for "not recorded", one for those that no consumer of the dispatcher has.
_NO_NUMBER, _NO_CONSUMER = -1, -2


class ConsumerNumbers(NamedTuple):
    """The consumers of deliveries: numbers of names and instances."""

    names: Ints
    instances: Ints

    def of(self, rows: Ints) -> ConsumerNumbers:
        """Return some of them."""
        return ConsumerNumbers(self.names[rows], self.instances[rows])


@dataclass(frozen=True, eq=False)
class Sessions:
    """Sessions by consumer index (the ordinal of the join): name, join and leave. Instants have a time and an order.

    A session lasts from the request of a join to the completion of its leave. During either change a delivery counts as
    one to a connected consumer, because the exact instant is not known. A member of a Kafka group is disconnected as
    soon as it leaves; the rebalance that reassigns its partitions comes later. ``closing`` is when the leave was
    requested.

    Several consumers with one name may be connected at once. A delivery belongs to the one with its instance. If an
    instance is not recorded, or is known to belong to another name, the delivery may belong to any of them.
    """

    names: tuple[str, ...]
    instances: tuple[str | None, ...]
    labels: tuple[str, ...]  # what each is called in results
    since: tuple[Instant, ...]
    joined: Ints  # when the join was complete, ns
    closing: Ints  # ns, or the end of time
    left: tuple[Instant, ...]

    @classmethod
    def of(cls, timeline: Timeline, by_label: bool = False) -> Sessions:
        """Return the sessions of a timeline. A rejected consumer never has one.

        ``by_label``: deliveries name consumers by their labels, as predicted ones do.
        """
        consumers = timeline.consumers
        labels = tuple(c.label for c in consumers)
        names = labels if by_label else tuple(c.name for c in consumers)
        instances = tuple(None if by_label else c.instance for c in consumers)
        since, joined = [FOREVER] * len(names), np.full(len(names), FOREVER.at)
        closing, left = np.full(len(names), FOREVER.at), [FOREVER] * len(names)
        polled = timeline.policy.serving == "polled"
        for epoch in timeline.epochs:
            if epoch.joined is not None:
                since[epoch.joined.index], joined[epoch.joined.index] = epoch.since, epoch.start.at
            cause = epoch.cause
            end = cause.since if polled and cause is not None and cause.event == "leave" else epoch.start
            for consumer in epoch.left:
                closing[consumer.index], left[consumer.index] = min(epoch.since, end).at, end
        return cls(names, instances, labels, tuple(since), joined, closing, tuple(left))

    def number_consumers(self, names: pa.Array, instances: pa.Array) -> ConsumerNumbers:
        """Return the numbers of the names and instances of deliveries."""
        of_name, of_instance = _number_words(names, self._names), _number_words(instances, self._instances)
        of_name[of_name == _NO_NUMBER] = _NO_CONSUMER
        if (of_instance >= 0).any():
            pairs = self._pair(*self._consumers)
            of_instance[(of_instance >= 0) & ~np.isin(self._pair(of_name, of_instance), pairs)] = _NO_NUMBER
        return ConsumerNumbers(of_name, of_instance)

    def find(self, served: ConsumerNumbers, at: Ints, seq: Ints) -> tuple[Ints, Flags]:
        """Return the session of each delivery, ``UNKNOWN_CONSUMER`` for none. Of ``several`` candidates, it is the one
        that ended first, because its messages may have been redelivered since."""
        return _find(*served, at, seq, *self._by_name, self._consumers.instances, *self._bounds)

    def are_connected_within(self, served: ConsumerNumbers, since: Ints, until: Ints) -> Flags:
        """Return whether a possible consumer of each delivery was connected at any instant from ``since`` to
        ``until``."""
        found = np.zeros(len(since), np.bool_)
        joined, left = self._bounds
        for session in np.flatnonzero(np.isin(self._consumers.names, served.names)).tolist():
            there = (joined[session, 0] <= until) & (left[session, 0] >= since)
            found |= there & self.fits_session(np.full(len(since), session), served)
        return found

    def fits_session(self, sessions: NDArray[np.integer[Any]], served: ConsumerNumbers) -> Flags:
        """Return whether each delivery may belong to that session (never to ``UNKNOWN_CONSUMER``), by its name and
        instance."""
        names, instances = (
            np.append(self._consumers.names, UNKNOWN_CONSUMER),
            np.append(self._consumers.instances, _NO_CONSUMER),
        )
        is_known = (instances[sessions] != _NO_NUMBER) & (served.instances != _NO_NUMBER)
        fit: Flags = (names[sessions] == served.names) & (~is_known | (instances[sessions] == served.instances))
        return fit

    def label_consumers(self, names: pa.Array, instances: pa.Array, sessions: Ints) -> pa.Array:
        """Return the label of each consumer in results: that of its session. An unknown consumer gets its name, with
        its instance if others of that name have labels."""
        if self.labels == self.names:
            return names
        shared = {name for name, label in zip(self.names, self.labels, strict=True) if name != label}
        is_known = pc.and_(pc.is_in(names, pa.array(sorted(shared))), instances.is_valid())
        of_unknown = pc.if_else(is_known, pc.binary_join_element_wise(names, " (", instances, ")", ""), names)
        labels = pa.array([*self.labels, None], pa.string()).take(pa.array(sessions % (len(self.labels) + 1)))
        return pc.coalesce(labels, of_unknown)

    @cached_property
    def _names(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(dict.fromkeys(self.names))}

    @cached_property
    def _instances(self) -> dict[str, int]:
        return {instance: i for i, instance in enumerate(dict.fromkeys(self.instances)) if instance is not None}

    @cached_property
    def _consumers(self) -> ConsumerNumbers:
        """The name and the instance of each session, as numbers."""
        names = [self._names[name] for name in self.names]
        instances = [_NO_NUMBER if is_known is None else self._instances[is_known] for is_known in self.instances]
        return ConsumerNumbers(np.array(names, np.int64), np.array(instances, np.int64))

    @cached_property
    def _by_name(self) -> tuple[Ints, Ints]:
        """Sessions by the number of their name and in order of time, and the first one of each number."""
        names, (since, _) = self._consumers.names, self._bounds
        order = np.lexsort((since[:, 1], since[:, 0], names))
        return order, np.searchsorted(names[order], np.arange(len(self._names) + 1))

    @cached_property
    def left_at(self) -> Ints:
        """The end of each session, ns; the end of time if it has not ended."""
        return self._bounds[1][:, 0]

    @cached_property
    def _bounds(self) -> tuple[Ints, Ints]:
        since, left = (np.array([*instants], np.int64).reshape(-1, 2) for instants in (self.since, self.left))
        return since, left

    def _pair(self, names: Ints, instances: Ints) -> Ints:
        return names * len(self.instances) + instances


def _number_words(words: pa.Array, numbers: dict[str, int]) -> Ints:
    """Return the number of each word: ``_NO_CONSUMER`` for a word without a number, ``_NO_NUMBER`` for null."""
    coded = words.dictionary_encode()
    known = [numbers.get(word, _NO_CONSUMER) for word in coded.dictionary.to_pylist()]
    found: Ints = np.array([*known, _NO_NUMBER], np.int64)[np.asarray(coded.indices.fill_null(-1))]
    return found


@compiled
def _find(
    names: Ints, instances: Ints, at: Ints, seq: Ints, indexes: Ints, starts: Ints, instance_of: Ints, since: Ints,
    left: Ints,
) -> tuple[Ints, Flags]:  # fmt: skip  # pragma: no cover - compiled
    """Find the session of each delivery. Bounds are times and orders; a delivery without an order (0) is inside at
    either instant."""
    found, several = np.full(len(at), UNKNOWN_CONSUMER, np.int64), np.zeros(len(at), np.bool_)
    for i in range(len(at)):
        if names[i] < 0:
            continue
        for k in range(starts[names[i]], starts[names[i] + 1]):
            s = indexes[k]
            if since[s, 0] > at[i]:
                break
            if instances[i] != _NO_NUMBER and instance_of[s] != _NO_NUMBER and instances[i] != instance_of[s]:
                continue
            before = at[i] == since[s, 0] and 0 < seq[i] < since[s, 1]
            after = at[i] > left[s, 0] or (at[i] == left[s, 0] and seq[i] > left[s, 1] and seq[i] > 0)
            if not before and not after:
                several[i] = found[i] != UNKNOWN_CONSUMER
                if not several[i] or left[s, 0] < left[found[i], 0]:
                    found[i] = s
    return found, several


def add_unknown_consumers(
    scope: Scope, events: Sequence[MembershipEvent], unknown: Mapping[str, ServedInterval]
) -> tuple[MembershipEvent, ...]:
    """Return the events of a dispatcher in order, with those of ``unknown`` consumers.

    Each of them joins as early as possible, at the last event before its first delivery. It stays until its recorded
    leave, or until the first event after its last delivery.
    """
    ordered = [*events]
    for name, present in sorted(unknown.items(), key=lambda item: item[1]):
        begin = sum(event.at.at <= present.first for event in ordered)
        at = ordered[begin - 1].at if begin else Instant(present.first)
        ordered.insert(begin, MembershipEvent(scope, "join", name, at, at))
        is_known = any(event.consumer == name and event.event in ("leave", "crash") for event in ordered)
        after = next((i for i, event in enumerate(ordered) if event.at.at > present.last), None)
        if after is not None and not is_known:
            ordered.insert(after, MembershipEvent(scope, "leave", name, ordered[after].at, ordered[after].at))
    return tuple(ordered)
