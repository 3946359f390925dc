"""A consumer group between two rebalances: who is in it, what each member would claim, and the next generation.

A group is immutable; every change returns the next one. Joins, evictions and new topics only take effect in
``rebalance``, which takes the members' claims, asks the assignor and raises the generation.
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
    Claim,
    Ints,
    Member,
    Owners,
    Partitions,
    TopicPartition,
)
from subreplay.semantics.policies.kafka.roster import Roster

NOBODY = Roster.of(())


class GivenUp(NamedTuple):
    """What members claimed in a rebalance and do not have after it: ``claimed`` partitions, ``claimants`` by position;
    and what they claimed of topics that are no more, by member id."""

    members: Roster
    partitions: Partitions
    claimed: Ints
    claimants: Ints
    vanished: Mapping[str, list[TopicPartition]]


@dataclass(frozen=True, eq=False)
class Group:
    """A group under one assignor.

    ``members`` come in join order, with what each would claim now; ``away`` are processes that were evicted but live
    on, the first evicted first. ``owners[n]`` is the position in ``assigned`` (the members of the last rebalance) of
    the owner of partition n of ``partitions``, or ``UNASSIGNED``. ``given_up`` is what the members of a cooperative
    group claimed in that rebalance and do not have any more; if there is anything, another rebalance follows.
    ``vanished`` is what members still claim of topics that were deleted since.

    A member claims what it last heard of: after a rebalance its new assignment; with ``kafka.sticky`` a process that
    was evicted, or missed its assignment, still claims the old one (``kafka.md`` §4.1). A claim ends with its topic or
    partition, so that a topic created again is a new one; ``trusts_stale_claims`` keeps claims of partitions that a
    topic has no more, as the real clients do, and with them their nonsense (§4.6).
    """

    assignor: Assignor
    partitions: Partitions = field(default_factory=lambda: Partitions.of({}))
    members: Sequence[Member] = NOBODY
    away: tuple[Member, ...] = ()
    generation: int = 0
    owners: Owners = field(default_factory=lambda: np.zeros(0, np.int32))
    assigned: Sequence[Member] = NOBODY
    given_up: GivenUp | None = None
    vanished: Mapping[str, list[TopicPartition]] = field(default_factory=dict)
    trusts_stale_claims: bool = False

    def join(self, member: Member) -> Group:
        """A new process joins; it claims nothing."""
        return self._replaced(len(self.members), (_fresh(member),))

    def leave(self, member_id: str) -> Group:
        """A member is gone for good: closed, or its process ended and the session timed out."""
        return self._with(member_id, ())

    def evict(self, member_id: str) -> Group:
        """The session of a member timed out, but its process lives on and may come back."""
        gone = self.member(member_id)
        memory = gone._replace(generation=NO_GENERATION) if self._remembers else _fresh(gone)
        return replace(self._with(member_id, ()), away=(*self.away, memory))

    def rejoin(self, member: Member) -> Group:
        """The process that was evicted first comes back under a new member id."""
        if not self.away:
            raise InputError(f"member {member.member_id} cannot come back: no process was evicted")
        back = member._replace(generation=NO_GENERATION, claim=self.away[0].claim)
        return replace(self._replaced(len(self.members), (back,)), away=self.away[1:])

    def restart(self, old: str, new: Member, quietly: bool) -> Group:
        """A static member's process restarts under a new member id, and takes the old one's place.

        ``quietly``, in a stable group, it is given the cached assignment and nothing is rebalanced; otherwise a
        rebalance is running, and it joins that without a claim. On the server it inherits the target either way.
        """
        if quietly or self._on_server:
            cached = self.assignment(old) or self.member(old)
            process = new._replace(generation=cached.generation, claim=cached.claim)
        else:
            process = _fresh(new)
        assigned = tuple(process if m.member_id == old else m for m in self.assigned)
        return replace(self._with(old, (process,)), assigned=assigned)

    def subscribe(self, topics: Mapping[str, Collection[str]]) -> Group:
        """Members, by id, change what they subscribe to; a cooperative one gives up the rest before it rejoins."""
        return replace(self, members=tuple(self._subscribed(m, topics.get(m.member_id)) for m in self.members))

    def over(self, partitions: Partitions) -> Group:
        """The topics that exist from now on."""
        old = self.partitions
        if self.trusts_stale_claims:
            partitions = partitions.with_room_of(old)
        number = _renumbering(old, partitions)
        owners = np.full(len(partitions), UNASSIGNED, np.int32)
        owners[number[number >= 0]] = self.owners[number >= 0] if len(self.owners) else UNASSIGNED

        def renumbered(members: Iterable[Member]) -> tuple[Member, ...]:
            return tuple(m._replace(claim=_translated(m.claim, number)) for m in members)

        return replace(
            self,
            partitions=partitions,
            owners=owners,
            members=renumbered(self.members),
            away=renumbered(self.away),
            assigned=renumbered(self.assigned),
            vanished={m.member_id: self._vanished(m, number) for m in self.members},
        )

    def rebalance(self, missed: Collection[str] = ()) -> Group:
        """The next generation; ``missed`` are members that took part but never received their assignment.

        They send the new generation with their old claim next time; on the server a target is nobody's to miss.
        """
        roster = Roster.of(self.members)
        owners = self.assignor.assign(self.partitions, roster)
        generation = self.generation + 1
        assigned = roster.given(*_grouped(owners, len(roster)), generation)
        heard: Sequence[Member] = assigned
        if missed and not self._on_server:
            heard = tuple(
                self._unaware(before, generation) if after.member_id in missed else after
                for before, after in zip(self.members, assigned, strict=True)
            )
        return replace(
            self,
            members=heard,
            generation=generation,
            owners=owners,
            assigned=assigned,
            given_up=self._given_up(roster, owners, missed) if self._cooperative else None,
            vanished={member_id: named for member_id, named in self.vanished.items() if member_id in missed},
        )

    @property
    def unsettled(self) -> bool:
        """Whether another rebalance follows, to hand on what was given up."""
        it = self.given_up
        return it is not None and bool(len(it.claimed) or it.vanished)

    @cached_property
    def revoked(self) -> Mapping[str, list[TopicPartition]]:
        """What each member (by id) of a cooperative group has to give up."""
        if self.given_up is None:
            return {}
        it = self.given_up
        gone = {member_id: list(named) for member_id, named in it.vanished.items()}
        for position, named in zip(it.claimants.tolist(), it.partitions.named(it.claimed), strict=True):
            gone.setdefault(it.members.ids[position], []).append(named)
        return gone

    def member(self, member_id: str) -> Member:
        """The member of that id; raises InputError if there is none."""
        return self.members[self._position(member_id)]

    def assignment(self, member_id: str) -> Member | None:
        """The member of that id as the last rebalance left it; None if it was not in it."""
        ids = Roster.of(self.assigned).ids
        return self.assigned[ids.index(member_id)] if member_id in ids else None

    @property
    def _remembers(self) -> bool:
        return self.assignor.name == "kafka.sticky"

    @property
    def _on_server(self) -> bool:
        return self.assignor.rebalance == "server"

    @property
    def _cooperative(self) -> bool:
        return self.assignor.rebalance == "cooperative"

    def _vanished(self, member: Member, number: Ints) -> list[TopicPartition]:
        claimed = member.claim.partitions
        return [*self.vanished.get(member.member_id, ()), *self.partitions.named(claimed[number[claimed] < 0])]

    def _unaware(self, member: Member, generation: int) -> Member:
        """A member that never received its assignment: it has the new generation, and what it had."""
        old = member.claim._replace(generation=generation) if self._cooperative else member.claim
        return member._replace(generation=generation, claim=old)

    def _given_up(self, roster: Roster, owners: Owners, missed: Collection[str]) -> GivenUp:
        """What members that heard of their assignment claimed before and do not have now."""
        claimed, claimants = roster.lost(owners)
        if missed:
            heard = ~np.isin(claimants, [n for n, member_id in enumerate(roster.ids) if member_id in missed])
            claimed, claimants = claimed[heard], claimants[heard]
        gone = {
            member_id: named
            for member_id, named in self.vanished.items()
            if named and member_id in roster.ids and member_id not in missed
        }
        return GivenUp(roster, self.partitions, claimed, claimants, gone)

    def _position(self, member_id: str) -> int:
        ids = Roster.of(self.members).ids
        if member_id not in ids:
            raise InputError(f"the group has no member {member_id}")
        return ids.index(member_id)

    def _with(self, member_id: str, instead: Sequence[Member]) -> Group:
        return self._replaced(self._position(member_id), instead)

    def _replaced(self, at: int, instead: Sequence[Member]) -> Group:
        return replace(self, members=Roster.of(self.members).replaced(at, instead))

    def _subscribed(self, member: Member, topics: Collection[str] | None) -> Member:
        if topics is None:
            return member
        claim = member.claim
        if self._cooperative:
            wanted = np.array([topic in topics for topic in self.partitions.topics], bool)
            claim = claim._replace(partitions=claim.partitions[wanted[self.partitions.topic_of(claim.partitions)]])
        return member._replace(topics=frozenset(topics), claim=claim)


@compiled
def _grouped(owners: Owners, members: int) -> tuple[Ints, Ints]:
    """The owned partitions, sorted by member, and where each member's end; a counting sort."""
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


def _fresh(member: Member) -> Member:
    return member._replace(generation=NO_GENERATION, claim=NO_CLAIM)


def _renumbering(old: Partitions, new: Partitions) -> Ints:
    """The new number of every old partition; -1 where there is no room for it any more."""
    number_of = {topic: t for t, topic in enumerate(new.topics)}
    room = np.diff(new.bounds)
    number = np.full(len(old), -1, np.int64)
    for topic, start, end in zip(old.topics, old.bounds[:-1].tolist(), old.bounds[1:].tolist(), strict=True):
        if (t := number_of.get(topic)) is not None:
            kept = min(end - start, int(room[t]))
            number[start : start + kept] = np.arange(kept) + new.bounds[t]
    return number


def _translated(claim: Claim, number: Ints) -> Claim:
    numbers = number[claim.partitions]
    return claim._replace(partitions=np.sort(numbers[numbers >= 0]))
