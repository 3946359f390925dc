"""What a run has to know of its messages and deliveries before it judges, counted batch by batch: rows that keep the
contract and others, the time they span, topic partitions, and who was served.

Rows are counted by ledger first, since the lowest position of a topic partition is needed: these counts are few, are
added up whatever the batches were, and make a summary in the end.
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
_MORE: Final = {"messages": {"crowded": "any", "constant": "all"}, "deliveries": {"ended": "any"}}
"""What a summary says beside, and how it is added up."""
_POSITION: Final = {"ledger": pa.int64(), "entry": pa.int64(), "batch_index": pa.int64()}
_LOWEST: Final = {"messages": _POSITION, "deliveries": _POSITION | {"at": pa.int64(), "again": pa.bool_()}}
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


def summary(table: str) -> pa.Schema:
    """The columns of a summary: of messages by topic partition, of deliveries by consumer, too. ``ledger``, ``entry``
    and ``batch_index`` are the lowest position of valid rows; of deliveries ``at`` tells when it was delivered first,
    as far as a ledger's first message tells, and ``again`` whether it was redelivered before that."""
    by = [pa.field(name, _KINDS[name]) for name in _BY[table]]
    facts = [pa.field(name, shape(table).field(name).type) for name in _facts(table)]
    more = [pa.field(name, pa.bool_()) for name in _MORE[table]]
    return pa.schema([*by, *facts, *more, *(pa.field(*lowest) for lowest in _LOWEST[table].items())])


def summed(table: str, counts: Iterable[pa.Table]) -> pa.Table:
    """All counts by ledger as a summary, in order."""
    rows = together(table, counts)
    for name, values in (_crowded(rows) if table == "messages" else _ended(rows)).items():
        rows = rows.append_column(name, values)
    found = pc.and_(rows["valid"], rows["entry"].is_valid())
    for name, values in _positions(table, rows).items():
        rows = rows.append_column(f"lowest_{name}", pc.if_else(found, values, pa.scalar(None, values.type)))
    by, last = [*_BY[table]], pc.ScalarAggregateOptions(min_count=0)
    wanted: list[tuple[Any, ...]] = [
        (name, _ADDED[table][name], _options(_ADDED[table][name])) for name in _facts(table)
    ]
    wanted += [(name, how, last) for name, how in _MORE[table].items()]
    wanted += [(f"lowest_{name}", "first", None) for name in _LOWEST[table]]
    one = rows.append_column("(row)", pa.repeat(1, len(rows)))
    sums = one.group_by(by, use_threads=False).aggregate([*wanted, ("(row)", "sum")])
    if table == "messages":  # in several ledgers they have several positions
        alone = pc.and_(sums["constant_all"], pc.equal(sums["(row)_sum"], 1))
        sums = sums.set_column(sums.schema.get_field_index("constant_all"), "constant_all", alone)
    sums = sums.select([*by, *(f"{name}_{how}" for name, how, _ in wanted)]).rename_columns(summary(table).names)
    return sums.sort_by([(name, "ascending") for name in by]).cast(summary(table))


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


def _facts(table: str) -> tuple[str, ...]:
    """What is told of a topic partition, or a consumer, too."""
    return tuple(name for name in _ADDED[table] if name not in (*_OF_A_LEDGER, "batch_index", *_FIRSTS))


def _options(how: str) -> pc.ScalarAggregateOptions | None:
    return pc.ScalarAggregateOptions(min_count=0) if how == "any" else None


def _positions(table: str, rows: pa.Table) -> dict[str, pa.Array]:
    """The lowest position of each ledger; of deliveries with when it was delivered first, as far as a ledger's first
    message tells, and whether it was redelivered before that."""
    index = rows["batch_index"]
    found = {"ledger": rows["ledger"], "entry": rows["entry"], "batch_index": pc.fill_null(index, -1)}
    if table == "messages":
        return found
    when, new = (
        pc.fill_null(
            pc.coalesce(*(_if(pc.equal(index, begin), rows[f"{name}{suffix}"]) for name, begin in _BEGINS.items())),
            NEVER,
        )
        for suffix in ("", "_new")
    )
    return found | {"at": when, "again": pc.greater(new, when)}


def _crowded(rows: pa.Table) -> dict[str, pa.Array]:
    """Whether ledgers have more messages than entries, so that some have the same position (``crowded``); and whether
    all have (``constant``)."""
    known = pc.and_(rows["valid"], rows["entry"].is_valid())
    entries = pc.add(pc.subtract(rows["highest"], rows["entry"]), 1)
    many = pc.and_(pc.invert(rows["batched"]), pc.fill_null(pc.greater(rows["count"], entries), False))
    crowded = pc.and_(known, many)
    return {"crowded": crowded, "constant": pc.and_(crowded, pc.fill_null(pc.equal(entries, 1), False))}


def _ended(rows: pa.Table) -> dict[str, pa.Array]:
    return {"ended": pc.or_(rows["acknowledged"], rows["given_back"])}
