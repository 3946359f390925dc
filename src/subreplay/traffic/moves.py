"""What changed hands, by change: the messages that an evaluation noted, as rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.kernels.loops import loop
from subreplay.kernels.search import up_to
from subreplay.model.columns import Ints
from subreplay.traffic.ownership import Owners
from subreplay.traffic.profile import Indexes, TrafficProfile

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
_BY, _SUMS = MOVES.names[:5], MOVES.names[5:]


def moves_of(profile: TrafficProfile, owners: Owners, noted: Ints, *, every: bool) -> pa.Table:
    """``MOVES`` of the messages whose ``noted`` is 1 + before * size + consumer, and not 0; size is one more than there
    are names, and its last number nobody's.

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
    rows = np.flatnonzero(noted)
    run = profile.run_of[rows]
    size = len(owners.names) + 1
    keyed = pa.table(
        {
            "scope": profile.runs.scope[run],
            "epoch": _epochs_of(profile.at[rows], profile.runs.scope[run], owners),
            "before": (noted[rows] - 1) // size,
            "consumer": (noted[rows] - 1) % size,
            "key": profile.runs.key[run],
            "messages": np.ones(len(rows), np.int64),
            "bytes": profile.size[rows],
        }
    )
    by_key = keyed.group_by([*keyed.column_names[:5]], use_threads=False).aggregate(
        [("messages", "sum"), ("bytes", "sum")]
    )
    names = pa.array([*owners.names, None], pa.string())
    before, consumer = (names.take(by_key[side].combine_chunks()) for side in ("before", "consumer"))
    ones = pa.array(np.ones(by_key.num_rows, np.int64))
    topic_partitions = _topic_partitions(profile, by_key["scope"].combine_chunks())
    sums = [by_key["messages_sum"], by_key["bytes_sum"], ones]
    return summed(pa.table([*topic_partitions, by_key["epoch"], before, consumer, *sums], schema=MOVES))


def _by_epoch(profile: TrafficProfile, owners: Owners) -> pa.Table:
    bounds = np.cumsum([0, *(len(starts) for starts in owners.starts)])
    scope = profile.runs.scope[profile.run_of]
    number = bounds[scope] + _epochs_of(profile.at, scope, owners)
    messages = np.bincount(number, minlength=bounds[-1])
    size = np.bincount(number, profile.size, bounds[-1]).astype(np.int64)
    found = np.flatnonzero(messages)
    home = np.searchsorted(bounds, found, "right") - 1
    nobody = pa.nulls(len(found), pa.string())
    topic_partitions = _topic_partitions(profile, pa.array(home))
    rows = [
        *topic_partitions,
        found - bounds[home],
        nobody,
        nobody,
        messages[found],
        size[found],
        np.zeros(len(found), np.int64),
    ]
    return pa.table(rows, schema=MOVES)


def summed(moves: pa.Table) -> pa.Table:
    """The same, with one row for each combination."""
    sums = moves.group_by(_BY, use_threads=False).aggregate([(name, "sum") for name in _SUMS])
    return sums.select([*_BY, *(f"{name}_sum" for name in _SUMS)]).rename_columns(MOVES.names).cast(MOVES)


def _topic_partitions(profile: TrafficProfile, scope: pa.Array) -> list[pa.Array]:
    topics = pa.array([one.topic for one in profile.scopes], pa.string())
    partitions = pa.array([one.partition for one in profile.scopes], pa.int32())
    return [topics.take(scope), partitions.take(scope)]


def _epochs_of(at: Ints, scope: Indexes, owners: Owners) -> Ints:
    """The epoch of each message."""
    found = np.empty(len(at), np.int64)
    starts = np.concatenate([np.zeros(0, np.int64), *owners.starts])
    _epochs(at, scope, starts, np.cumsum([0, *(len(mine) for mine in owners.starts)]), found)
    return found


@loop
def _epochs(at: Ints, scope: Indexes, starts: Ints, bounds: Ints, found: Ints) -> None:  # pragma: no cover - compiled
    for i in range(len(at)):
        first = bounds[scope[i]]
        found[i] = up_to(starts, at[i], first, bounds[scope[i] + 1]) - 1 - first
