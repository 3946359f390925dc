"""A traffic profile prepared for planning: the work of keys, of partitions, and of what producers route."""

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
from subreplay.whatif.planning.loads import WorkLoads
from subreplay.whatif.planning.partition_counts import ANY
from subreplay.whatif.traffic.producer_rerouting import find_recorded_partitions, find_routing_numbers
from subreplay.whatif.traffic.traffic_profile import NO_KEY, TrafficProfile

Hashes = NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class PlanTraffic:
    """Messages of a profile, each with its ``work``: messages (1), bytes, or ns of a consumer's time.

    Windows are ``width`` ns long. Raises ``NothingThere`` if there are no messages.
    """

    profile: TrafficProfile
    work: Ints
    width: int

    def __post_init__(self) -> None:
        if not len(self.profile):
            raise NoMatchingRows(
                "plan: the input has no messages, so there is nothing to plan. Check the input paths and "
                "the time range."
            )

    @property
    def span(self) -> int:
        """The duration of the traffic (ns)."""
        first, last = self.profile.extent
        return last + 1 - first

    def load_by_hash(self, policy: Policy) -> tuple[WorkLoads, Hashes]:
        """Return the loads of distinct sticky hashes, by which a key-based policy finds the owner, and the hashes."""
        hashes, thing = self.find_things(policy)
        return self.build_loads(thing, len(hashes)), hashes

    def find_things(self, policy: Policy) -> tuple[Hashes, Ints]:
        """Return the distinct sticky hashes, and the index of each message's hash (see ``KEYLESS`` for messages without
        a key)."""
        profile, rule = self.profile, KEYLESS[policy.profile]
        run_hashes = np.append(profile.keys.murmur3, np.uint32(murmur3_32(rule.constant)))[profile.runs.sticky]
        hashes, number = np.unique(run_hashes, return_inverse=True)
        if not (rule.per_message and len(profile.spread)):
            return hashes, np.asarray(number[profile.run_of], np.int64)
        message_hashes = run_hashes[profile.run_of]
        keyless = profile.runs.sticky[profile.run_of] == NO_KEY
        hashes, number = np.unique(np.where(keyless, profile.spread, message_hashes), return_inverse=True)
        return hashes, np.asarray(number, np.int64)

    @cached_property
    def partition_loads(self) -> WorkLoads:
        """The loads of topic partitions, in the order of ``profile.scopes``."""
        return self.build_loads(self.scope, len(self.profile.scopes))

    @cached_property
    def scope(self) -> Ints:
        """The topic partition of each message."""
        return np.asarray(self.profile.runs.scope[self.profile.run_of], np.int64)

    @cached_property
    def key_loads(self) -> WorkLoads:
        """The loads of the keys that applications set. The last load is that of messages without a key."""
        keys = len(self.profile.keys)
        return self.build_loads(np.asarray(self.profile.runs.key[self.profile.run_of], np.int64) % (keys + 1), keys + 1)

    def load_by_routing(self, scheme: str, parts: Sequence[Part] = ()) -> tuple[WorkLoads, Ints, Ints, Ints]:
        """Return the loads of what producers send to one partition: the messages of a key in each recorded partition.

        Also return for each load its key, its recorded partition, and the number whose remainder is the partition
        (``ANY``: no key decides). ``scheme`` and ``parts`` are those of ``PartitionRouting``.
        """
        runs, keys = self.profile.runs, len(self.profile.keys)
        numbers = np.where(runs.routed == NO_KEY, ANY, find_routing_numbers(self.profile, scheme, parts))
        key, now = np.asarray(runs.routed, np.int64) % (keys + 1), find_recorded_partitions(self.profile)
        _, first, thing = np.unique(key * (now.max() + 2) + now + 1, return_index=True, return_inverse=True)
        return self.build_loads(thing[self.profile.run_of], len(first)), key[first], now[first], numbers[first]

    def load_by_dispatcher(self, policy: Policy) -> tuple[WorkLoads, Ints, Hashes]:
        """Return the loads of sticky hashes in each topic partition, with the partition and the hash of each."""
        hashes, thing = self.find_things(policy)
        pairs, number = np.unique(self.scope * len(hashes) + thing, return_inverse=True)
        return self.build_loads(np.asarray(number), len(pairs)), pairs // len(hashes), hashes[pairs % len(hashes)]

    @cached_property
    def time_order(self) -> Ints:
        """The order of messages by time. Messages of one instant keep their order."""
        return np.argsort(self.profile.at, kind="stable")

    def name_key(self, thing: int) -> str:
        """Return the pseudonym by which reports name a key of ``key_loads``."""
        if thing >= len(self.profile.keys):
            return "messages without a key"
        return self.profile.keys.name_keys(slice(thing, thing + 1))[0]

    def build_loads(self, thing: Ints, things: int) -> WorkLoads:
        return WorkLoads.from_messages(thing, self.profile.at, self.work, things, self.width)
