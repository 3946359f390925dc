"""Who was connected when: the sessions of a dispatcher's consumers, searched by consumer and instant.

Where somebody was served whose joining no event tells, the membership is taken as it may have been.
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
# Names and instances by number: what is not told, and what no consumer of the dispatcher ever had.
_NOT_TOLD, _NOBODYS = -1, -2


class Served(NamedTuple):
    """To whom deliveries went: numbers of names and instances."""

    names: Ints
    instances: Ints

    def of(self, rows: Ints) -> Served:
        """Some of them."""
        return Served(self.names[rows], self.instances[rows])


@dataclass(frozen=True, eq=False)
class Sessions:
    """Sessions by consumer index (the ordinal of the join): name, when joined, when left; instants as time and order.

    A session runs from the instant a join was asked for to the instant its leave was complete: inside the two changes
    nobody can tell, so a delivery there is to a connected consumer. Of a Kafka group a member is out at once when it
    leaves; only the rebalance, in which others get what it had, comes later. ``closing`` is when the leave was asked
    for.

    Several consumers of one name may be connected at once. A delivery is to the one with its instance. Where a side
    does not tell it, or an instance is known to be another name's, it may be to any of that name.
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
        """The sessions of a timeline; a consumer that the policy rejected has none, at any time.

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

    def served(self, names: pa.Array, instances: pa.Array) -> Served:
        """Whom the names and instances of deliveries mean."""
        of_name, of_instance = _coded(names, self._names), _coded(instances, self._instances)
        of_name[of_name == _NOT_TOLD] = _NOBODYS
        if (of_instance >= 0).any():
            pairs = self._pair(*self._consumers)
            of_instance[(of_instance >= 0) & ~np.isin(self._pair(of_name, of_instance), pairs)] = _NOT_TOLD
        return Served(of_name, of_instance)

    def find(self, served: Served, at: Ints, seq: Ints) -> tuple[Ints, Flags]:
        """The session of each delivery, ``UNKNOWN_CONSUMER`` where it had none; of ``several`` it may be to, that which
        ended first: what it held may have come again since."""
        return _find(*served, at, seq, *self._by_name, self._consumers.instances, *self._bounds)

    def connected_within(self, served: Served, since: Ints, until: Ints) -> Flags:
        """Whether a consumer that each delivery may be to was connected at any instant from ``since`` to ``until``."""
        found = np.zeros(len(since), np.bool_)
        joined, left = self._bounds
        for session in np.flatnonzero(np.isin(self._consumers.names, served.names)).tolist():
            there = (joined[session, 0] <= until) & (left[session, 0] >= since)
            found |= there & self.fits(np.full(len(since), session), served)
        return found

    def fits(self, sessions: NDArray[np.integer[Any]], served: Served) -> Flags:
        """Whether each delivery may be to that session (never to ``UNKNOWN_CONSUMER``), by its name and instance."""
        names, instances = (
            np.append(self._consumers.names, UNKNOWN_CONSUMER),
            np.append(self._consumers.instances, _NOBODYS),
        )
        told = (instances[sessions] != _NOT_TOLD) & (served.instances != _NOT_TOLD)
        fit: Flags = (names[sessions] == served.names) & (~told | (instances[sessions] == served.instances))
        return fit

    def words(self, names: pa.Array, instances: pa.Array, sessions: Ints) -> pa.Array:
        """What consumers are called in results: by the label of the session; an unknown consumer by its name, and by
        its instance where others of that name have labels of their own."""
        if self.labels == self.names:
            return names
        shared = {name for name, label in zip(self.names, self.labels, strict=True) if name != label}
        told = pc.and_(pc.is_in(names, pa.array(sorted(shared))), instances.is_valid())
        of_unknown = pc.if_else(told, pc.binary_join_element_wise(names, " (", instances, ")", ""), names)
        labels = pa.array([*self.labels, None], pa.string()).take(pa.array(sessions % (len(self.labels) + 1)))
        return pc.coalesce(labels, of_unknown)

    @cached_property
    def _names(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(dict.fromkeys(self.names))}

    @cached_property
    def _instances(self) -> dict[str, int]:
        return {instance: i for i, instance in enumerate(dict.fromkeys(self.instances)) if instance is not None}

    @cached_property
    def _consumers(self) -> Served:
        """The name and the instance of each session."""
        names = [self._names[name] for name in self.names]
        instances = [_NOT_TOLD if told is None else self._instances[told] for told in self.instances]
        return Served(np.array(names, np.int64), np.array(instances, np.int64))

    @cached_property
    def _by_name(self) -> tuple[Ints, Ints]:
        """Sessions by the number of their name and in order of time, and where those of each number begin."""
        names, (since, _) = self._consumers.names, self._bounds
        order = np.lexsort((since[:, 1], since[:, 0], names))
        return order, np.searchsorted(names[order], np.arange(len(self._names) + 1))

    @cached_property
    def left_at(self) -> Ints:
        """When each session ended, ns; the end of time where it has not."""
        return self._bounds[1][:, 0]

    @cached_property
    def _bounds(self) -> tuple[Ints, Ints]:
        since, left = (np.array([*instants], np.int64).reshape(-1, 2) for instants in (self.since, self.left))
        return since, left

    def _pair(self, names: Ints, instances: Ints) -> Ints:
        return names * len(self.instances) + instances


def _coded(words: pa.Array, numbers: dict[str, int]) -> Ints:
    """The number of each word: ``_NOBODYS`` for one without a number, ``_NOT_TOLD`` for none."""
    coded = words.dictionary_encode()
    known = [numbers.get(word, _NOBODYS) for word in coded.dictionary.to_pylist()]
    found: Ints = np.array([*known, _NOT_TOLD], np.int64)[np.asarray(coded.indices.fill_null(-1))]
    return found


@compiled
def _find(
    names: Ints, instances: Ints, at: Ints, seq: Ints, indexes: Ints, starts: Ints, instance_of: Ints, since: Ints,
    left: Ints,
) -> tuple[Ints, Flags]:  # fmt: skip  # pragma: no cover - compiled
    """Bounds are times and orders; a delivery without an order (0) is inside at the very instant of either."""
    found, several = np.full(len(at), UNKNOWN_CONSUMER, np.int64), np.zeros(len(at), np.bool_)
    for i in range(len(at)):
        if names[i] < 0:
            continue
        for k in range(starts[names[i]], starts[names[i] + 1]):
            s = indexes[k]
            if since[s, 0] > at[i]:
                break
            if instances[i] != _NOT_TOLD and instance_of[s] != _NOT_TOLD and instances[i] != instance_of[s]:
                continue
            before = at[i] == since[s, 0] and 0 < seq[i] < since[s, 1]
            after = at[i] > left[s, 0] or (at[i] == left[s, 0] and seq[i] > left[s, 1] and seq[i] > 0)
            if not before and not after:
                several[i] = found[i] != UNKNOWN_CONSUMER
                if not several[i] or left[s, 0] < left[found[i], 0]:
                    found[i] = s
    return found, several


def with_unknown_consumers(
    scope: Scope, events: Sequence[MembershipEvent], unknown: Mapping[str, ServedInterval]
) -> tuple[MembershipEvent, ...]:
    """The events of a dispatcher, in order, with those of ``unknown``.

    Each joins as early as it may have since the event before it was first served, and stays until its leaving is told,
    or the first event after it was last served.
    """
    story = [*events]
    for name, present in sorted(unknown.items(), key=lambda item: item[1]):
        begin = sum(event.at.at <= present.first for event in story)
        at = story[begin - 1].at if begin else Instant(present.first)
        story.insert(begin, MembershipEvent(scope, "join", name, at, at))
        told = any(event.consumer == name and event.event in ("leave", "crash") for event in story)
        after = next((i for i, event in enumerate(story) if event.at.at > present.last), None)
        if after is not None and not told:
            story.insert(after, MembershipEvent(scope, "leave", name, story[after].at, story[after].at))
    return tuple(story)
