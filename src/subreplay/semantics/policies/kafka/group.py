"""A consumer group between two rebalances: its members, their claims, and the next generation.

A group is immutable; every change returns a new group. Joins, evictions and new topics take effect in ``rebalance``,
which passes the members' claims to the assignor and increments the generation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from subreplay.errors import InputError
from subreplay.kernels.compiled import compiled
from subreplay.semantics.policies.kafka.assignor import (
    NO_CLAIM,
    NO_GENERATION,
    UNASSIGNED,
    Assignor,
    GroupMember,
    Ints,
    MemberClaim,
    Owners,
    Partitions,
    TopicPartition,
)
from subreplay.semantics.policies.kafka.roster import Roster

EMPTY_ROSTER = Roster.from_members(())


class RevokedClaims(NamedTuple):
    """The claims that members lost in a rebalance: ``claimed`` partitions, ``claimants`` by position; ``vanished`` are
    claims of deleted topics, by member id."""

    members: Roster
    partitions: Partitions
    claimed: Ints
    claimants: Ints
    vanished: Mapping[str, list[TopicPartition]]


@dataclass(frozen=True, eq=False)
class ConsumerGroup:
    """A group under one assignor.

    ``members`` are in join order, with their current claims. ``away`` are processes that were evicted but still run,
    the first evicted first. ``owners[n]`` is the position in ``assigned`` (the members of the last rebalance) of the
    owner of partition n, or ``UNASSIGNED``. ``revoked_claims`` are the claims that members of a cooperative group lost
    in that rebalance; if there are any, another rebalance follows. ``vanished`` are claims of topics that were deleted
    since.

    After a rebalance, a member claims its new assignment. With ``kafka.sticky``, an evicted process, or one that missed
    its assignment, still claims the old one (``kafka.md`` §4.1). A claim ends with its topic or partition, so a
    recreated topic is a new one. ``trusts_stale_claims`` keeps claims of partitions that a topic no longer has, as the
    real clients do, with their wrong results (§4.6).
    """

    assignor: Assignor
    partitions: Partitions = field(default_factory=lambda: Partitions.from_counts({}))
    members: Sequence[GroupMember] = EMPTY_ROSTER
    away: tuple[GroupMember, ...] = ()
    generation: int = 0
    owners: Owners = field(default_factory=lambda: np.zeros(0, np.int32))
    assigned: Sequence[GroupMember] = EMPTY_ROSTER
    revoked_claims: RevokedClaims | None = None
    vanished: Mapping[str, list[TopicPartition]] = field(default_factory=dict)
    trusts_stale_claims: bool = False

    def join(self, member: GroupMember) -> ConsumerGroup:
        """Add a new process, which claims nothing."""
        return self._replace_at(len(self.members), (_clear_claim(member),))

    def leave(self, member_id: str) -> ConsumerGroup:
        """Remove a member that closed, or whose process ended and whose session timed out."""
        return self._replace_member(member_id, ())

    def evict(self, member_id: str) -> ConsumerGroup:
        """Remove a member whose session timed out but whose process still runs and may come back."""
        gone = self.find_member(member_id)
        remembered = gone._replace(generation=NO_GENERATION) if self._keeps_claims else _clear_claim(gone)
        return replace(self._replace_member(member_id, ()), away=(*self.away, remembered))

    def rejoin(self, member: GroupMember) -> ConsumerGroup:
        """Add the process that was evicted first again, under a new member id."""
        if not self.away:
            raise InputError(f"member {member.member_id} cannot rejoin because no process was evicted")
        back = member._replace(generation=NO_GENERATION, claim=self.away[0].claim)
        return replace(self._replace_at(len(self.members), (back,)), away=self.away[1:])

    def restart(self, old: str, new: GroupMember, keep_assignment: bool) -> ConsumerGroup:
        """Restart a static member's process under a new member id; it takes the place of the old one.

        With ``keep_assignment``, in a stable group, it gets the cached assignment without a rebalance. Otherwise a
        rebalance is running, and it joins without a claim. On the server it inherits the target in both cases.
        """
        if keep_assignment or self._is_server_side:
            cached = self.find_assignment(old) or self.find_member(old)
            process = new._replace(generation=cached.generation, claim=cached.claim)
        else:
            process = _clear_claim(new)
        assigned = tuple(process if m.member_id == old else m for m in self.assigned)
        return replace(self._replace_member(old, (process,)), assigned=assigned)

    def subscribe(self, topics: Mapping[str, Collection[str]]) -> ConsumerGroup:
        """Change the topics of members, by id. A cooperative member gives up the other topics before it rejoins."""
        return replace(self, members=tuple(self._change_subscription(m, topics.get(m.member_id)) for m in self.members))

    def with_partitions(self, partitions: Partitions) -> ConsumerGroup:
        """Return the group with the topics that exist from now on."""
        old = self.partitions
        if self.trusts_stale_claims:
            partitions = partitions.widen_to(old)
        number = _map_numbers(old, partitions)
        owners = np.full(len(partitions), UNASSIGNED, np.int32)
        owners[number[number >= 0]] = self.owners[number >= 0] if len(self.owners) else UNASSIGNED

        def renumber_claims(members: Iterable[GroupMember]) -> tuple[GroupMember, ...]:
            return tuple(m._replace(claim=_renumber_claim(m.claim, number)) for m in members)

        return replace(
            self,
            partitions=partitions,
            owners=owners,
            members=renumber_claims(self.members),
            away=renumber_claims(self.away),
            assigned=renumber_claims(self.assigned),
            vanished={m.member_id: self._list_vanished(m, number) for m in self.members},
        )

    def rebalance(self, missed: Collection[str] = ()) -> ConsumerGroup:
        """Compute the next generation; ``missed`` are members that took part but did not receive their assignment.

        They send the new generation with their old claim next time. On the server, a member cannot miss its target.
        """
        roster = Roster.from_members(self.members)
        owners = self.assignor.assign(self.partitions, roster)
        generation = self.generation + 1
        assigned = roster.with_assignment(*_group_by_owner(owners, len(roster)), generation)
        informed: Sequence[GroupMember] = assigned
        if missed and not self._is_server_side:
            informed = tuple(
                self._miss_assignment(before, generation) if after.member_id in missed else after
                for before, after in zip(self.members, assigned, strict=True)
            )
        return replace(
            self,
            members=informed,
            generation=generation,
            owners=owners,
            assigned=assigned,
            revoked_claims=self._find_revoked_claims(roster, owners, missed) if self._is_cooperative else None,
            vanished={member_id: named for member_id, named in self.vanished.items() if member_id in missed},
        )

    @property
    def needs_rebalance(self) -> bool:
        """Whether another rebalance must follow to assign the partitions that were given up."""
        claims = self.revoked_claims
        return claims is not None and bool(len(claims.claimed) or claims.vanished)

    @cached_property
    def revoked(self) -> Mapping[str, list[TopicPartition]]:
        """The partitions that each member (by id) of a cooperative group has to give up."""
        if self.revoked_claims is None:
            return {}
        claims = self.revoked_claims
        gone = {member_id: list(named) for member_id, named in claims.vanished.items()}
        for position, named in zip(
            claims.claimants.tolist(), claims.partitions.list_names(claims.claimed), strict=True
        ):
            gone.setdefault(claims.members.ids[position], []).append(named)
        return gone

    def find_member(self, member_id: str) -> GroupMember:
        """Return the member with that id; raises InputError if there is none."""
        return self.members[self._find_position(member_id)]

    def find_assignment(self, member_id: str) -> GroupMember | None:
        """Return the member with that id after the last rebalance, or None if it was not part of it."""
        ids = Roster.from_members(self.assigned).ids
        return self.assigned[ids.index(member_id)] if member_id in ids else None

    @property
    def _keeps_claims(self) -> bool:
        return self.assignor.name == "kafka.sticky"

    @property
    def _is_server_side(self) -> bool:
        return self.assignor.rebalance == "server"

    @property
    def _is_cooperative(self) -> bool:
        return self.assignor.rebalance == "cooperative"

    def _list_vanished(self, member: GroupMember, number: Ints) -> list[TopicPartition]:
        claimed = member.claim.partitions
        return [*self.vanished.get(member.member_id, ()), *self.partitions.list_names(claimed[number[claimed] < 0])]

    def _miss_assignment(self, member: GroupMember, generation: int) -> GroupMember:
        """Return a member that did not receive its assignment: it has the new generation and its old claim."""
        old = member.claim._replace(generation=generation) if self._is_cooperative else member.claim
        return member._replace(generation=generation, claim=old)

    def _find_revoked_claims(self, roster: Roster, owners: Owners, missed: Collection[str]) -> RevokedClaims:
        """Return the claims that informed members had before and do not have now."""
        claimed, claimants = roster.find_lost_claims(owners)
        if missed:
            informed = ~np.isin(claimants, [n for n, member_id in enumerate(roster.ids) if member_id in missed])
            claimed, claimants = claimed[informed], claimants[informed]
        gone = {
            member_id: named
            for member_id, named in self.vanished.items()
            if named and member_id in roster.ids and member_id not in missed
        }
        return RevokedClaims(roster, self.partitions, claimed, claimants, gone)

    def _find_position(self, member_id: str) -> int:
        ids = Roster.from_members(self.members).ids
        if member_id not in ids:
            raise InputError(f"the group has no member {member_id}")
        return ids.index(member_id)

    def _replace_member(self, member_id: str, replacements: Sequence[GroupMember]) -> ConsumerGroup:
        return self._replace_at(self._find_position(member_id), replacements)

    def _replace_at(self, at: int, replacements: Sequence[GroupMember]) -> ConsumerGroup:
        return replace(self, members=Roster.from_members(self.members).replace_at(at, replacements))

    def _change_subscription(self, member: GroupMember, topics: Collection[str] | None) -> GroupMember:
        if topics is None:
            return member
        claim = member.claim
        if self._is_cooperative:
            wanted = np.array([topic in topics for topic in self.partitions.topics], bool)
            claim = claim._replace(partitions=claim.partitions[wanted[self.partitions.find_topics(claim.partitions)]])
        return member._replace(topics=frozenset(topics), claim=claim)


@compiled
def _group_by_owner(owners: Owners, members: int) -> tuple[Ints, Ints]:
    """Return the owned partitions, sorted by member, and the end of each member's part (a counting sort)."""
    free = np.zeros(members + 1, np.int64)
    for owner in owners:
        if owner >= 0:
            free[owner + 1] += 1
    free = np.cumsum(free)
    grouped = np.empty(free[members], np.int64)
    for partition in range(len(owners)):
        owner = owners[partition]
        if owner >= 0:
            grouped[free[owner]] = partition
            free[owner] += 1
    return grouped, free[:members]


def _clear_claim(member: GroupMember) -> GroupMember:
    return member._replace(generation=NO_GENERATION, claim=NO_CLAIM)


def _map_numbers(old: Partitions, new: Partitions) -> Ints:
    """Return the new number of every old partition, or -1 if it does not exist any more."""
    number_of = {topic: t for t, topic in enumerate(new.topics)}
    widths = np.diff(new.bounds)
    number = np.full(len(old), -1, np.int64)
    for topic, start, end in zip(old.topics, old.bounds[:-1].tolist(), old.bounds[1:].tolist(), strict=True):
        if (t := number_of.get(topic)) is not None:
            kept = min(end - start, int(widths[t]))
            number[start : start + kept] = np.arange(kept) + new.bounds[t]
    return number


def _renumber_claim(claim: MemberClaim, number: Ints) -> MemberClaim:
    numbers = number[claim.partitions]
    return claim._replace(partitions=np.sort(numbers[numbers >= 0]))
