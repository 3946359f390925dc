"""The owners over time under one plan, as the flat arrays that an evaluation reads.

The slots of each dispatcher are cut into segments. Each segment has *states* in order of time: its owner from an
instant on. A state is a list of consumers, of which ``number % length`` picks one. The list has no consumer, one owner,
or several consumers. Several consumers share a point of the hash ring (``number`` is then the hash), or take part in
Shared's round robin (``number`` is then the entry).
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
from subreplay.semantics.policies.kafka.share import is_share_group
from subreplay.semantics.timelines.timeline import Timeline
from subreplay.whatif.traffic.share_owners import find_sharers


@pass_by_reference
class Ownership(NamedTuple):
    """Segments and states of all scopes.

    The segments of scope s are ``segments[s]`` up to ``segments[s + 1]``, and begin at slots ``cuts``. The states of
    segment g are ``states[g]`` up to ``states[g + 1]``.

    A state is valid from ``since`` (ns) on. The change that began it moved its messages published before ``until``,
    when the next membership change of the dispatcher came. The consumers of a state are ``length`` elements of
    ``members`` from ``first`` on, as numbers of names.
    """

    segments: Ints
    cuts: Ints
    states: Ints
    since: Ints
    until: Ints
    first: Ints
    length: Ints
    members: Ints


class PlanOwners(NamedTuple):
    """An ownership, the names that its ``members`` number, and when (ns) the epochs of each scope began."""

    arrays: Ownership
    names: tuple[str, ...]
    starts: tuple[Ints, ...]


def build_owners(
    policy: Policy, timelines: Mapping[Scope, Timeline], scopes: Sequence[Scope], first: int
) -> PlanOwners:
    """Build the owners of ``scopes``.

    Changes at or before ``first`` (ns), when the first message came, moved nothing.

    Shared has no owners: entries go round robin over the connected consumers of the best priority level.
    ``getNextConsumer`` does this as long as all of them have permits (row P-SH-1). In the same way, records go round
    robin over the members of a share group that share their partition.
    """
    scope_timelines = [timelines[scope] for scope in scopes]
    names = tuple(sorted({consumer.label for timeline in scope_timelines for consumer in timeline.consumers}))
    number = {name: i for i, name in enumerate(names)}
    starts = tuple(np.array([epoch.start.at for epoch in timeline.epochs], np.int64) for timeline in scope_timelines)
    if is_share_group(policy):
        since, sharers = find_sharers(policy, scope_timelines, scopes)
        of_scope = [_build_turns(since, turns) for turns in sharers]
    else:
        known: dict[int, _ScopeOwnership] = {}  # dispatchers with the same events share one index
        for timeline, of_epochs in zip(scope_timelines, starts, strict=True):
            if id(timeline.index) not in known:
                round_robin = policy.routing == "any"
                known[id(timeline.index)] = (
                    _build_round_robin(timeline, of_epochs) if round_robin else _build_owned(timeline, of_epochs, first)
                )
        of_scope = [known[id(timeline.index)] for timeline in scope_timelines]
    members = [
        np.array([number[timeline.consumers[i].label] for i in ownership.members.tolist()], np.int64)
        for timeline, ownership in zip(scope_timelines, of_scope, strict=True)
    ]
    offsets = np.cumsum([0, *(len(ownership) for ownership in members)])
    arrays = Ownership(
        segments=np.cumsum([0, *(len(ownership.cuts) for ownership in of_scope)]),
        cuts=_concatenate([ownership.cuts for ownership in of_scope]),
        states=np.append(0, np.cumsum(_concatenate([ownership.states for ownership in of_scope]))),
        since=_concatenate([ownership.since for ownership in of_scope]),
        until=_concatenate([ownership.until for ownership in of_scope]),
        first=_concatenate([ownership.first + offset for ownership, offset in zip(of_scope, offsets, strict=False)]),
        length=_concatenate([ownership.length for ownership in of_scope]),
        members=_concatenate(members),
    )
    return PlanOwners(arrays, names, starts)


class _ScopeOwnership(NamedTuple):
    """The ownership of one dispatcher.

    ``states`` counts the states of each segment; ``members`` are consumer indexes.
    """

    cuts: Ints
    states: Ints
    since: Ints
    until: Ints
    first: Ints
    length: Ints
    members: Ints


def _build_owned(timeline: Timeline, starts: Ints, first: int) -> _ScopeOwnership:
    index = timeline.index
    segment, since = index.keys >> 32, starts[index.keys & 0xFFFF_FFFF]
    lasting = np.append((segment[1:] != segment[:-1]) | (since[1:] != since[:-1]), True)
    segment, since, code = segment[lasting], since[lasting], index.owners[lasting].astype(np.int64)
    instants = np.append(np.unique(starts), NEVER)
    until = np.where(since <= first, since, instants[np.searchsorted(instants[:-1], since, "right")])
    sizes = np.array([len(group) for group in index.groups], np.int64)
    grouped = len(timeline.consumers) + np.cumsum(sizes) - sizes  # the members of groups follow the consumers
    shared = np.flatnonzero(code < NOBODY)
    position, length = np.maximum(code, 0), (code != NOBODY).astype(np.int64)
    position[shared], length[shared] = grouped[-2 - code[shared]], sizes[-2 - code[shared]]
    members = np.array([*range(len(timeline.consumers)), *(i for group in index.groups for i in group)], np.int64)
    return _ScopeOwnership(
        index.cuts, np.bincount(segment, minlength=len(index.cuts)), since, until, position, length, members
    )


def _build_round_robin(timeline: Timeline, starts: Ints) -> _ScopeOwnership:
    lasting = np.flatnonzero(np.append(starts[1:] != starts[:-1], True))
    members_by_epoch = []
    for epoch in lasting.tolist():
        connected = timeline.list_connected(epoch)
        best = min((consumer.priority for consumer in connected), default=0)
        members_by_epoch.append([consumer.index for consumer in connected if consumer.priority == best])
    return _build_turns(starts[lasting], members_by_epoch)


def _build_turns(since: Ints, turns: Sequence[Sequence[int]]) -> _ScopeOwnership:
    """Build the ownership of a dispatcher whose entries go round robin over ``turns[n]`` from ``since[n]`` on."""
    length = np.array([len(turn) for turn in turns], np.int64)
    members = np.array([i for turn in turns for i in turn], np.int64)
    one = np.array([len(turns)])
    return _ScopeOwnership(np.array([UNKNOWN]), one, since, since, np.cumsum(length) - length, length, members)


def _concatenate(parts: Sequence[Ints]) -> Ints:
    return np.ascontiguousarray(np.concatenate([np.zeros(0, np.int64), *parts]), np.int64)
