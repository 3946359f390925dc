"""What a run has to know of its messages and deliveries before it judges, counted batch by batch: rows that keep the
contract and others, the time they span, topic partitions, and who was served. ``engine.spark.read.input_statistics``
asks Spark the same.

Rows are counted by ledger first, since the lowest position of a topic partition is asked for: these counts are few,
are added up whatever the batches were, and give plain rows in the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.rows.encoded import Mask
from subreplay.rows.model.columns import NEVER
from subreplay.rows.model.contracts import KEYS
from subreplay.rows.scan.log_rows import happened, is_commit, nanos
from subreplay.rows.scan.rows import Columns

_BY: Final = {"messages": ("valid", "partition"), "deliveries": ("valid", "partition", "consumer", "instance")}
_MESSAGE_FACTS: Final = ("numbered", "keyed", "sticky", "slotless", "other", "batched")
_OF_A_LEDGER: Final = ("entry", "highest", "batched")  # what is asked for by ledger only
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
_KINDS: Final = {"valid": pa.bool_(), "partition": pa.int32(), "consumer": pa.string(), "instance": pa.string(),
                 "ledger": pa.int64()}  # fmt: skip


def shape(table: str) -> pa.Schema:
    """The columns of counts by ledger."""
    by = [pa.field(name, _KINDS[name]) for name in (*_BY[table], "ledger")]
    added = _ADDED[table].items()
    return pa.schema([*by, *(pa.field(name, pa.bool_() if how == "any" else pa.int64()) for name, how in added)])


def counted(table: str, batch: pa.RecordBatch, keeps: Mask | None) -> pa.Table:
    """Counts by ledger of some rows, of which those are valid that ``keeps`` tells; None: all are."""
    columns = Columns(table, batch)
    n = columns.rows
    # what is not valid may be anything, of any number
    rows = columns if keeps is None else Columns(table, _nothing_where(batch, ~keeps))
    facts = _of_messages(columns, rows) if table == "messages" else _of_deliveries(columns, rows)
    of = {
        "valid": pa.repeat(True, n) if keeps is None else pa.array(keeps),
        **{name: rows[name] for name in (*_BY[table], "ledger") if name != "valid"},
        "count": pa.repeat(1, n),
        **facts,
    }
    return _added(table, pa.table([of[f.name].cast(f.type) for f in shape(table)], schema=shape(table)))


def together(table: str, counts: Iterable[pa.Table]) -> pa.Table:
    """Counts by ledger, added up, in order."""
    added = _added(table, pa.concat_tables([shape(table).empty_table(), *counts]))
    return added.sort_by([(name, "ascending") for name in (*_BY[table], "ledger")])


def added_up(table: str, counts: Iterable[pa.Table]) -> list[dict[str, Any]]:
    """All counts by ledger, as plain rows: of messages by topic partition, of deliveries by consumer, too."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in together(table, counts).to_pylist():
        mine = {name: row[name] for name in _BY[table]}
        lowest = _lowest(table, row)
        told = mine | {
            name: row[name] for name in _ADDED[table] if name not in (*_OF_A_LEDGER, "batch_index", *_FIRSTS)
        }
        told |= _crowded(row) if table == "messages" else {}
        before = found.get(tuple(mine.values()))
        found[tuple(mine.values())] = (
            told | {"lowest": lowest} if before is None else _both(table, before, told, lowest)
        )
    rows = list(found.values())
    for row in rows if table == "deliveries" else ():
        row["ended"] = row["acknowledged"] or row["given_back"]
    return rows


def _of_messages(columns: Columns, valid: Columns) -> dict[str, pa.Array]:
    keyed = pc.coalesce(*(columns[name] for name in KEYS)).is_valid()
    numbered = pc.and_(columns["producer"].is_valid(), columns["sequence_id"].is_valid())
    batched = pc.fill_null(pc.greater_equal(columns["batch_index"], 0), False)
    others = pc.coalesce(*(columns[name] for name in KEYS[1:])).is_valid()
    lengths = [pc.fill_null(pc.binary_length(columns[name]), 0) for name in KEYS if name in columns]
    at = nanos(valid, "publish_time")
    first = pc.equal(columns["entry"], 0)
    return {
        "first": at,
        "last": at,
        "widest": _sum(lengths, columns.rows),
        "numbered": numbered,
        "keyed": keyed,
        "sticky": pc.or_(keyed, numbered),
        "slotless": pc.and_not(pc.invert(keyed), numbered),
        "other": pc.or_(pc.or_(columns["key"].is_null(), others), batched),
        "batched": batched,
        "entry": columns["entry"],
        "highest": columns["entry"],
        "batch_index": _if(first, columns["batch_index"]),
    }


def _of_deliveries(columns: Columns, valid: Columns) -> dict[str, pa.Array]:
    at = happened(valid)
    there = at.is_valid()
    told = {"recorded": "received_at", "acknowledged": "acked_at", "given_back": "nacked_at"}
    first = pc.and_(there, pc.fill_null(pc.equal(columns["entry"], 0), False))
    new = pc.invert(pc.fill_null(pc.greater(columns["redelivery_count"], 0), False))
    begins = {
        name: pc.and_(first, pc.fill_null(pc.equal(columns["batch_index"], index), False))
        for name, index in _BEGINS.items()
    }
    return {
        "first": at,
        "last": at,
        **{name: pc.and_(there, columns[column].is_valid()) for name, column in told.items()},
        "dispatched": columns["delivered_at"].is_valid(),
        "commits": is_commit(columns).cast(pa.int64()),
        "committed": _if(is_commit(columns), nanos(valid, "acked_at", "acked_nanos")),
        "entry": _if(there, columns["entry"]),
        "batch_index": _if(first, columns["batch_index"]),
        **{name: _if(mine, at) for name, mine in begins.items()},
        **{f"{name}_new": _if(pc.and_(mine, new), at) for name, mine in begins.items()},
    }


def _nothing_where(batch: pa.RecordBatch, missing: Mask) -> pa.RecordBatch:
    kept = pa.array(~missing)
    columns = [pc.if_else(kept, column, pa.scalar(None, column.type)) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _if(known: pa.Array, values: pa.Array) -> pa.Array:
    return pc.if_else(known, values, pa.scalar(None, values.type))


def _sum(columns: list[pa.Array], rows: int) -> pa.Array:
    total = pa.repeat(0, rows)
    for each in columns:
        total = pc.add(total, each.cast(pa.int64()))
    return total


def _added(table: str, rows: pa.Table) -> pa.Table:
    by, options = [*_BY[table], "ledger"], pc.ScalarAggregateOptions(min_count=0)
    asked = [(name, how, options if how == "any" else None) for name, how in _ADDED[table].items()]
    grouped = rows.group_by(by, use_threads=False).aggregate(asked)
    names = [*by, *(f"{name}_{how}" for name, how in _ADDED[table].items())]
    return grouped.select(names).rename_columns(shape(table).names)


def _lowest(table: str, row: Mapping[str, Any]) -> dict[str, Any] | None:
    """The lowest position of a ledger's row; of deliveries with when it was delivered first, as far as a ledger's first
    message tells, and whether again before that."""
    if not row["valid"] or row["entry"] is None:
        return None
    index = row["batch_index"]
    lowest = {"ledger": row["ledger"], "entry": row["entry"], "batch_index": -1 if index is None else index}
    if table == "messages":
        return lowest
    mine = next((name for name, begin in _BEGINS.items() if index == begin), "")
    when, new = (row.get(f"{mine}{suffix}") for suffix in ("", "_new"))
    when, new = (NEVER if at is None else at for at in (when, new))
    return lowest | {"at": when, "again": new > when}


def _crowded(row: Mapping[str, Any]) -> dict[str, bool]:
    """Whether a ledger's row has more messages than entries, so that some have the same position (``crowded``); and
    whether all have (``constant``)."""
    if not row["valid"] or row["entry"] is None:
        return {"crowded": False, "constant": False}
    crowded = not row["batched"] and row["count"] > row["highest"] - row["entry"] + 1
    return {"crowded": crowded, "constant": crowded and row["highest"] == row["entry"]}


def _both(table: str, before: dict[str, Any], more: dict[str, Any], lowest: dict[str, Any] | None) -> dict[str, Any]:
    joined = {name: _WITH[_ADDED[table][name]](before[name], more[name]) if name in _ADDED[table] else more[name]
              for name in more}  # fmt: skip
    if table == "messages":
        joined |= {"crowded": before["crowded"] or more["crowded"], "constant": False}
    known = [each for each in (before["lowest"], lowest) if each is not None]
    return joined | {"lowest": min(known, key=lambda each: tuple(each.values()), default=None)}


def _least(one: Any, other: Any) -> Any:
    return other if one is None else one if other is None else min(one, other)


def _most(one: Any, other: Any) -> Any:
    return other if one is None else one if other is None else max(one, other)


_WITH: Final[Mapping[str, Any]] = {
    "sum": lambda one, other: one + other, "any": lambda one, other: one or other, "min": _least, "max": _most,
}  # fmt: skip
