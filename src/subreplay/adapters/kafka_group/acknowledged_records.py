"""Build rows of the deliveries from commits: the commits themselves, and the records that they acknowledge.

A commit acknowledges all records below its offset. Those after the previous commit were acknowledged by this one, by
the member that owned the partition at that time. The records that the first commit of a partition acknowledges are
unknown, because the copy does not show where the group began.
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

MAX_RECORDS: Final = 10_000_000
"""The most records that one commit acknowledges; with more, an operator moved the group."""


@dataclass(frozen=True)
class AcknowledgedRecords:
    """The number of records that each of ``commits`` (``progress``) acknowledges (``counts``).

    The other fields are rows of the original commits: those that are ``first`` of their partition, that went ``back``,
    that acknowledge records without an owner (``unowned``), or that acknowledge more than ``MAX_RECORDS`` records
    (``leaps``).
    """

    commits: pa.Table
    counts: Ints
    first: Ints
    back: Ints
    unowned: Ints
    leaps: Ints

    def build_deliveries(self) -> Iterator[pa.Table]:
        """Yield a row of ``DELIVERIES`` for each acknowledged record, in batches."""
        ends = np.cumsum(self.counts)
        offset = self.commits["offset"].to_numpy()
        for begin in range(0, int(self.counts.sum()), ROWS):
            number = np.arange(begin, min(begin + ROWS, int(ends[-1])))
            of = np.searchsorted(ends, number, "right")
            yield _build_rows(self.commits.take(pa.array(of)), offset[of] - (ends[of] - number), "Cumulative")


def find_acknowledged(progress: pa.Table) -> AcknowledgedRecords:
    """Compute what ``PROGRESS`` rows, in any order, acknowledge. Offsets without a record, such as transaction markers,
    count as records."""
    progress = progress.append_column("row", pa.array(np.arange(len(progress))))
    partition_columns = ("subscription", "topic", "partition")
    ordered = progress.sort_by([(name, "ascending") for name in (*partition_columns, "seq", "row")])
    row, offset = ordered["row"].to_numpy(), ordered["offset"].to_numpy()
    first = np.ones(len(ordered), np.bool_)
    first[1:] = (
        np.logical_or.reduce([_mark_changes(ordered[name]) for name in partition_columns])
        if len(ordered)
        else first[1:]
    )
    step = np.where(first, 0, np.diff(offset, prepend=0))
    nobody = ordered["consumer"].is_null().to_numpy() & (step > 0)
    leap = (step > MAX_RECORDS) & ~nobody
    counts = np.where(nobody | leap, 0, np.maximum(step, 0))
    return AcknowledgedRecords(ordered, counts, row[first], row[step < 0], row[nobody], row[leap])


def build_commit_rows(progress: pa.Table, leaps: Ints) -> pa.Table:
    """Build a row of ``DELIVERIES`` for each commit (``PROGRESS``) of an owner, except the ``leaps``."""
    has_owner = progress["consumer"].is_valid().to_numpy().copy()
    has_owner[leaps] = False
    commits = progress.filter(pa.array(has_owner))
    return _build_rows(commits, commits["offset"].to_numpy(), "Commit")


def _mark_changes(values: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Mark the values, except the first, that differ from the previous value."""
    codes = values.combine_chunks().dictionary_encode().indices.to_numpy()
    return np.asarray(np.diff(codes) != 0, np.bool_)


def _build_rows(commits: pa.Table, entry: Ints, ack_type: str) -> pa.Table:
    """Build rows of ``DELIVERIES``, one for each of ``commits`` with the record ``entry``."""
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
    arrays = [columns[f.name].cast(f.type) if f.name in columns else pa.nulls(count, f.type) for f in DELIVERIES]
    return pa.table(arrays, schema=DELIVERIES)
