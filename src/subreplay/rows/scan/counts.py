"""Count, batch by batch, what a run needs to know of its messages and deliveries before it judges: valid and other
rows, time range, topic partitions and consumers.

Rows are counted by ledger first, because the lowest position of a topic partition is needed. These counts are few and
can be added up over any batches. A summary is computed from them in the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.rows.encoded import Mask
from subreplay.rows.model.columns import NEVER
from subreplay.rows.model.contracts import KEYS
from subreplay.rows.scan.log_rows import find_delivery_time, is_commit, to_nanos
from subreplay.rows.scan.table_columns import Columns

_GROUP_COLUMNS: Final = {
    "messages": ("valid", "partition"),
    "deliveries": ("valid", "partition", "consumer", "instance"),
}
_MESSAGE_FACTS: Final = ("numbered", "keyed", "sticky", "slotless", "other", "batched")
_LEDGER_FACTS: Final = ("entry", "highest", "batched")  # facts that a query by ledger returns
_DELIVERY_FACTS: Final = ("recorded", "acknowledged", "given_back", "dispatched")
_BEGINS: Final = {"alone": -1, "batched": 0}  # batch indexes that a ledger's first message may have
_FIRSTS: Final = tuple(f"{name}{suffix}" for suffix in ("", "_new") for name in _BEGINS)
_ADDED: Final[Mapping[str, Mapping[str, str]]] = {
    "messages": {
        "count": "sum", "first": "min", "last": "max", "widest": "max", **dict.fromkeys(_MESSAGE_FACTS, "any"),
        "entry": "min", "highest": "max", "batch_index": "min",
    },
    "deliveries": {
        "count": "sum", "first": "min", "last": "max", **dict.fromkeys(_DELIVERY_FACTS, "any"), "commits": "sum",
        "committed": "max", "entry": "min", "batch_index": "min", **dict.fromkeys(_FIRSTS, "min"),
    },
}  # fmt: skip
_DERIVED: Final = {"messages": {"crowded": "any", "constant": "all"}, "deliveries": {"ended": "any"}}
"""The additional columns of a summary, and how they are added up."""
_POSITION: Final = {"ledger": pa.int64(), "entry": pa.int64(), "batch_index": pa.int64()}
_LOWEST: Final = {"messages": _POSITION, "deliveries": _POSITION | {"at": pa.int64(), "again": pa.bool_()}}
_KINDS: Final = {"valid": pa.bool_(), "partition": pa.int32(), "consumer": pa.string(), "instance": pa.string(),
                 "ledger": pa.int64()}  # fmt: skip


def build_count_schema(table: str) -> pa.Schema:
    """Return the columns of counts by ledger."""
    by = [pa.field(name, _KINDS[name]) for name in (*_GROUP_COLUMNS[table], "ledger")]
    added = _ADDED[table].items()
    return pa.schema([*by, *(pa.field(name, pa.bool_() if how == "any" else pa.int64()) for name, how in added)])


def count_rows(table: str, batch: pa.RecordBatch, keeps: Mask | None) -> pa.Table:
    """Count rows by ledger. ``keeps`` marks the valid rows; None: all."""
    columns = Columns(table, batch)
    n = columns.rows
    # what is not valid may be anything, of any number
    rows = columns if keeps is None else Columns(table, _null_rows(batch, ~keeps))
    facts = _count_messages(columns, rows) if table == "messages" else _count_deliveries(columns, rows)
    of = {
        "valid": pa.repeat(True, n) if keeps is None else pa.array(keeps),
        **{name: rows[name] for name in (*_GROUP_COLUMNS[table], "ledger") if name != "valid"},
        "count": pa.repeat(1, n),
        **facts,
    }
    return _sum_by_ledger(
        table, pa.table([of[f.name].cast(f.type) for f in build_count_schema(table)], schema=build_count_schema(table))
    )


def merge_counts(table: str, counts: Iterable[pa.Table]) -> pa.Table:
    """Add up counts by ledger, in order."""
    added = _sum_by_ledger(table, pa.concat_tables([build_count_schema(table).empty_table(), *counts]))
    return added.sort_by([(name, "ascending") for name in (*_GROUP_COLUMNS[table], "ledger")])


def summary(table: str) -> pa.Schema:
    """Return the columns of a summary: of messages by topic partition, of deliveries also by consumer.

    ``ledger``, ``entry`` and ``batch_index`` are the lowest position of valid rows. For deliveries, ``at`` is the first
    delivery of this position, as far as the first message of a ledger shows it, and ``again`` whether it was
    redelivered before that.
    """
    by = [pa.field(name, _KINDS[name]) for name in _GROUP_COLUMNS[table]]
    facts = [pa.field(name, build_count_schema(table).field(name).type) for name in _list_facts(table)]
    more = [pa.field(name, pa.bool_()) for name in _DERIVED[table]]
    return pa.schema([*by, *facts, *more, *(pa.field(*lowest) for lowest in _LOWEST[table].items())])


def summarize_counts(table: str, counts: Iterable[pa.Table]) -> pa.Table:
    """Compute the summary of all counts by ledger, in order."""
    rows = merge_counts(table, counts)
    for name, values in (_find_crowded(rows) if table == "messages" else _find_ended(rows)).items():
        rows = rows.append_column(name, values)
    found = pc.and_(rows["valid"], rows["entry"].is_valid())
    for name, values in _find_lowest_positions(table, rows).items():
        rows = rows.append_column(f"lowest_{name}", pc.if_else(found, values, pa.scalar(None, values.type)))
    by, last = [*_GROUP_COLUMNS[table]], pc.ScalarAggregateOptions(min_count=0)
    wanted: list[tuple[Any, ...]] = [
        (name, _ADDED[table][name], _make_options(_ADDED[table][name])) for name in _list_facts(table)
    ]
    wanted += [(name, how, last) for name, how in _DERIVED[table].items()]
    wanted += [(f"lowest_{name}", "first", None) for name in _LOWEST[table]]
    one = rows.append_column("(row)", pa.repeat(1, len(rows)))
    sums = one.group_by(by, use_threads=False).aggregate([*wanted, ("(row)", "sum")])
    if table == "messages":  # in several ledgers they have several positions
        alone = pc.and_(sums["constant_all"], pc.equal(sums["(row)_sum"], 1))
        sums = sums.set_column(sums.schema.get_field_index("constant_all"), "constant_all", alone)
    sums = sums.select([*by, *(f"{name}_{how}" for name, how, _ in wanted)]).rename_columns(summary(table).names)
    return sums.sort_by([(name, "ascending") for name in by]).cast(summary(table))


def _count_messages(columns: Columns, valid: Columns) -> dict[str, pa.Array]:
    keyed = pc.coalesce(*(columns[name] for name in KEYS)).is_valid()
    numbered = pc.and_(columns["producer"].is_valid(), columns["sequence_id"].is_valid())
    batched = pc.fill_null(pc.greater_equal(columns["batch_index"], 0), False)
    others = pc.coalesce(*(columns[name] for name in KEYS[1:])).is_valid()
    lengths = [pc.fill_null(pc.binary_length(columns[name]), 0) for name in KEYS if name in columns]
    at = to_nanos(valid, "publish_time")
    first = pc.equal(columns["entry"], 0)
    return {
        "first": at,
        "last": at,
        "widest": _sum_columns(lengths, columns.rows),
        "numbered": numbered,
        "keyed": keyed,
        "sticky": pc.or_(keyed, numbered),
        "slotless": pc.and_not(pc.invert(keyed), numbered),
        "other": pc.or_(pc.or_(columns["key"].is_null(), others), batched),
        "batched": batched,
        "entry": columns["entry"],
        "highest": columns["entry"],
        "batch_index": _keep_known(first, columns["batch_index"]),
    }


def _count_deliveries(columns: Columns, valid: Columns) -> dict[str, pa.Array]:
    at = find_delivery_time(valid)
    there = at.is_valid()
    columns_by_fact = {"recorded": "received_at", "acknowledged": "acked_at", "given_back": "nacked_at"}
    first = pc.and_(there, pc.fill_null(pc.equal(columns["entry"], 0), False))
    new = pc.invert(pc.fill_null(pc.greater(columns["redelivery_count"], 0), False))
    begins = {
        name: pc.and_(first, pc.fill_null(pc.equal(columns["batch_index"], index), False))
        for name, index in _BEGINS.items()
    }
    return {
        "first": at,
        "last": at,
        **{name: pc.and_(there, columns[column].is_valid()) for name, column in columns_by_fact.items()},
        "dispatched": columns["delivered_at"].is_valid(),
        "commits": is_commit(columns).cast(pa.int64()),
        "committed": _keep_known(is_commit(columns), to_nanos(valid, "acked_at", "acked_nanos")),
        "entry": _keep_known(there, columns["entry"]),
        "batch_index": _keep_known(first, columns["batch_index"]),
        **{name: _keep_known(selected, at) for name, selected in begins.items()},
        **{f"{name}_new": _keep_known(pc.and_(selected, new), at) for name, selected in begins.items()},
    }


def _null_rows(batch: pa.RecordBatch, missing: Mask) -> pa.RecordBatch:
    kept = pa.array(~missing)
    columns = [pc.if_else(kept, column, pa.scalar(None, column.type)) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _keep_known(known: pa.Array, values: pa.Array) -> pa.Array:
    return pc.if_else(known, values, pa.scalar(None, values.type))


def _sum_columns(columns: list[pa.Array], rows: int) -> pa.Array:
    total = pa.repeat(0, rows)
    for each in columns:
        total = pc.add(total, each.cast(pa.int64()))
    return total


def _sum_by_ledger(table: str, rows: pa.Table) -> pa.Table:
    by, options = [*_GROUP_COLUMNS[table], "ledger"], pc.ScalarAggregateOptions(min_count=0)
    aggregates = [(name, how, options if how == "any" else None) for name, how in _ADDED[table].items()]
    make_group_order = rows.group_by(by, use_threads=False).aggregate(aggregates)
    names = [*by, *(f"{name}_{how}" for name, how in _ADDED[table].items())]
    return make_group_order.select(names).rename_columns(build_count_schema(table).names)


def _list_facts(table: str) -> tuple[str, ...]:
    """Return the facts of a topic partition, or of a consumer."""
    return tuple(name for name in _ADDED[table] if name not in (*_LEDGER_FACTS, "batch_index", *_FIRSTS))


def _make_options(how: str) -> pc.ScalarAggregateOptions | None:
    return pc.ScalarAggregateOptions(min_count=0) if how == "any" else None


def _find_lowest_positions(table: str, rows: pa.Table) -> dict[str, pa.Array]:
    """Return the lowest position of each ledger; for deliveries also its first delivery, as far as the first message of
    a ledger shows it, and whether it was redelivered before that."""
    index = rows["batch_index"]
    found = {"ledger": rows["ledger"], "entry": rows["entry"], "batch_index": pc.fill_null(index, -1)}
    if table == "messages":
        return found
    when, new = (
        pc.fill_null(
            pc.coalesce(
                *(_keep_known(pc.equal(index, begin), rows[f"{name}{suffix}"]) for name, begin in _BEGINS.items())
            ),
            NEVER,
        )
        for suffix in ("", "_new")
    )
    return found | {"at": when, "again": pc.greater(new, when)}


def _find_crowded(rows: pa.Table) -> dict[str, pa.Array]:
    """Return which ledgers have more messages than entries, so that some have the same position (``crowded``), and
    which have one position only (``constant``)."""
    known = pc.and_(rows["valid"], rows["entry"].is_valid())
    entries = pc.add(pc.subtract(rows["highest"], rows["entry"]), 1)
    many = pc.and_(pc.invert(rows["batched"]), pc.fill_null(pc.greater(rows["count"], entries), False))
    crowded = pc.and_(known, many)
    return {"crowded": crowded, "constant": pc.and_(crowded, pc.fill_null(pc.equal(entries, 1), False))}


def _find_ended(rows: pa.Table) -> dict[str, pa.Array]:
    return {"ended": pc.or_(rows["acknowledged"], rows["given_back"])}
