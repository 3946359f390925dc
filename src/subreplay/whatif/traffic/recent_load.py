"""Measure the recent load that ``pulsar.key_failover`` uses: messages by slot, just before each join and leave."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from subreplay.hashing.murmur3 import murmur3_32
from subreplay.hashing.profiles import KEYLESS
from subreplay.rows.model.rows import MembershipEvent, Scope
from subreplay.semantics.policies.base import LoadMeasuringPolicy
from subreplay.semantics.policies.pulsar.slot_traffic import COUNTS, RecentWindows, SlotTraffic
from subreplay.whatif.traffic.producer_rerouting import PartitionRouting, reroute
from subreplay.whatif.traffic.profile_storage import iterate_profiles
from subreplay.whatif.traffic.traffic_profile import NO_KEY, Hashes, TrafficProfile

LOAD: Final = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        *COUNTS,
    ]
)


@dataclass(frozen=True)
class RecentLoad:
    """Counts the traffic in the windows before the membership events of every dispatcher. Instances are picklable."""

    policy: LoadMeasuringPolicy
    windows: Mapping[Scope, RecentWindows]
    routing: PartitionRouting | None = None

    @classmethod
    def for_events(
        cls,
        policy: LoadMeasuringPolicy,
        events: Mapping[Scope, tuple[MembershipEvent, ...]],
        routing: PartitionRouting | None = None,
    ) -> RecentLoad:
        """Prepare the windows before these membership events. ``routing`` reroutes the traffic (None: as recorded)."""
        return cls(policy, {scope: policy.list_windows(scope_rows) for scope, scope_rows in events.items()}, routing)

    def count_profile(self, profile: TrafficProfile) -> pa.Table:
        """Count the messages of a profile at their publish times, as ``LOAD`` rows."""
        if self.routing is not None:
            profile = reroute(profile, self.routing)
        slots = self.policy.compute_slots(_find_dispatch_hashes(profile, self.policy.profile))
        scopes = profile.runs.scope[profile.run_of]
        tables = []
        for number, scope in enumerate(profile.scopes):
            scope_rows = np.flatnonzero(scopes == number)
            counted = self.windows[scope].count_messages(profile.at[scope_rows], slots[scope_rows])
            n = counted.num_rows
            of_scope = [pa.array([scope.topic] * n, pa.string()), pa.array([scope.partition] * n, pa.int32())]
            tables.append(pa.table([*of_scope, *counted.columns], schema=LOAD))
        return pa.concat_tables([LOAD.empty_table(), *tables])

    def count_blocks(self, blocks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Count the messages of ``BLOCKS`` rows, as ``LOAD`` rows."""
        for profile in iterate_profiles(blocks):
            yield from self.count_profile(profile).to_batches()

    def measure_policy(self, rows: Iterable[Mapping[str, Any]]) -> LoadMeasuringPolicy:
        """Return the policy with the load of ``LOAD`` rows, summed or not."""
        tables: dict[Scope, list[Mapping[str, Any]]] = {scope: [] for scope in self.windows}
        for row in rows:
            tables[Scope(row["topic"], row["partition"])].append(row)
        return self.policy.with_traffic(
            {
                scope: SlotTraffic.from_counts(self.windows[scope], _build_table(scope_rows))
                for scope, scope_rows in tables.items()
            }
        )


def _find_dispatch_hashes(profile: TrafficProfile, release: str) -> Hashes:
    """Return the hash by which a broker of a release dispatches each message."""
    rule = KEYLESS[release]
    murmur3 = np.append(profile.keys.murmur3, np.uint32(murmur3_32(rule.constant)))  # the last element is for NO_KEY
    sticky = profile.runs.sticky[profile.run_of]
    spreads = rule.per_message and len(profile.spread) > 0
    return np.where(sticky == NO_KEY, profile.spread, murmur3[sticky]) if spreads else murmur3[sticky]


def _build_table(rows: list[Mapping[str, Any]]) -> pa.Table:
    return pa.table({name: [row[name] for row in rows] for name in COUNTS.names}, schema=COUNTS)
