"""Compare every profile with the present one: what another release would do with the same members and traffic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subreplay.errors import ConfigError
from subreplay.hashing.profiles import KEYLESS
from subreplay.rows.model.columns import Ints
from subreplay.rows.model.range_table import NOBODY
from subreplay.rows.model.rows import MembershipEvent, Scope
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.base import Policy
from subreplay.semantics.timelines.timeline import Timeline
from subreplay.simulation.pulsar.broker.dispatch_rules import DispatcherKind
from subreplay.simulation.pulsar.dispatcher_choice import choose_dispatcher
from subreplay.whatif.planning.loads import WorkLoads
from subreplay.whatif.scenario import build_plan

_WAITS: Mapping[DispatcherKind, str] = {
    DispatcherKind.SINGLE_ACTIVE: "nothing waits: the active consumer receives the whole partition",
    DispatcherKind.SHARED: "nothing waits: any consumer may receive any message",
    DispatcherKind.KEY_SHARED_JOINED: "a new consumer waits until everything read before it joined is acknowledged",
    DispatcherKind.KEY_SHARED_DRAINING: (
        "a hash waits until its previous consumer has acknowledged its messages of that hash"
    ),
}


@dataclass(frozen=True)
class ProfileRow:
    """A profile compared with the present one, after all recorded events of the members.

    ``refused`` says why the profile does not support the policy or its options; nothing else is known then. ``keys`` of
    all ``of`` keys, with the part ``traffic`` of the work, have another owner than now. ``rejected`` joins are rejected
    by the broker. ``busiest`` is the part of the traffic that one consumer receives. ``waits`` says what waits for
    what.
    """

    profile: str
    refused: str | None = None
    keys: int = 0
    of: int = 0
    traffic: float = 0.0
    busiest: float = 0.0
    rejected: int = 0
    waits: str = ""


@dataclass(frozen=True)
class _ProfileOwners:
    owners: Ints
    rejected: int
    waits: str


def compare_profiles(
    name: str,
    options: Mapping[str, Any],
    now: str,
    events: Mapping[Scope, tuple[MembershipEvent, ...]],
    loads: WorkLoads,
    things: Callable[[Policy], tuple[Ints, NDArray[np.uint32]]],
    profiles: Iterable[str] = tuple(KEYLESS),
) -> tuple[ProfileRow, ...]:
    """Evaluate every profile of the policy's system, the present one first.

    ``loads`` are of pairs of a dispatcher and a key. ``things`` returns for each pair the position of its scope in
    ``events``, and its hash under a policy. ``events`` are in order.
    """
    system = now.split("-")[0]
    others = [profile for profile in profiles if profile != now and profile.split("-")[0] in (system, "documented")]
    rows: list[ProfileRow] = []
    before: _ProfileOwners | None = None
    total = max(float(loads.by_thing.sum()), 1.0)
    used = loads.by_thing > 0
    for profile in (now, *others):
        try:
            current = _compute_owners(make_policy(name, profile, **options), events, things)
        except ConfigError as error:
            if profile.split("-")[0] == system:  # the documents do not describe many policies
                rows.append(ProfileRow(profile, str(error)))
            continue
        before = before or current
        moved = (current.owners != before.owners) & used
        parts = np.bincount(current.owners[current.owners >= 0], loads.by_thing[current.owners >= 0], 1)
        rows.append(
            ProfileRow(profile, None, int(moved.sum()), int(used.sum()), float(loads.by_thing[moved].sum() / total),
                       float(parts.max() / total), current.rejected, current.waits)
        )  # fmt: skip
    return tuple(rows)


def _compute_owners(
    policy: Policy,
    events: Mapping[Scope, tuple[MembershipEvent, ...]],
    things: Callable[[Policy], tuple[Ints, NDArray[np.uint32]]],
) -> _ProfileOwners:
    timelines = build_plan("upgrade", policy, events).timelines
    scope, hashes = things(policy)
    slots = policy.compute_slots(hashes)
    owners = np.full(len(scope), NOBODY, np.int64)
    names = sorted({consumer.label for timeline in timelines.values() for consumer in timeline.consumers})
    for number, timeline in enumerate(timelines[one] for one in events):
        in_scope = scope == number
        owners[in_scope] = _find_owners_by_name(policy, timeline, slots[in_scope], hashes[in_scope], names)
    rejections = [epoch for timeline in timelines.values() for epoch in timeline.epochs if epoch.rejected]
    waits = "" if policy.serving == "polled" else _describe_waits(policy)
    return _ProfileOwners(owners, len(rejections), waits)


def _find_owners_by_name(
    policy: Policy, timeline: Timeline, slots: Ints, hashes: NDArray[np.uint32], names: list[str]
) -> Ints:
    """Return the final owners as indexes in ``names``: joins may be numbered differently, names are comparable."""
    last = np.full(len(slots), len(timeline.epochs) - 1, np.int32)
    joins = timeline.find_owners(slots, hashes, last)
    number = np.array([*(names.index(consumer.label) for consumer in timeline.consumers), NOBODY], np.int64)
    return number[joins]


def _describe_waits(policy: Policy) -> str:
    if policy.serving == "key shared sticky" or policy.serving == "key failover":
        return "nothing waits for a previous consumer"
    return _WAITS[choose_dispatcher(policy)]
