"""What another release would do with the same members and the same traffic: every profile beside the one there is."""

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
from subreplay.simulation.pulsar.dispatcher_choice import dispatcher_of
from subreplay.whatif.planning.loads import Loads
from subreplay.whatif.scenario import plan

_WAITS: Mapping[DispatcherKind, str] = {
    DispatcherKind.SINGLE_ACTIVE: "nothing waits: the active consumer has the whole partition",
    DispatcherKind.SHARED: "nothing waits: any consumer may have any message",
    DispatcherKind.KEY_SHARED_JOINED: "a newcomer waits until all that was read before it joined is acknowledged",
    DispatcherKind.KEY_SHARED_DRAINING: "a hash waits until its former consumer has acknowledged what it has of it",
}


@dataclass(frozen=True)
class ProfileRow:
    """A profile beside the present one, at the end of the members' story.

    ``refused`` says why the profile does not have the policy or its options; nothing else is known then. ``keys`` of
    all ``of`` keys, with the part ``traffic`` of the work, have another owner than now. ``rejected`` joins are refused
    by the broker. ``busiest`` is the part of the traffic that one consumer has. ``waits`` says who waits for whom.
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
class _Told:
    owners: Ints
    rejected: int
    waits: str


def compare_profiles(
    name: str,
    options: Mapping[str, Any],
    now: str,
    events: Mapping[Scope, tuple[MembershipEvent, ...]],
    loads: Loads,
    things: Callable[[Policy], tuple[Ints, NDArray[np.uint32]]],
    profiles: Iterable[str] = tuple(KEYLESS),
) -> tuple[ProfileRow, ...]:
    """Every profile of the policy's system, the present one first.

    ``loads`` are of pairs of a dispatcher and a key: ``things`` says of each the position of its scope in ``events``
    and its hash under a policy. ``events`` are in order.
    """
    system = now.split("-")[0]
    others = [profile for profile in profiles if profile != now and profile.split("-")[0] in (system, "documented")]
    rows: list[ProfileRow] = []
    before: _Told | None = None
    total = max(float(loads.by_thing.sum()), 1.0)
    used = loads.by_thing > 0
    for profile in (now, *others):
        try:
            told = _told(make_policy(name, profile, **options), events, things)
        except ConfigError as error:
            if profile.split("-")[0] == system:  # the documents say nothing of many policies
                rows.append(ProfileRow(profile, str(error)))
            continue
        before = before or told
        moved = (told.owners != before.owners) & used
        parts = np.bincount(told.owners[told.owners >= 0], loads.by_thing[told.owners >= 0], 1)
        rows.append(
            ProfileRow(profile, None, int(moved.sum()), int(used.sum()), float(loads.by_thing[moved].sum() / total),
                       float(parts.max() / total), told.rejected, told.waits)
        )  # fmt: skip
    return tuple(rows)


def _told(
    policy: Policy,
    events: Mapping[Scope, tuple[MembershipEvent, ...]],
    things: Callable[[Policy], tuple[Ints, NDArray[np.uint32]]],
) -> _Told:
    folded = plan("upgrade", policy, events).timelines
    scope, hashes = things(policy)
    slots = policy.compute_slots(hashes)
    owners = np.full(len(scope), NOBODY, np.int64)
    names = sorted({consumer.label for timeline in folded.values() for consumer in timeline.consumers})
    for number, timeline in enumerate(folded[one] for one in events):
        mine = scope == number
        owners[mine] = _owners(policy, timeline, slots[mine], hashes[mine], names)
    refused = [epoch for timeline in folded.values() for epoch in timeline.epochs if epoch.rejected]
    waits = "" if policy.serving == "polled" else _waits(policy)
    return _Told(owners, len(refused), waits)


def _owners(policy: Policy, timeline: Timeline, slots: Ints, hashes: NDArray[np.uint32], names: list[str]) -> Ints:
    """Owners by name when the story ends; joins are numbered alike under all profiles, but names are what lasts."""
    last = np.full(len(slots), len(timeline.epochs) - 1, np.int32)
    found = timeline.find_owners(slots, hashes, last)
    number = np.array([*(names.index(consumer.label) for consumer in timeline.consumers), NOBODY], np.int64)
    return number[found]


def _waits(policy: Policy) -> str:
    if policy.serving == "key shared sticky" or policy.serving == "key failover":
        return "nothing waits for a former consumer"
    return _WAITS[dispatcher_of(policy)]
