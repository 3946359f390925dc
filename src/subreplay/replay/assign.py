"""Assignment without time: who owns each message under each scenario, vectorised, in one hop over the log.

It answers how load would spread and what would move, not who waits for whom: every consumer counts as always having
permits. A message belongs to the epoch in which it was published.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from subreplay.columns import Ints, column, gathered, ints
from subreplay.entry_keys import outer_sticky_keys, own_keys
from subreplay.hashing.identity import key_identity
from subreplay.hashing.murmur3 import murmur3_32, murmur3_32_array
from subreplay.model import Scope
from subreplay.policies.base import Policy
from subreplay.range_table import NOBODY
from subreplay.timeline import Timeline

TRAFFIC: Final = pa.schema(
    [
        pa.field("scenario", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("window", pa.int64(), nullable=False),  # its start, ns
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("consumer", pa.string()),  # null: nobody owned it
        pa.field("before", pa.string()),  # who would have got it one epoch earlier
        pa.field("key_id", pa.int64(), nullable=False),
        pa.field("messages", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
    ]
)
_DIMENSIONS: Final = ("window", "epoch", "consumer", "before", "key_id")


@dataclass(frozen=True)
class Plan:
    """One scenario, folded: its policy and the timeline of every dispatcher."""

    name: str
    policy: Policy
    timelines: Mapping[Scope, Timeline]


@dataclass(frozen=True)
class Assigner:
    """Assigns messages under every plan; windows are ``width`` ns long.

    ``moves_of``: the plan of which is asked only what changed hands at its epochs. Its windows are all one, and so are
    the keys that stayed: a row for each window and key is what summing costs.
    """

    plans: tuple[Plan, ...]
    width: int
    moves_of: str | None = None

    def assign(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Messages (columns of ``LOG``) in any order -> ``TRAFFIC`` rows, summed within a batch."""
        for rows in gathered(batches):
            for scope, part in scopes_of(rows):
                yield from self._assign(scope, part)

    def _assign(self, scope: Scope, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        own = own_keys(rows)
        common = {
            "window": (at := ints(rows, "at")) - at % self.width,
            "key_id": key_identity(own),
            "messages": np.ones(rows.num_rows, np.int64),
            "bytes": ints(rows, "size", 0),
        }
        hashes: dict[str, np.ndarray] = {}
        for plan in self.plans:
            profile = plan.policy.profile
            if profile not in hashes:
                hashes[profile] = murmur3_32_array(outer_sticky_keys(rows, profile))
            timeline = plan.timelines[scope]
            epochs = np.asarray(timeline.epoch_at(at, np.zeros(len(at), np.int64)), np.int64)
            owners = owners_of(plan.policy, timeline, hashes[profile], epochs, ints(rows, "entry"))
            before = owners_of(plan.policy, timeline, hashes[profile], np.maximum(epochs - 1, 0), ints(rows, "entry"))
            names = pa.array([c.name for c in timeline.consumers], pa.string())
            given = common | {"epoch": epochs, "consumer": _names(names, owners), "before": _names(names, before)}
            if plan.name == self.moves_of:
                given["window"] = np.zeros(len(at), np.int64)
                given["key_id"] = np.where(owners == before, 0, common["key_id"])
            table = pa.table(given)
            summed = table.group_by(list(_DIMENSIONS)).aggregate([("messages", "sum"), ("bytes", "sum")])
            yield from _traffic(plan.name, scope, summed)


def scopes_of(rows: pa.Table) -> Iterator[tuple[Scope, pa.Table]]:
    """Rows (columns topic, partition) by dispatcher."""
    topics, partitions = column(rows, "topic").dictionary_encode(), ints(rows, "partition")
    topic = np.asarray(topics.indices)
    order = np.lexsort((partitions, topic))
    ends = np.flatnonzero((np.diff(topic[order]) != 0) | (np.diff(partitions[order]) != 0)) + 1
    mine = rows.take(pa.array(order)) if len(ends) else rows
    for begin, end in itertools.pairwise([0, *ends.tolist(), len(order)]):
        first = order[begin]
        yield Scope(topics.dictionary[topic[first]].as_py(), int(partitions[first])), mine.slice(begin, end - begin)


def owners_of(policy: Policy, timeline: Timeline, hashes: np.ndarray, epochs: Ints, entries: Ints) -> Ints:
    """The consumer index that owns each message in each epoch.

    Shared has no owners: entries go round the connected consumers of the best priority level in turn, which is what
    ``getNextConsumer`` does as long as all of them have permits (row P-SH-1).
    """
    if policy.routing != "any":
        return np.asarray(timeline.owner_at(policy.slots(hashes), hashes, epochs.astype(np.int32)), np.int64)
    owners = np.full(len(epochs), NOBODY, np.int64)
    for epoch in np.unique(epochs).tolist():
        connected = timeline.connected(epoch)
        best = min((c.priority for c in connected), default=0)
        turn = np.array([c.index for c in connected if c.priority == best], np.int64)
        mine = epochs == epoch
        if len(turn):
            owners[mine] = turn[entries[mine] % len(turn)]
    return owners


def _names(names: pa.Array, indexes: Ints) -> pa.Array:
    return names.take(pa.array(indexes, mask=indexes == NOBODY))


def _traffic(name: str, scope: Scope, summed: pa.Table) -> Iterator[pa.RecordBatch]:
    n = summed.num_rows
    columns = {
        "scenario": pa.array([name] * n),
        "topic": pa.array([scope.topic] * n),
        "partition": pa.array([scope.partition] * n, pa.int32()),
        "messages": summed.column("messages_sum"),
        "bytes": summed.column("bytes_sum"),
    }
    arrays = [columns[f.name] if f.name in columns else summed.column(f.name) for f in TRAFFIC]
    yield from pa.table(arrays, schema=TRAFFIC).to_batches()


def slot_and_owner(timeline: Timeline, key: bytes, at: int) -> tuple[int, str | None]:
    """The slot of a key and its owner's name at a time (ns)."""
    hashes = np.array([murmur3_32(key)], np.uint32)
    slots = timeline.policy.slots(hashes)
    epoch = timeline.epoch_at(np.array([at]), np.array([0]))
    owner = int(timeline.owner_at(slots, hashes, epoch)[0])
    return int(slots[0]), timeline.consumers[owner].name if owner >= 0 else None
