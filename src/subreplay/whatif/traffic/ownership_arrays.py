"""Who owns what and from when on, under one plan, as the flat arrays that an evaluation walks through.

The slots of each dispatcher are cut into segments. Each segment has *states*, in order of time: who owned it from an
instant on. A state is a list of consumers, of whom ``number % length`` picks one: nobody, one owner, the consumers that
share a point of the ring (``number`` is then the hash), or all that take part in Shared's round robin (the entry).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from subreplay.kernels.lazy_kernel import pass_by_reference
from subreplay.rows.model.columns import NEVER, UNKNOWN, Ints
from subreplay.rows.model.range_table import NOBODY
from subreplay.rows.model.rows import Scope
from subreplay.semantics.policies.base import Policy
from subreplay.semantics.timelines.timeline import Timeline


@pass_by_reference
class Ownership(NamedTuple):
    """The segments of scope s are ``segments[s]`` up to ``segments[s + 1]``, and begin at slots ``cuts``; the states of
    segment g are ``states[g]`` up to ``states[g + 1]``.

    A state holds from ``since`` (ns) on. A message in it was moved by the change that began it, if it was published
    before ``until``, when the next change of that dispatcher's members came. The consumers of a state are ``length``
    elements of ``members`` from ``first`` on: numbers of names.
    """

    segments: Ints
    cuts: Ints
    states: Ints
    since: Ints
    until: Ints
    first: Ints
    length: Ints
    members: Ints


class Owners(NamedTuple):
    """An ownership, the names that its ``members`` are numbers of, in order, and when (ns) the epochs of each scope
    began."""

    arrays: Ownership
    names: tuple[str, ...]
    starts: tuple[Ints, ...]


def owners(policy: Policy, timelines: Mapping[Scope, Timeline], scopes: Sequence[Scope], first: int) -> Owners:
    """The owners of ``scopes``. What changed at or before ``first`` (ns), when the first message came, moved nothing.

    Shared has no owners: entries go round the connected consumers of the best priority level in turn, which is what
    ``getNextConsumer`` does as long as all of them have permits (row P-SH-1).
    """
    folded = [timelines[scope] for scope in scopes]
    names = tuple(sorted({consumer.label for timeline in folded for consumer in timeline.consumers}))
    number = {name: i for i, name in enumerate(names)}
    starts = tuple(np.array([epoch.start.at for epoch in timeline.epochs], np.int64) for timeline in folded)
    known: dict[int, _OfScope] = {}  # dispatchers that saw the same events have one index
    for timeline, of_epochs in zip(folded, starts, strict=True):
        if id(timeline.index) not in known:
            in_turn = policy.routing == "any"
            known[id(timeline.index)] = _in_turn(timeline, of_epochs) if in_turn else _owned(timeline, of_epochs, first)
    of_scope = [known[id(timeline.index)] for timeline in folded]
    members = [
        np.array([number[timeline.consumers[i].label] for i in mine.members.tolist()], np.int64)
        for timeline, mine in zip(folded, of_scope, strict=True)
    ]
    offsets = np.cumsum([0, *(len(mine) for mine in members)])
    arrays = Ownership(
        segments=np.cumsum([0, *(len(mine.cuts) for mine in of_scope)]),
        cuts=_together([mine.cuts for mine in of_scope]),
        states=np.append(0, np.cumsum(_together([mine.states for mine in of_scope]))),
        since=_together([mine.since for mine in of_scope]),
        until=_together([mine.until for mine in of_scope]),
        first=_together([mine.first + offset for mine, offset in zip(of_scope, offsets, strict=False)]),
        length=_together([mine.length for mine in of_scope]),
        members=_together(members),
    )
    return Owners(arrays, names, starts)


class _OfScope(NamedTuple):
    """The same of one dispatcher; ``states`` are how many there are in each segment, ``members`` consumer indexes."""

    cuts: Ints
    states: Ints
    since: Ints
    until: Ints
    first: Ints
    length: Ints
    members: Ints


def _owned(timeline: Timeline, starts: Ints, first: int) -> _OfScope:
    index = timeline.index
    segment, since = index.keys >> 32, starts[index.keys & 0xFFFF_FFFF]
    lasting = np.append((segment[1:] != segment[:-1]) | (since[1:] != since[:-1]), True)
    segment, since, code = segment[lasting], since[lasting], index.owners[lasting].astype(np.int64)
    instants = np.append(np.unique(starts), NEVER)
    until = np.where(since <= first, since, instants[np.searchsorted(instants[:-1], since, "right")])
    sizes = np.array([len(group) for group in index.groups], np.int64)
    grouped = len(timeline.consumers) + np.cumsum(sizes) - sizes  # the members of groups stand behind the consumers
    shared = np.flatnonzero(code < NOBODY)
    position, length = np.maximum(code, 0), (code != NOBODY).astype(np.int64)
    position[shared], length[shared] = grouped[-2 - code[shared]], sizes[-2 - code[shared]]
    members = np.array([*range(len(timeline.consumers)), *(i for group in index.groups for i in group)], np.int64)
    return _OfScope(
        index.cuts, np.bincount(segment, minlength=len(index.cuts)), since, until, position, length, members
    )


def _in_turn(timeline: Timeline, starts: Ints) -> _OfScope:
    lasting = np.flatnonzero(np.append(starts[1:] != starts[:-1], True))
    turns = []
    for epoch in lasting.tolist():
        connected = timeline.list_connected(epoch)
        best = min((consumer.priority for consumer in connected), default=0)
        turns.append([consumer.index for consumer in connected if consumer.priority == best])
    length = np.array([len(turn) for turn in turns], np.int64)
    members = np.array([i for turn in turns for i in turn], np.int64)
    one, since = np.array([len(lasting)]), starts[lasting]
    return _OfScope(np.array([UNKNOWN]), one, since, since, np.cumsum(length) - length, length, members)


def _together(parts: Sequence[Ints]) -> Ints:
    return np.ascontiguousarray(np.concatenate([np.zeros(0, np.int64), *parts]), np.int64)
