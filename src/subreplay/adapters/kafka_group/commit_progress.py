"""Build the progress of Kafka groups from offset commits, each with the owner of the partition at that time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.rows.model.columns import Ints
from subreplay.rows.model.tables import TIME

COMMIT_PROGRESS: Final = pa.schema(
    [
        pa.field("date", pa.date32(), nullable=False),
        pa.field("subscription", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),  # all records below it are acknowledged
        pa.field("at", TIME, nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("consumer", pa.string()),  # the owner at that time; null: none
        pa.field("generation", pa.int64()),
        pa.field("leader_epoch", pa.int32()),
    ]
)
"""The acknowledged offset of a group's partition over time; it is not evidence of deliveries."""


def build_progress(commits: pa.Table, owners: pa.Table) -> pa.Table:
    """Build ``COMMIT_PROGRESS`` from commits (table ``offset_commits``), each with the owner of its partition at that
    time.

    The owner is the member of the last assignment before the commit in the topic, because the coordinator accepts
    commits of the current generation only. Tombstones are omitted: they remove a commit that expired or whose group is
    gone, and acknowledge nothing.
    """
    commits = commits.filter(pc.invert(commits.column("tombstone")))
    named = owners.filter(pc.is_valid(owners.column("topic")))
    owner = _find_owner(commits, named)
    picked = named.select(["consumer", "generation"]).take(pa.array(owner, mask=owner < 0))
    at = commits.column("committed_at")
    known = {
        "date": at.cast(pa.date32()), "subscription": commits.column("group"), "at": at,
        "seq": commits.column("record_offset"), **{name: picked.column(name) for name in picked.column_names},
    }  # fmt: skip
    names = [known[f.name] if f.name in known else commits.column(f.name) for f in COMMIT_PROGRESS]
    return pa.table(names, COMMIT_PROGRESS)


def _find_owner(commits: pa.Table, owners: pa.Table) -> Ints:
    """Find the row of ``owners`` that contains each commit; -1 for none."""
    code = _number_rows(
        [
            (owners.column("subscription"), commits.column("group")),
            *[(owners.column(name), commits.column(name)) for name in ("topic", "partition")],
        ]
    )
    begins, ends = (owners.column(name).fill_null(2**63 - 1).to_numpy() for name in ("from_offset", "to_offset"))
    when = np.concatenate([begins, commits.column("record_offset").to_numpy()])
    order = np.lexsort((np.arange(len(when)) >= len(begins), when, code))  # owners precede commits
    is_owner = order < len(begins)
    last = np.maximum.accumulate(np.where(is_owner, np.arange(len(order)), -1))
    owner = np.full(len(order), -1, np.int64)
    found = last >= 0
    owner[order[found]] = order[last[found]]
    of_commits = owner[len(begins) :]
    if not len(begins):
        return np.asarray(of_commits)
    row = np.maximum(of_commits, 0)
    same = (code[row] == code[len(begins) :]) & (when[len(begins) :] < ends[row])
    return np.asarray(np.where((of_commits >= 0) & same, of_commits, -1))


def _number_rows(columns: Iterable[tuple[pa.ChunkedArray, pa.ChunkedArray]]) -> Ints:
    """Number the distinct rows of two tables, concatenated."""
    code = np.zeros(1, np.int64)
    for one, other in columns:
        values = pa.chunked_array([*one.chunks, *other.chunks], one.type).combine_chunks().dictionary_encode().indices
        numbers = np.asarray(values, np.int64)
        code = np.unique(code * (numbers.max(initial=0) + 1) + numbers, return_inverse=True)[1].astype(np.int64)
    return code
