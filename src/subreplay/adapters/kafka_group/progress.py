"""How far Kafka groups had acknowledged their partitions: offset commits, each with who owned the partition then."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.rows.model.columns import Ints
from subreplay.rows.model.tables import TIME

PROGRESS: Final = pa.schema(
    [
        pa.field("date", pa.date32(), nullable=False),
        pa.field("subscription", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),  # all below it are acknowledged
        pa.field("at", TIME, nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("consumer", pa.string()),  # the owner then; null: nobody
        pa.field("generation", pa.int64()),
        pa.field("leader_epoch", pa.int32()),
    ]
)
"""How far a group had acknowledged a partition: no evidence of what was delivered."""


def progress(commits: pa.Table, owners: pa.Table) -> pa.Table:
    """Commits (decoded table ``offset_commits``) as ``PROGRESS``, each with the owner of its partition then.

    The owner is the one whose assignment is the last in the topic before the commit: the coordinator takes commits of
    the current generation only. Tombstones are left out: they take a commit back that has expired or whose group is
    gone, and acknowledge nothing.
    """
    commits = commits.filter(pc.invert(commits.column("tombstone")))
    held = owners.filter(pc.is_valid(owners.column("topic")))
    owner = _owner(commits, held)
    picked = held.select(["consumer", "generation"]).take(pa.array(owner, mask=owner < 0))
    at = commits.column("committed_at")
    known = {
        "date": at.cast(pa.date32()), "subscription": commits.column("group"), "at": at,
        "seq": commits.column("record_offset"), **{name: picked.column(name) for name in picked.column_names},
    }  # fmt: skip
    names = [known[f.name] if f.name in known else commits.column(f.name) for f in PROGRESS]
    return pa.table(names, PROGRESS)


def _owner(commits: pa.Table, held: pa.Table) -> Ints:
    """The row of ``held`` that each commit falls into; -1: into none."""
    code = _codes(
        [
            (held.column("subscription"), commits.column("group")),
            *[(held.column(name), commits.column(name)) for name in ("topic", "partition")],
        ]
    )
    begins, ends = (held.column(name).fill_null(2**63 - 1).to_numpy() for name in ("from_offset", "to_offset"))
    when = np.concatenate([begins, commits.column("record_offset").to_numpy()])
    order = np.lexsort((np.arange(len(when)) >= len(begins), when, code))  # who owns it first, then what is committed
    is_owner = order < len(begins)
    last = np.maximum.accumulate(np.where(is_owner, np.arange(len(order)), -1))
    owner = np.full(len(order), -1, np.int64)
    found = last >= 0
    owner[order[found]] = order[last[found]]
    mine = owner[len(begins) :]
    if not len(begins):
        return np.asarray(mine)
    same = (code[np.maximum(mine, 0)] == code[len(begins) :]) & (when[len(begins) :] < ends[np.maximum(mine, 0)])
    return np.asarray(np.where((mine >= 0) & same, mine, -1))


def _codes(columns: Iterable[tuple[pa.ChunkedArray, pa.ChunkedArray]]) -> Ints:
    """A number for each different row of two tables, one after the other."""
    code = np.zeros(1, np.int64)
    for one, other in columns:
        values = pa.chunked_array([*one.chunks, *other.chunks], one.type).combine_chunks().dictionary_encode().indices
        numbers = np.asarray(values, np.int64)
        code = np.unique(code * (numbers.max(initial=0) + 1) + numbers, return_inverse=True)[1].astype(np.int64)
    return code
