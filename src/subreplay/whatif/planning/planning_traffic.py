"""A traffic profile as plans look at it: the work of keys, of partitions, of what producers route."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from subreplay.errors import NoMatchingRows
from subreplay.hashing.murmur3 import murmur3_32
from subreplay.hashing.profiles import KEYLESS
from subreplay.rows.model.columns import Ints
from subreplay.rows.model.partitioners import Part
from subreplay.semantics.policies.base import Policy
from subreplay.whatif.planning.loads import Loads
from subreplay.whatif.planning.partition_counts import ANY
from subreplay.whatif.traffic.producer_rerouting import numbers_of, recorded
from subreplay.whatif.traffic.traffic_profile import NO_KEY, TrafficProfile

Hashes = NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class Traffic:
    """Messages of a profile, each with its ``work``: messages (1), bytes, or ns of a consumer's time.

    Windows are ``width`` ns long. Raises ``NothingThere`` where there are no messages.
    """

    profile: TrafficProfile
    work: Ints
    width: int

    def __post_init__(self) -> None:
        if not len(self.profile):
            raise NoMatchingRows("plan: there are no messages to plan with")

    @property
    def span(self) -> int:
        """How long the traffic lasts (ns)."""
        first, last = self.profile.extent
        return last + 1 - first

    def of_hashes(self, policy: Policy) -> tuple[Loads, Hashes]:
        """The loads of distinct sticky hashes, by which a policy that goes by keys finds the owner; and the hashes."""
        hashes, thing = self.things(policy)
        return self.loads(thing, len(hashes)), hashes

    def things(self, policy: Policy) -> tuple[Hashes, Ints]:
        """Distinct sticky hashes, and of each message which of them it has (its sticky key's, see ``KEYLESS``)."""
        profile, rule = self.profile, KEYLESS[policy.profile]
        of_runs = np.append(profile.keys.murmur3, np.uint32(murmur3_32(rule.constant)))[profile.runs.sticky]
        hashes, number = np.unique(of_runs, return_inverse=True)
        if not (rule.per_message and len(profile.spread)):
            return hashes, np.asarray(number[profile.run_of], np.int64)
        each = of_runs[profile.run_of]
        keyless = profile.runs.sticky[profile.run_of] == NO_KEY
        hashes, number = np.unique(np.where(keyless, profile.spread, each), return_inverse=True)
        return hashes, np.asarray(number, np.int64)

    @cached_property
    def of_scopes(self) -> Loads:
        """The loads of topic partitions, in the order of ``profile.scopes``."""
        return self.loads(self.scope, len(self.profile.scopes))

    @cached_property
    def scope(self) -> Ints:
        """The topic partition of each message."""
        return np.asarray(self.profile.runs.scope[self.profile.run_of], np.int64)

    @cached_property
    def of_keys(self) -> Loads:
        """The loads of the keys that applications meant; the last is that of messages without one."""
        keys = len(self.profile.keys)
        return self.loads(np.asarray(self.profile.runs.key[self.profile.run_of], np.int64) % (keys + 1), keys + 1)

    def routed(self, scheme: str, parts: Sequence[Part] = ()) -> tuple[Loads, Ints, Ints, Ints]:
        """The loads of what producers send to one partition: the messages of a key in each recorded partition; and of
        each its key, its recorded partition, and the number whose remainder is the partition (``ANY``: no key decides).

        ``scheme`` and ``parts`` are those of ``ProducerRouting``.
        """
        runs, keys = self.profile.runs, len(self.profile.keys)
        numbers = np.where(runs.routed == NO_KEY, ANY, numbers_of(self.profile, scheme, parts))
        key, now = np.asarray(runs.routed, np.int64) % (keys + 1), recorded(self.profile)
        _, first, thing = np.unique(key * (now.max() + 2) + now + 1, return_index=True, return_inverse=True)
        return self.loads(thing[self.profile.run_of], len(first)), key[first], now[first], numbers[first]

    def of_dispatchers(self, policy: Policy) -> tuple[Loads, Ints, Hashes]:
        """The loads of sticky hashes in each topic partition, with the partition and the hash of each."""
        hashes, thing = self.things(policy)
        pairs, number = np.unique(self.scope * len(hashes) + thing, return_inverse=True)
        return self.loads(np.asarray(number), len(pairs)), pairs // len(hashes), hashes[pairs % len(hashes)]

    @cached_property
    def in_time(self) -> Ints:
        """Messages in order of time; those of one instant as they stand."""
        return np.argsort(self.profile.at, kind="stable")

    def key_word(self, thing: int) -> str:
        """The digest by which reports name a key of ``of_keys``."""
        if thing >= len(self.profile.keys):
            return "messages without a key"
        return self.profile.keys.words(slice(thing, thing + 1))[0]

    def loads(self, thing: Ints, things: int) -> Loads:
        return Loads.of(thing, self.profile.at, self.work, things, self.width)
