"""Commits as rows of the deliveries; and what they acknowledge, as deliveries of which nothing is known but that.

A commit says that all below its offset is done. Of that, what lies behind the commit before it was acknowledged by it:
by the member that owned the partition then. What the first commit of a partition in a copy acknowledges is not told, as
nobody knows where its group began.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from subreplay.model.columns import Ints
from subreplay.model.tables import DELIVERIES

MOST: Final = 10_000_000
"""Records that one commit acknowledges at most: with more, somebody moved the group."""


@dataclass(frozen=True)
class Acknowledged:
    """``deliveries`` with ``acked_at`` only. Rows of the commits (``progress``) that are ``first`` of their partition,
    that went ``back``, or that acknowledge and are ``nobodys``; ``leaps`` acknowledge more than ``MOST``."""

    deliveries: pa.Table
    first: Ints
    back: Ints
    nobodys: Ints
    leaps: Ints


def acknowledged(progress: pa.Table) -> Acknowledged:
    """Deliveries of ``PROGRESS`` rows, in any order. Offsets that hold no record, such as the marks of transactions,
    cannot be told from others."""
    progress = progress.append_column("row", pa.array(np.arange(len(progress))))
    of_whom = ("subscription", "topic", "partition")
    ordered = progress.sort_by([(name, "ascending") for name in (*of_whom, "seq", "row")])
    row, offset = ordered["row"].to_numpy(), ordered["offset"].to_numpy()
    first = np.ones(len(ordered), np.bool_)
    first[1:] = np.logical_or.reduce([_differs(ordered[name]) for name in of_whom]) if len(ordered) else first[1:]
    step = np.where(first, 0, np.diff(offset, prepend=0))
    nobody = ordered["consumer"].is_null().to_numpy() & (step > 0)
    leap = (step > MOST) & ~nobody
    counts = np.where(nobody | leap, 0, np.maximum(step, 0))
    return Acknowledged(_deliveries(ordered, counts), row[first], row[step < 0], row[nobody], row[leap])


def commit_rows(progress: pa.Table, leaps: Ints, seq: int) -> pa.Table:
    """A row of ``DELIVERIES`` for each commit (``PROGRESS``) of an owner, but the ``leaps``; the first has ``seq``."""
    mine = progress["consumer"].is_valid().to_numpy().copy()
    mine[leaps] = False
    commits = progress.filter(pa.array(mine)).sort_by([("at", "ascending"), ("seq", "ascending")])
    count = len(commits)
    columns = {name: commits[name] for name in ("date", "subscription", "topic", "partition", "consumer")} | {
        "ledger": pa.array(np.zeros(count, np.int64)),
        "entry": commits["offset"],
        "batch_index": pa.array(np.full(count, -1, np.int32)),
        "seq": pa.array(np.arange(seq, seq + count)),
        "redelivery_count": pa.array(np.zeros(count, np.int32)),
        "acked_at": commits["at"],
        "ack_type": pa.repeat("Commit", count),
        "outcome": pa.repeat("acked", count),
        "source": pa.repeat("observed", count),
    }
    return _table(columns, count)


def _differs(values: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Whether each value but the first is another one than that before it."""
    codes = values.combine_chunks().dictionary_encode().indices.to_numpy()
    return np.asarray(np.diff(codes) != 0, np.bool_)


def _deliveries(commits: pa.Table, counts: Ints) -> pa.Table:
    """``counts`` rows for each commit: the offsets before its own."""
    count = int(counts.sum())
    of = pa.array(np.repeat(np.arange(len(commits)), counts))
    taken = {name: commits[name].take(of) for name in ("date", "subscription", "topic", "partition", "consumer")}
    within = np.arange(count) - np.repeat(np.cumsum(counts) - counts, counts)
    begin = commits["offset"].to_numpy() - counts
    order = np.argsort(commits["at"].cast(pa.int64()).to_numpy(), kind="stable")
    rank = np.empty(len(commits), np.int64)
    rank[order] = np.cumsum(counts[order]) - counts[order]
    columns = taken | {
        "ledger": pa.array(np.zeros(count, np.int64)),
        "entry": pa.array(np.repeat(begin, counts) + within),
        "batch_index": pa.array(np.full(count, -1, np.int32)),
        "seq": pa.array(np.repeat(rank, counts) + within),
        "redelivery_count": pa.array(np.zeros(count, np.int32)),
        "acked_at": commits["at"].take(of),
        "ack_type": pa.repeat("Cumulative", count),
        "outcome": pa.repeat("acked", count),
        "source": pa.repeat("observed", count),
    }
    return _table(columns, count)


def _table(columns: Mapping[str, Any], count: int) -> pa.Table:
    given = [columns[f.name].cast(f.type) if f.name in columns else pa.nulls(count, f.type) for f in DELIVERIES]
    return pa.table(given, schema=DELIVERIES)
