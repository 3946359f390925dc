"""The loads of a policy over the traffic, in the form that every question uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from subreplay.rows.model.columns import Ints
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.base import Policy
from subreplay.whatif.planning.consumer_count import PolicyCandidate, Undivided
from subreplay.whatif.planning.growing_membership import (
    Membership,
    build_key_membership,
    build_partition_membership,
    iterate_growth,
    name_consumer,
)
from subreplay.whatif.planning.loads import WorkLoads
from subreplay.whatif.planning.planning_traffic import PlanTraffic
from subreplay.whatif.planning.questions.answer import Setup

NAMES_ASSUMED = (
    "Consumers are named c00001, c00002 and so on, join in this order and stay. With other names the hash ring differs."
)


def name_consumers(consumers: int) -> tuple[str, ...]:
    """Return the names of planned consumers."""
    return tuple(name_consumer(number) for number in range(consumers))


@dataclass(frozen=True)
class PolicyLoads:
    """A policy over the traffic: the loads of what it does not divide, and its members.

    ``members`` is None if the policy divides everything.
    """

    setup: Setup
    policy: Policy
    loads: WorkLoads
    thing: Ints
    undivided: Undivided
    members: Callable[[], Membership] | None
    useful: int | None

    @classmethod
    def prepare(cls, traffic: PlanTraffic, setup: Setup) -> PolicyLoads:
        """Prepare the loads of a setup. Raises ``ConfigError`` if ranges or recent traffic determine the owners."""
        policy = make_policy(setup.policy, setup.profile, **setup.options)
        scopes = traffic.profile.scopes
        if policy.routing == "partition":
            thing = traffic.scope
            return cls(setup, policy, traffic.partition_loads, thing, "partition",
                       lambda: build_partition_membership(policy, scopes), len(scopes))  # fmt: skip
        hashes, thing = traffic.find_things(policy)
        loads = traffic.build_loads(thing, len(hashes))
        if policy.routing == "any":
            return cls(setup, policy, loads, thing, "message", None, None)
        build_key_membership(policy, hashes[:0], scopes[0])  # raises now if the policy is not supported
        return cls(setup, policy, loads, thing, "key", lambda: build_key_membership(policy, hashes, scopes[0]), None)

    @property
    def candidate(self) -> PolicyCandidate:
        members = self.members
        owners: Callable[[int], Iterator[Ints]] | None = None
        if members is not None:
            owners = lambda first: iterate_growth(members(), first)  # noqa: E731
        return PolicyCandidate(self.setup.policy, self.undivided, owners, self.useful)
