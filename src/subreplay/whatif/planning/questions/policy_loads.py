"""A policy over the traffic, as every question looks at it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from subreplay.rows.model.columns import Ints
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.base import Policy
from subreplay.whatif.planning.consumer_count import Candidate, Undivided
from subreplay.whatif.planning.growing_membership import Membership, consumer_name, growing, of_keys, of_partitions
from subreplay.whatif.planning.loads import Loads
from subreplay.whatif.planning.planning_traffic import Traffic
from subreplay.whatif.planning.questions.answer import Setup

NAMED = "Consumers are named c00001, c00002 and so on, join in this order and stay; other names make another ring."


def names(consumers: int) -> tuple[str, ...]:
    """What so many consumers are called in plans."""
    return tuple(consumer_name(number) for number in range(consumers))


@dataclass(frozen=True)
class Served:
    """A policy over the traffic: the loads of what it does not divide, and its members; None where it divides all."""

    setup: Setup
    policy: Policy
    loads: Loads
    thing: Ints
    undivided: Undivided
    members: Callable[[], Membership] | None
    useful: int | None

    @classmethod
    def of(cls, traffic: Traffic, setup: Setup) -> Served:
        """Raises ``ConfigError`` where ranges or recent traffic decide."""
        policy = make_policy(setup.policy, setup.profile, **setup.options)
        scopes = traffic.profile.scopes
        if policy.routing == "partition":
            thing = traffic.scope
            return cls(setup, policy, traffic.of_scopes, thing, "partition",
                       lambda: of_partitions(policy, scopes), len(scopes))  # fmt: skip
        hashes, thing = traffic.things(policy)
        loads = traffic.loads(thing, len(hashes))
        if policy.routing == "any":
            return cls(setup, policy, loads, thing, "message", None, None)
        of_keys(policy, hashes[:0], scopes[0])  # it is refused now
        return cls(setup, policy, loads, thing, "key", lambda: of_keys(policy, hashes, scopes[0]), None)

    @property
    def candidate(self) -> Candidate:
        members = self.members
        owners: Callable[[int], Iterator[Ints]] | None = None
        if members is not None:
            owners = lambda first: growing(members(), first)  # noqa: E731
        return Candidate(self.setup.policy, self.undivided, owners, self.useful)
