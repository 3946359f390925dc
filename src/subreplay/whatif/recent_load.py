"""The recent load that ``pulsar.key_failover`` looks at: messages by slot, just before each join and leave."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from subreplay.hashing.murmur3 import murmur3_32_array
from subreplay.model.columns import gathered, ints
from subreplay.model.entry_keys import outer_sticky_keys
from subreplay.model.rows import MembershipEvent, Scope
from subreplay.policies.base import Measuring
from subreplay.policies.pulsar.slot_traffic import COUNTS, RecentWindows, SlotTraffic
from subreplay.whatif.assign import scopes_of

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

    policy: Measuring
    windows: Mapping[Scope, RecentWindows]

    @classmethod
    def of(cls, policy: Measuring, events: Mapping[Scope, tuple[MembershipEvent, ...]]) -> RecentLoad:
        """For the members that ``events`` tell of."""
        return cls(policy, {scope: policy.windows(mine) for scope, mine in events.items()})

    def count(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Messages (columns of ``LOG``) in any order -> ``LOAD`` rows, summed within a batch.

        A message counts at its time of publication.
        """
        for rows in gathered(batches):
            published = ints(rows, "at")
            slots = self.policy.slots(murmur3_32_array(outer_sticky_keys(rows, self.policy.profile)))
            for scope, mine in scopes_of(rows):
                counted = self.windows[scope].count(published[mine], slots[mine])
                n = counted.num_rows
                of_scope = [pa.array([scope.topic] * n, pa.string()), pa.array([scope.partition] * n, pa.int32())]
                yield from pa.table([*of_scope, *counted.columns], schema=LOAD).to_batches()

    def measured(self, rows: Iterable[Mapping[str, Any]]) -> Measuring:
        """The policy with the load of ``LOAD`` rows, summed or not."""
        found: dict[Scope, list[Mapping[str, Any]]] = {scope: [] for scope in self.windows}
        for row in rows:
            found[Scope(row["topic"], row["partition"])].append(row)
        return self.policy.with_traffic(
            {scope: SlotTraffic.of(self.windows[scope], _table(mine)) for scope, mine in found.items()}
        )


def _table(rows: list[Mapping[str, Any]]) -> pa.Table:
    return pa.table({name: [row[name] for row in rows] for name in COUNTS.names}, schema=COUNTS)
