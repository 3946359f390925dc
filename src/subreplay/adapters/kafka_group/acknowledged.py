"""Commits as rows of the deliveries; and what they acknowledge, as deliveries of which nothing is known but that.

A commit says that all below its offset is done. Of that, what lies behind the commit before it was acknowledged by it:
by the member that owned the partition then. What the first commit of a partition in a copy acknowledges is not told, as
nobody knows where its group began.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from subreplay.rows.model.columns import ROWS, Ints
from subreplay.rows.model.tables import DELIVERIES

MOST: Final = 10_000_000
"""Records that one commit acknowledges at most: with more, somebody moved the group."""


@dataclass(frozen=True)
class Acknowledged:
    """How many records each of ``commits`` (``progress``) acknowledges: ``counts``. Rows of the commits as they were
    given that are ``first`` of their partition, that went ``back``, or that acknowledge and are ``nobodys``; ``leaps``
    acknowledge more than ``MOST``."""

    commits: pa.Table
    counts: Ints
    first: Ints
    back: Ints
    nobodys: Ints
    leaps: Ints

    def deliveries(self) -> Iterator[pa.Table]:
        """A row of ``DELIVERIES`` for each record: the offsets before that of the commit. So many at a time."""
        ends = np.cumsum(self.counts)
        offset = self.commits["offset"].to_numpy()
        for begin in range(0, int(self.counts.sum()), ROWS):
            number = np.arange(begin, min(begin + ROWS, int(ends[-1])))
            of = np.searchsorted(ends, number, "right")
            yield _rows(self.commits.take(pa.array(of)), offset[of] - (ends[of] - number), "Cumulative")


def acknowledged(progress: pa.Table) -> Acknowledged:
    """What ``PROGRESS`` rows, in any order, acknowledge. Offsets that hold no record, such as the marks of
    transactions, cannot be told from others."""
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
    return Acknowledged(ordered, counts, row[first], row[step < 0], row[nobody], row[leap])


def commit_rows(progress: pa.Table, leaps: Ints) -> pa.Table:
    """A row of ``DELIVERIES`` for each commit (``PROGRESS``) of an owner, but the ``leaps``."""
    mine = progress["consumer"].is_valid().to_numpy().copy()
    mine[leaps] = False
    commits = progress.filter(pa.array(mine))
    return _rows(commits, commits["offset"].to_numpy(), "Commit")


def _differs(values: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Whether each value but the first is another one than that before it."""
    codes = values.combine_chunks().dictionary_encode().indices.to_numpy()
    return np.asarray(np.diff(codes) != 0, np.bool_)


def _rows(commits: pa.Table, entry: Ints, ack_type: str) -> pa.Table:
    """Rows of ``DELIVERIES``, one for each of ``commits`` and of the record ``entry``."""
    count = len(commits)
    columns = {name: commits[name] for name in ("date", "subscription", "topic", "partition", "consumer", "seq")} | {
        "ledger": pa.array(np.zeros(count, np.int64)),
        "entry": pa.array(entry),
        "batch_index": pa.array(np.full(count, -1, np.int32)),
        "redelivery_count": pa.array(np.zeros(count, np.int32)),
        "acked_at": commits["at"],
        "ack_type": pa.repeat(ack_type, count),
        "outcome": pa.repeat("acked", count),
        "source": pa.repeat("observed", count),
    }
    given = [columns[f.name].cast(f.type) if f.name in columns else pa.nulls(count, f.type) for f in DELIVERIES]
    return pa.table(given, schema=DELIVERIES)
