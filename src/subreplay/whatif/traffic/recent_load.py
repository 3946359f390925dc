"""The recent load that ``pulsar.key_failover`` looks at: messages by slot, just before each join and leave."""

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
from subreplay.whatif.traffic.producer_rerouting import ProducerRouting, rerouted
from subreplay.whatif.traffic.profile_storage import profiles_of
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
    """Counts traffic in the windows before the membership events of every dispatcher; picklable."""

    policy: LoadMeasuringPolicy
    windows: Mapping[Scope, RecentWindows]
    routing: ProducerRouting | None = None

    @classmethod
    def of(
        cls,
        policy: LoadMeasuringPolicy,
        events: Mapping[Scope, tuple[MembershipEvent, ...]],
        routing: ProducerRouting | None = None,
    ) -> RecentLoad:
        """For the members that ``events`` tell of, and traffic that is sent as ``routing`` says (None: as it was)."""
        return cls(policy, {scope: policy.list_windows(mine) for scope, mine in events.items()}, routing)

    def count(self, profile: TrafficProfile) -> pa.Table:
        """``LOAD`` rows of the messages of a profile; a message counts at its time of publication."""
        if self.routing is not None:
            profile = rerouted(profile, self.routing)
        slots = self.policy.compute_slots(_hashes(profile, self.policy.profile))
        scopes = profile.runs.scope[profile.run_of]
        found = []
        for number, scope in enumerate(profile.scopes):
            mine = np.flatnonzero(scopes == number)
            counted = self.windows[scope].count_messages(profile.at[mine], slots[mine])
            n = counted.num_rows
            of_scope = [pa.array([scope.topic] * n, pa.string()), pa.array([scope.partition] * n, pa.int32())]
            found.append(pa.table([*of_scope, *counted.columns], schema=LOAD))
        return pa.concat_tables([LOAD.empty_table(), *found])

    def count_blocks(self, blocks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same of ``BLOCKS`` rows."""
        for profile in profiles_of(blocks):
            yield from self.count(profile).to_batches()

    def measured(self, rows: Iterable[Mapping[str, Any]]) -> LoadMeasuringPolicy:
        """The policy with the load of ``LOAD`` rows, summed or not."""
        found: dict[Scope, list[Mapping[str, Any]]] = {scope: [] for scope in self.windows}
        for row in rows:
            found[Scope(row["topic"], row["partition"])].append(row)
        return self.policy.with_traffic(
            {scope: SlotTraffic.from_counts(self.windows[scope], _table(mine)) for scope, mine in found.items()}
        )


def _hashes(profile: TrafficProfile, release: str) -> Hashes:
    """The hash by which a broker of a release dispatches each message."""
    rule = KEYLESS[release]
    murmur3 = np.append(profile.keys.murmur3, np.uint32(murmur3_32(rule.constant)))  # the last is NO_KEY's
    sticky = profile.runs.sticky[profile.run_of]
    spreads = rule.per_message and len(profile.spread) > 0
    return np.where(sticky == NO_KEY, profile.spread, murmur3[sticky]) if spreads else murmur3[sticky]


def _table(rows: list[Mapping[str, Any]]) -> pa.Table:
    return pa.table({name: [row[name] for row in rows] for name in COUNTS.names}, schema=COUNTS)
