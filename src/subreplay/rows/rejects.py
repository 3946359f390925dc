"""Summarize the rejected rows of the input tables: the reasons, and what the rows may be about.

Both are small. Each task summarizes its rows, and the driver adds them up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.rows.check import find_breaches
from subreplay.rows.encoded import Mask, replace_with_null
from subreplay.rows.model.contracts import KEYS
from subreplay.rows.model.tables import INPUTS
from subreplay.rows.scan.table_columns import Columns

REJECTS: Final = pa.schema(
    [
        pa.field("table", pa.string(), nullable=False),
        pa.field("partition", pa.int32()),
        pa.field("ledger", pa.int64()),
        pa.field("entry", pa.int64()),
        pa.field("consumer", pa.string()),
        pa.field("at", pa.int64()),  # ns: when a membership event was requested, or complete, if that was earlier
        pa.field("event", pa.string()),
        pa.field("whole", pa.bool_(), nullable=False),  # false: only its topic partition is kept
    ]
)
"""What rejected rows may be about, as far as they can be read. Null may be any value."""
REASONS: Final = pa.schema(
    [
        pa.field("table", pa.string()),
        pa.field("column", pa.string()),
        pa.field("rule", pa.string()),
        pa.field("remedy", pa.string()),
        pa.field("count", pa.int64()),
        pa.field("example", pa.string()),
    ]
)
"""Reasons with their number of rows and the smallest value; no value for keys."""
MOST_REJECTS: Final = 10_000  # per table: if rejected rows name more, only their topic partitions are distinguished
MOST_REASONS: Final = 200  # that are shown
_MOST_KINDS: Final = 10_000  # of reasons that a task keeps, the most frequent ones
_DISTINGUISHING: Final = {"messages": ("partition",), "deliveries": ("partition", "ledger", "entry"),
                  "membership": ("partition", "consumer", "event", "at")}  # fmt: skip
"""The columns that distinguish the rejected rows of a table, in sort order."""
# What the tables are made of that an ingest reads from its files
_MADE_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "messages": ("messages",),
    "membership": ("membership",),
    "deliveries": ("deliveries",),
    "broker_events": ("membership", "deliveries"),
}
_BY: Final = ("table", "column", "rule", "remedy")


def build_rejects(table: str, batch: pa.RecordBatch, keeps: Mask) -> pa.Table:
    """Return the ``REJECTS`` of the invalid rows of an input table."""
    lost = batch.filter(pa.array(~keeps))
    columns = Columns(table, lost)
    broken: dict[str, Mask] = {}
    lacks = {f.name for f in INPUTS[table] if f.nullable and f.name not in batch.schema.names}
    for breach in find_breaches(table, columns, lacks, unknown=True):
        name = f"{breach.column}.{breach.part}" if breach.part else breach.column
        broken[name] = broken.get(name, np.zeros(lost.num_rows, np.bool_)) | breach.rows

    def readable(name: str) -> pa.Array:
        return replace_with_null(columns[name], broken[name]) if name in broken else columns[name]

    found = {name: readable(name) for name in _DISTINGUISHING[table] if name != "at"}
    if table == "membership":
        found["at"] = _find_request_time(readable("at"), readable("since"), columns["since"])
    return merge_rejects([_make_table(lost.num_rows, {"table": pa.repeat(table, lost.num_rows)} | found)])


def make_ingest_rejects(rows: pa.RecordBatch) -> pa.Table:
    """Return the ``REJECTS`` of table ``quarantine`` of an ingest: one for each table that it would have made of its
    rows."""
    made = [table for file in sorted(set(rows.column("table").to_pylist())) for table in _MADE_OF.get(file, ())]
    return merge_rejects([_make_table(len(made), {"table": pa.array(made, pa.string())})])


def merge_rejects(parts: Iterable[pa.Table]) -> pa.Table:
    """Merge ``REJECTS`` without duplicates, in order; at most ``MOST_REJECTS`` for a table."""
    rows = pa.concat_tables([REJECTS.empty_table(), *parts])
    found = [REJECTS.empty_table()]
    for table in INPUTS:
        selected = rows.filter(pc.equal(rows["table"], table))
        if pc.all(selected["whole"]).as_py() is False or len(selected := _drop_duplicates(selected)) > MOST_REJECTS:
            narrow = {"table": selected["table"], "partition": selected["partition"]}
            selected = _drop_duplicates(_make_table(len(selected), narrow, whole=False)).slice(0, MOST_REJECTS)
        found.append(selected)
    return pa.concat_tables(found).combine_chunks()


def build_reasons(rejected: pa.RecordBatch, prefix: str = "") -> pa.Table:
    """Return the ``REASONS`` of rows of table ``quarantine``, with ``prefix`` before the names of their tables."""
    lists = rejected.column("reasons")
    why = pc.list_flatten(lists)
    column, value, rule, remedy = (pc.struct_field(why, name) for name in ("column", "value", "rule", "remedy"))
    table = rejected.column("table").take(pc.list_parent_indices(lists))
    table = pc.binary_join_element_wise(prefix, table, "") if prefix else table
    example = pc.if_else(pc.is_in(column, pa.array(KEYS)), pa.scalar(None, pa.string()), value)
    return add_reasons([pa.table([table, column, rule, remedy, pa.repeat(1, len(why)), example], schema=REASONS)])


def add_reasons(parts: Iterable[pa.Table]) -> pa.Table:
    """Merge ``REASONS``, the most frequent first."""
    rows = pa.concat_tables([REASONS.empty_table(), *parts])
    sums = rows.group_by([*_BY], use_threads=False).aggregate([("count", "sum"), ("example", "min")])
    sums = sums.select([*_BY, "count_sum", "example_min"]).rename_columns(REASONS.names).cast(REASONS)
    order = [("count", "descending"), *((name, "ascending") for name in _BY)]
    return sums.sort_by(order).slice(0, _MOST_KINDS)


def list_reasons(parts: Iterable[pa.Table]) -> list[dict[str, Any]]:
    """Return the reasons that are shown."""
    rows: list[dict[str, Any]] = add_reasons(parts).slice(0, MOST_REASONS).to_pylist()
    return rows


def _find_request_time(at: pa.Array, since: pa.Array, given: pa.Array) -> pa.Array:
    """Return when membership events were requested, or complete, whichever is earlier (ns); null if ``since`` cannot be
    read although it was ``given``."""
    earlier = pc.min_element_wise(at.cast(pa.int64()), since.cast(pa.int64()))
    unread = pc.and_(given.is_valid(), since.is_null())
    return pc.multiply(pc.if_else(unread, pa.scalar(None, pa.int64()), earlier), 1_000)


def _make_table(rows: int, columns: Mapping[str, pa.Array], whole: bool = True) -> pa.Table:
    given = {"whole": pa.repeat(whole, rows), **columns}
    return pa.table([given.get(f.name, pa.nulls(rows, f.type)) for f in REJECTS], schema=REJECTS)


def _drop_duplicates(rows: pa.Table) -> pa.Table:
    """Drop duplicate rows, and sort them; null comes first."""
    once = rows.group_by(REJECTS.names, use_threads=False).aggregate([])
    by = ("partition", "ledger", "entry", "consumer", "event", "at")
    keys = pa.table(
        [of for name in by for of in (once[name].is_valid(), once[name])], [f"{n}" for n in range(2 * len(by))]
    )
    return once.take(pc.sort_indices(keys, [(name, "ascending") for name in keys.column_names])).cast(REJECTS)
