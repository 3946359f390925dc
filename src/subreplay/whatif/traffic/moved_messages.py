"""What changed hands, by change: the messages that an evaluation noted, as rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.kernels.binary_search import count_up_to
from subreplay.kernels.inlining import operation
from subreplay.rows.model.columns import NEVER, Ints
from subreplay.whatif.traffic.ownership_arrays import Owners
from subreplay.whatif.traffic.traffic_profile import Indexes, TrafficProfile

MOVES = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("before", pa.string()),  # null: nobody
        pa.field("consumer", pa.string()),
        pa.field("messages", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("keys", pa.int64(), nullable=False),
    ]
)
"""Messages by what they passed from whom to whom, and in which epoch."""
NOTED = ("begin", "end", "scope", "key", "before", "consumer")
"""What an evaluation notes of a piece of a run: its messages from ``begin`` up to ``end``, their topic partition and
key, and the numbers of two consumers; one more than there are names is nobody's."""
_BY, _SUMS = MOVES.names[:5], MOVES.names[5:]


def moves_of(profile: TrafficProfile, owners: Owners, noted: Ints, *, every: bool) -> pa.Table:
    """``MOVES`` of the pieces of runs that are ``noted`` (columns ``NOTED``).

    ``every``: of the other messages too, by epoch alone: such rows have neither ``before`` nor ``consumer``, and count
    no keys.
    """
    told = _noted(profile, owners, noted)
    if not every:
        return told
    nobody = pa.nulls(told.num_rows, pa.string())
    less = [*told.columns[:3], nobody, nobody, *(pc.negate(told[name]) for name in ("messages", "bytes"))]
    counted = pa.table([*less, pa.array(np.zeros(told.num_rows, np.int64))], schema=MOVES)
    rows = summed(pa.concat_tables([told, _by_epoch(profile, owners), counted]))
    return rows.filter(pc.not_equal(rows["messages"], 0))


def _noted(profile: TrafficProfile, owners: Owners, noted: Ints) -> pa.Table:
    begin, end, scope, *whose = noted
    piece, epoch, messages, size = _cut_by_epochs(profile, owners, begin, end, scope)
    key, before, consumer = (column[piece] for column in whose)
    told = {"scope": scope[piece], "epoch": epoch, "before": before, "consumer": consumer, "key": key}
    keyed = pa.table({**told, "messages": messages, "bytes": size})
    by_key = keyed.group_by([*told], use_threads=False).aggregate([("messages", "sum"), ("bytes", "sum")])
    names = pa.array([*owners.names, None], pa.string())
    who = [names.take(by_key[side].combine_chunks()) for side in ("before", "consumer")]
    ones = pa.array(np.ones(by_key.num_rows, np.int64))
    topic_partitions = _topic_partitions(profile, by_key["scope"].combine_chunks())
    sums = [by_key["messages_sum"], by_key["bytes_sum"], ones]
    return summed(pa.table([*topic_partitions, by_key["epoch"], *who, *sums], schema=MOVES))


def _by_epoch(profile: TrafficProfile, owners: Owners) -> pa.Table:
    runs, bounds = profile.runs, _bounds(owners)
    piece, epoch, *counts = _cut_by_epochs(profile, owners, runs.begin, runs.end, runs.scope)
    number = bounds[runs.scope[piece]] + epoch
    messages, size = (np.bincount(number, count, bounds[-1]).astype(np.int64) for count in counts)
    found = np.flatnonzero(messages)
    home = np.searchsorted(bounds, found, "right") - 1
    topic_partitions = _topic_partitions(profile, pa.array(home))
    nobody, no_keys = pa.nulls(len(found), pa.string()), np.zeros(len(found), np.int64)
    rows = [*topic_partitions, found - bounds[home], nobody, nobody, messages[found], size[found], no_keys]
    return pa.table(rows, schema=MOVES)


def summed(moves: pa.Table) -> pa.Table:
    """The same, with one row for each combination."""
    sums = moves.group_by(_BY, use_threads=False).aggregate([(name, "sum") for name in _SUMS])
    return sums.select([*_BY, *(f"{name}_sum" for name in _SUMS)]).rename_columns(MOVES.names).cast(MOVES)


def _topic_partitions(profile: TrafficProfile, scope: pa.Array) -> list[pa.Array]:
    topics = pa.array([one.topic for one in profile.scopes], pa.string())
    partitions = pa.array([one.partition for one in profile.scopes], pa.int32())
    return [topics.take(scope), partitions.take(scope)]


def _cut_by_epochs(profile: TrafficProfile, owners: Owners, begin: Ints, end: Ints, scope: Ints | Indexes) -> Ints:
    """Pieces of runs, cut where an epoch begins: the index of the piece, the epoch, and its messages and bytes."""
    starts = np.concatenate([np.zeros(0, np.int64), *owners.starts])
    found = np.empty((4, int((end - begin).sum())), np.int64)  # few are written to
    scope = np.ascontiguousarray(scope, np.int64)
    return found[:, : _cut(profile.at, profile.size, begin, end, scope, starts, _bounds(owners), found)]


def _bounds(owners: Owners) -> Ints:
    """Where the epochs of each scope begin, among those of all."""
    return np.cumsum([0, *(len(mine) for mine in owners.starts)])


@operation
def _cut(
    at: Ints, sizes: Ints, begin: Ints, end: Ints, scope: Ints, starts: Ints, bounds: Ints, found: Ints
) -> int:  # pragma: no cover - compiled
    pieces = 0
    for piece in range(len(begin)):
        first, past = bounds[scope[piece]], bounds[scope[piece] + 1]
        i = begin[piece]
        while i < end[piece]:
            later = count_up_to(starts, at[i], first, past)
            bound = starts[later] if later < past else NEVER
            since, size = i, np.int64(0)
            while i < end[piece] and at[i] < bound:
                size += sizes[i]
                i += 1
            found[0, pieces], found[1, pieces] = piece, later - 1 - first
            found[2, pieces], found[3, pieces] = i - since, size
            pieces += 1
    return pieces
