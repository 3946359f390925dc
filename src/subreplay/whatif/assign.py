"""Assignment without time: who owns each message under each scenario, vectorised, in one hop over the log.

It answers how load would spread and what would move, not who waits for whom: every consumer counts as always having
permits. A message belongs to the epoch in which it was published.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from subreplay.hashing.identity import key_identity
from subreplay.hashing.murmur3 import murmur3_32, murmur3_32_array
from subreplay.model.columns import NEVER, Ints, column, gathered, ints
from subreplay.model.entry_keys import outer_sticky_keys, own_keys
from subreplay.model.range_table import NOBODY
from subreplay.model.rows import Scope
from subreplay.policies.base import Policy
from subreplay.timelines.timeline import Timeline
from subreplay.whatif.handovers import before_change

TRAFFIC: Final = pa.schema(
    [
        pa.field("scenario", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("window", pa.int64(), nullable=False),  # its start, ns
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("consumer", pa.string()),  # null: nobody owned it
        pa.field("before", pa.string()),  # who would have got it before the change that opened the epoch; null: first
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

    A message published at the very instant of a change belongs to what the change led to. What changed at or before
    ``first``, when the first message was published (ns), moved nothing.

    ``moves_of``: the plan of which is asked only what changed hands at its epochs. Its windows are all one, and so are
    the messages that stayed: a row for each window, key and owner is what summing costs.
    """

    plans: tuple[Plan, ...]
    width: int
    first: int
    moves_of: str | None = None

    def assign(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Messages (columns of ``LOG``) in any order -> ``TRAFFIC`` rows, summed within a batch."""
        profiles = {plan.policy.profile for plan in self.plans}
        for rows in gathered(batches):
            messages = _Messages.of(rows, profiles)
            for scope, mine in scopes_of(rows):
                yield from self._assign(scope, messages.at_rows(mine))

    def _assign(self, scope: Scope, messages: _Messages) -> Iterator[pa.RecordBatch]:
        published = messages.published
        common = {
            "window": published - published % self.width,
            "key_id": messages.key_id,
            "messages": np.ones(len(published), np.int64),
            "bytes": messages.size,
        }
        for plan in self.plans:
            timeline, hashes = plan.timelines[scope], messages.hashes[plan.policy.profile]
            epochs = np.asarray(timeline.epoch_at(published, np.full(len(published), NEVER)), np.int64)
            owners = owners_of(plan.policy, timeline, hashes, epochs, messages.entry)
            earlier = before_change(timeline, self.first)[epochs]
            before = owners_of(plan.policy, timeline, hashes, np.maximum(earlier, 0), messages.entry)
            before[(earlier < 0) | (plan.policy.routing == "any")] = NOBODY  # under Shared nobody owns, nothing moves
            given = common | {"epoch": epochs, "consumer": owners, "before": before}
            if plan.name == self.moves_of:
                moved = (owners != before) & (owners != NOBODY) & (before != NOBODY)
                given["window"] = np.zeros(len(published), np.int64)
                given |= {name: np.where(moved, given[name], NOBODY) for name in ("consumer", "before")}
                given["key_id"] = np.where(moved, messages.key_id, 0)
            groups = pa.table(given).group_by(list(_DIMENSIONS), use_threads=False)
            summed = groups.aggregate([("messages", "sum"), ("bytes", "sum")])
            yield from _traffic(plan.name, scope, timeline, summed)


class _Messages(NamedTuple):
    """What decides the owners of messages, and what is counted of them; ``hashes`` by profile."""

    published: Ints
    entry: Ints
    key_id: Ints
    size: Ints
    hashes: Mapping[str, NDArray[np.uint32]]

    @classmethod
    def of(cls, rows: pa.Table, profiles: Iterable[str]) -> _Messages:
        hashes = {profile: murmur3_32_array(outer_sticky_keys(rows, profile)) for profile in profiles}
        key_id = key_identity(own_keys(rows))
        return cls(ints(rows, "at"), ints(rows, "entry"), key_id, ints(rows, "size", 0), hashes)

    def at_rows(self, rows: Ints) -> _Messages:
        """Some of them."""
        hashes = {profile: mine[rows] for profile, mine in self.hashes.items()}
        return _Messages(self.published[rows], self.entry[rows], self.key_id[rows], self.size[rows], hashes)


def scopes_of(rows: pa.Table) -> Iterator[tuple[Scope, Ints]]:
    """Each dispatcher of messages (columns topic, partition), and the numbers of its rows."""
    topics, partitions = column(rows, "topic").dictionary_encode(), ints(rows, "partition")
    topic = np.asarray(topics.indices)
    order = np.lexsort((partitions, topic))
    ends = np.flatnonzero((np.diff(topic[order]) != 0) | (np.diff(partitions[order]) != 0)) + 1
    for mine in np.split(order, ends):
        yield Scope(topics.dictionary[topic[mine[0]]].as_py(), int(partitions[mine[0]])), mine


def owners_of(policy: Policy, timeline: Timeline, hashes: NDArray[np.uint32], epochs: Ints, entries: Ints) -> Ints:
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


def _traffic(name: str, scope: Scope, timeline: Timeline, summed: pa.Table) -> Iterator[pa.RecordBatch]:
    n = summed.num_rows
    names = pa.array([*(consumer.label for consumer in timeline.consumers), None], pa.string())  # the last is NOBODY's
    columns = {
        "scenario": pa.array([name] * n),
        "topic": pa.array([scope.topic] * n),
        "partition": pa.array([scope.partition] * n, pa.int32()),
        **{side: names.take(pa.array(ints(summed, side) % len(names))) for side in ("consumer", "before")},
        "messages": summed.column("messages_sum"),
        "bytes": summed.column("bytes_sum"),
    }
    arrays = [columns[f.name] if f.name in columns else summed.column(f.name) for f in TRAFFIC]
    yield from pa.table(arrays, schema=TRAFFIC).to_batches()


def slot_and_owner(timeline: Timeline, key: bytes, at: int) -> tuple[int, str | None]:
    """The slot of a key and its owner's label at a time (ns)."""
    hashes = np.array([murmur3_32(key)], np.uint32)
    slots = timeline.policy.slots(hashes)
    epoch = timeline.epoch_at(np.array([at]), np.array([0]))
    owner = int(timeline.owner_at(slots, hashes, epoch)[0])
    return int(slots[0]), timeline.consumers[owner].label if owner >= 0 else None
