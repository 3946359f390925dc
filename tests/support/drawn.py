"""Input tables of rows that are drawn: what Spark says of them is what whoever reads them in another way has to say."""

from __future__ import annotations

import random
from datetime import date as Date
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa

from subreplay.rows.model.tables import INPUTS

DAY = Date(2023, 11, 14)
BEGIN = datetime(2023, 11, 14, 12, tzinfo=timezone.utc)
TIMES = [
    BEGIN,
    BEGIN + timedelta(seconds=1),
    BEGIN + timedelta(microseconds=1),
    datetime(1960, 1, 1, tzinfo=timezone.utc),
]
OF_COLUMNS: dict[str, list[Any]] = {
    "date": [DAY, DAY, DAY, DAY, DAY + timedelta(days=1), Date(1950, 1, 1)],
    "topic": ["t", "t", "t", "t", "u", ""],
    "subscription": ["sub", "sub", "sub", "other", ""],
    "partition": [0, 0, 1, 2, -7],
    "ledger": [0, 3, 4, -1],
    "entry": [0, 0, 1, 2, 2**40],
    "batch_index": [-1, -1, 0, 1],
    "batch_size": [None, None, 2, 0],
    "key": [b"a", b"b", None],
    "ordering_key": [None, None, b"o"],
    "batch_key": [None, b"a", b"c"],
    "batch_ordering_key": [None],
    "batch_sequence_id": [None, 7],
    "producer": ["p", "p", None],
    "sequence_id": [0, 1, None],
    "chunk_id": [None, None, None, 0, 5],
    "chunk_count": [None, None, None, 2],
    "replicated_from": [None, None, "eu", ""],
    "aborted": [None, False, True],
    "origin": [None, None, {"topic": "t", "partition": 0, "ledger": 1, "entry": 2, "batch_index": -1}],
    "size": [10, 20, None, -1],
    "type": ["Shared"],
    "consumer": ["c1", "c2", "c3"],
    "instance": [None, "i1", "i2", ""],
    "event": ["join", "leave", "crash", "nothing"],
    "ranges": [None, [{"start": 0, "end": 9}, {"start": 10, "end": 12}], [{"start": 5, "end": 1}]],
    "redelivery_count": [0, 0, 1],
    "ack_type": ["Individual", "Cumulative", "Commit", "AutoCommit", None],
    "outcome": [None, "refused"],
    "source": ["observed"],
    "seq": [0, 1, 2],
}


def drawn(table: str, draws: random.Random, rows: int) -> pa.Table:
    """Rows of a table: most of them legal, some not, some alike."""
    fields = [field.with_nullable(True) for field in INPUTS[table]]
    kinds = pa.schema([pa.field(f.name, relaxed(f.type)) for f in fields])
    found = [{field.name: draws.choice(_values(field)) for field in fields} for _ in range(rows)]
    found += [dict(draws.choice(found)) for _ in range(rows // 4)]
    for row in found:  # most rows are sound in what several columns decide
        if draws.random() < 0.7:
            row.update({name: None for name in ("chunk_id", "chunk_count", "batch_size", "nacked_at") if name in row})
    return pa.Table.from_pylist(found, kinds)


def _values(field: pa.Field) -> list[Any]:
    if field.name in OF_COLUMNS:
        return OF_COLUMNS[field.name]
    if pa.types.is_timestamp(field.type):
        return [*TIMES[:3] * 4, TIMES[3], *([None] * 4 if _may_be_null(field.name) else [])]
    if pa.types.is_integer(field.type):
        return [None, 0, 5, 999]
    return [None]


def _may_be_null(name: str) -> bool:
    return name not in ("publish_time", "at")


def relaxed(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, relaxed(f.type)) for f in kind])
    return pa.list_(relaxed(kind.value_type)) if pa.types.is_list(kind) else kind
