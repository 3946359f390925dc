"""Build rows about moved messages from the pieces of runs that an evaluation recorded, by membership change."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.kernels.binary_search import count_up_to
from subreplay.kernels.inlining import operation
from subreplay.rows.model.columns import NEVER, Ints
from subreplay.whatif.traffic.ownership_arrays import PlanOwners
from subreplay.whatif.traffic.traffic_profile import Indexes, TrafficProfile

MOVES = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("before", pa.string()),  # null: no owner
        pa.field("consumer", pa.string()),
        pa.field("messages", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("keys", pa.int64(), nullable=False),
    ]
)
"""Messages by previous owner, new owner and epoch."""
PIECE_COLUMNS = ("begin", "end", "scope", "key", "before", "consumer")
"""What an evaluation records about a piece of a run.

Its messages are ``begin`` up to ``end``; then come topic partition, key, and the numbers of two consumers. The number
after the last name means no owner.
"""
_BY, _SUMS = MOVES.names[:5], MOVES.names[5:]


def build_moves(profile: TrafficProfile, owners: PlanOwners, pieces: Ints, *, all_messages: bool) -> pa.Table:
    """Build ``MOVES`` rows from ``pieces`` of runs (``PIECE_COLUMNS``).

    ``all_messages``: count the other messages by epoch too. Such rows have neither ``before`` nor ``consumer``, and
    count no keys.
    """
    moves = _sum_pieces(profile, owners, pieces)
    if not all_messages:
        return moves
    no_name = pa.nulls(moves.num_rows, pa.string())
    less = [*moves.columns[:3], no_name, no_name, *(pc.negate(moves[name]) for name in ("messages", "bytes"))]
    counted = pa.table([*less, pa.array(np.zeros(moves.num_rows, np.int64))], schema=MOVES)
    rows = sum_moves(pa.concat_tables([moves, _sum_by_epoch(profile, owners), counted]))
    return rows.filter(pc.not_equal(rows["messages"], 0))


def _sum_pieces(profile: TrafficProfile, owners: PlanOwners, pieces: Ints) -> pa.Table:
    begin, end, scope, *side_columns = pieces
    piece, epoch, messages, size = _split_by_epochs(profile, owners, begin, end, scope)
    key, before, consumer = (column[piece] for column in side_columns)
    moves = {"scope": scope[piece], "epoch": epoch, "before": before, "consumer": consumer, "key": key}
    keyed = pa.table({**moves, "messages": messages, "bytes": size})
    by_key = keyed.group_by([*moves], use_threads=False).aggregate([("messages", "sum"), ("bytes", "sum")])
    names = pa.array([*owners.names, None], pa.string())
    side_names = [names.take(by_key[side].combine_chunks()) for side in ("before", "consumer")]
    ones = pa.array(np.ones(by_key.num_rows, np.int64))
    topic_partitions = _take_topic_partitions(profile, by_key["scope"].combine_chunks())
    sums = [by_key["messages_sum"], by_key["bytes_sum"], ones]
    return sum_moves(pa.table([*topic_partitions, by_key["epoch"], *side_names, *sums], schema=MOVES))


def _sum_by_epoch(profile: TrafficProfile, owners: PlanOwners) -> pa.Table:
    runs, bounds = profile.runs, _find_epoch_bounds(owners)
    piece, epoch, *counts = _split_by_epochs(profile, owners, runs.begin, runs.end, runs.scope)
    number = bounds[runs.scope[piece]] + epoch
    messages, size = (np.bincount(number, count, bounds[-1]).astype(np.int64) for count in counts)
    indexes = np.flatnonzero(messages)
    home = np.searchsorted(bounds, indexes, "right") - 1
    topic_partitions = _take_topic_partitions(profile, pa.array(home))
    no_name, no_keys = pa.nulls(len(indexes), pa.string()), np.zeros(len(indexes), np.int64)
    rows = [*topic_partitions, indexes - bounds[home], no_name, no_name, messages[indexes], size[indexes], no_keys]
    return pa.table(rows, schema=MOVES)


def sum_moves(moves: pa.Table) -> pa.Table:
    """Return the moves with one row for each combination."""
    sums = moves.group_by(_BY, use_threads=False).aggregate([(name, "sum") for name in _SUMS])
    return sums.select([*_BY, *(f"{name}_sum" for name in _SUMS)]).rename_columns(MOVES.names).cast(MOVES)


def _take_topic_partitions(profile: TrafficProfile, scope: pa.Array) -> list[pa.Array]:
    topics = pa.array([one.topic for one in profile.scopes], pa.string())
    partitions = pa.array([one.partition for one in profile.scopes], pa.int32())
    return [topics.take(scope), partitions.take(scope)]


def _split_by_epochs(
    profile: TrafficProfile, owners: PlanOwners, begin: Ints, end: Ints, scope: Ints | Indexes
) -> Ints:
    """Cut pieces of runs where an epoch begins; return the index of the piece, the epoch, messages and bytes."""
    starts = np.concatenate([np.zeros(0, np.int64), *owners.starts])
    indexes = np.empty((4, int((end - begin).sum())), np.int64)  # only a few rows are written
    scope = np.ascontiguousarray(scope, np.int64)
    return indexes[
        :, : _cut_pieces(profile.at, profile.size, begin, end, scope, starts, _find_epoch_bounds(owners), indexes)
    ]


def _find_epoch_bounds(owners: PlanOwners) -> Ints:
    """Return where the epochs of each scope begin among the epochs of all scopes."""
    return np.cumsum([0, *(len(epoch_starts) for epoch_starts in owners.starts)])


@operation
def _cut_pieces(
    at: Ints, sizes: Ints, begin: Ints, end: Ints, scope: Ints, starts: Ints, bounds: Ints, indexes: Ints
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
            indexes[0, pieces], indexes[1, pieces] = piece, later - 1 - first
            indexes[2, pieces], indexes[3, pieces] = i - since, size
            pieces += 1
    return pieces
