"""Records of Kafka's internal topic ``__consumer_offsets``, as Spark's Kafka source gives them, into decoded tables.

Columns in: ``key`` and ``value`` binary, ``partition`` int, ``offset`` long, ``timestamp`` timestamp. Each record ends
as one row of one table of ``records.TABLES``, or in quarantine: its file is then the topic partition
(``__consumer_offsets-12``) and its row the offset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.base import FileCount, Reason, Rejected
from subreplay.adapters.kafka_group.commits import Cells, commits, key_versions
from subreplay.adapters.kafka_group.protocol_bytes import Malformed
from subreplay.adapters.kafka_group.records import TABLES, decode
from subreplay.errors import InputError
from subreplay.rows.model.columns import Ints
from subreplay.rows.model.contracts import HAPPENED
from subreplay.rows.model.tables import TIME

TOPIC: Final = "__consumer_offsets"
COLUMNS: Final = ("key", "value", "partition", "offset", "timestamp")
MOST_BYTES: Final = 100
"""Of the bytes of a rejected record as many are shown, in hex."""


@dataclass(frozen=True)
class Decoded:
    """Tables by name (all of ``TABLES``), rejected records, and the counts of each topic partition."""

    tables: dict[str, pa.Table]
    rejected: tuple[Rejected, ...]
    counts: tuple[FileCount, ...]


def decode_records(records: pa.RecordBatch | pa.Table) -> Decoded:
    """Decode records of ``__consumer_offsets``; raises ``InputError`` where a column is missing or of another type."""
    parts = [_decode(batch) for batch in _with_columns(records).to_batches()]
    return joined(parts)


def joined(parts: Iterable[Decoded]) -> Decoded:
    """Several batches' results as one."""
    every = list(parts)
    tables = {
        name: pa.concat_tables([part.tables[name] for part in every] or [schema.empty_table()])
        for name, schema in TABLES.items()
    }
    counts: dict[str, FileCount] = {}
    for one in (count for part in every for count in part.counts):
        before = counts.get(one.file, FileCount(one.file, 0, 0))
        counts[one.file] = FileCount(one.file, before.rows_in + one.rows_in, before.quarantined + one.quarantined)
    rejected = tuple(rejected for part in every for rejected in part.rejected)
    return Decoded(tables, rejected, tuple(counts[file] for file in sorted(counts)))


def _with_columns(records: pa.RecordBatch | pa.Table) -> pa.Table:
    missing = [name for name in COLUMNS if name not in records.schema.names]
    if missing:
        raise InputError(f"{TOPIC}: no column {', '.join(missing)}; read it by Spark's Kafka source, all columns kept")
    types = (pa.large_binary(), pa.large_binary(), pa.int64(), pa.int64(), TIME)
    columns = {}
    for name, kind in zip(COLUMNS, types, strict=True):
        try:
            columns[name] = records.column(name).cast(kind, safe=name != "timestamp")  # a time may have nanoseconds
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InputError(f"{TOPIC}: column {name} is {records.schema.field(name).type}, not {kind}") from error
    return pa.table(columns)


def _decode(batch: pa.RecordBatch) -> Decoded:
    batch = _Batch(batch)
    quarantined: dict[int, Malformed] = batch.incomplete()
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
    complete = np.ones(len(batch), np.bool_)
    complete[list(quarantined)] = False
    versions = key_versions(Cells(batch.key))
    mass = np.flatnonzero(complete & ((versions == 0) | (versions == 1)))
    found = commits(batch.key.take(pa.array(mass)), batch.value.take(pa.array(mass)))
    alone = complete.copy()
    alone[mass[found.usual]] = False
    for i in np.flatnonzero(alone).tolist():
        try:
            table, row = decode(batch.key[i].as_py(), batch.value[i].as_py())
        except Malformed as malformed:
            quarantined[i] = malformed
        else:
            rows[table].append(row | batch.position(i))
    tables = {name: pa.Table.from_pylist(rows[name], schema) for name, schema in TABLES.items()}
    usual = batch.columns(mass[found.usual]) | found.columns
    fast = pa.table([usual[f.name].cast(f.type) for f in TABLES["offset_commits"]], TABLES["offset_commits"])
    tables["offset_commits"] = pa.concat_tables([fast, tables["offset_commits"]])
    return Decoded(tables, tuple(batch.rejected(quarantined)), tuple(batch.counts(quarantined)))


class _Batch:
    """The columns of a batch, and what its rows are called."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.key, self.value, self.partition, self.offset, self.time = (batch.column(name) for name in COLUMNS)

    def __len__(self) -> int:
        return len(self.key)

    def incomplete(self) -> dict[int, Malformed]:
        """Rows that lack what every record has."""
        micros = pc.cast(self.time, pa.int64())
        wrong = {
            "key": (self.key.is_null(), "a group record has a key"),
            "partition": (_outside(self.partition, 0, 2**31 - 1), "a partition is from 0 to 2,147,483,647"),
            "offset": (_outside(self.offset, 0, 2**63 - 1), "an offset is not negative"),
            "timestamp": (_outside(micros, HAPPENED.least, HAPPENED.most), HAPPENED.rule),
        }
        found: dict[int, Malformed] = {}
        for column, (rows, rule) in wrong.items():
            for i in np.flatnonzero(rows.to_numpy(zero_copy_only=False)).tolist():
                found.setdefault(i, Malformed(rule, "copy the record as Spark's Kafka source gives it"))
                found[i].column = column
        return found

    def position(self, i: int) -> dict[str, Any]:
        """Where record ``i`` lies."""
        return {
            "record_partition": self.partition[i].as_py(),
            "record_offset": self.offset[i].as_py(),
            "record_time": self.time[i],
            "tombstone": not self.value[i].is_valid,
        }

    def columns(self, rows: Ints) -> dict[str, pa.Array]:
        """Where some records lie."""
        names = {"record_partition": self.partition, "record_offset": self.offset, "record_time": self.time}
        return {name: column.take(pa.array(rows)) for name, column in names.items()}

    def rejected(self, quarantined: Mapping[int, Malformed]) -> Iterator[Rejected]:
        for i, malformed in sorted(quarantined.items()):
            key, value = _hex(self.key[i].as_py()), _hex(self.value[i].as_py())
            column = malformed.column
            shown = {"key": key, "value": value, "partition": self.partition[i], "offset": self.offset[i]}
            told = str(shown.get(column, self.time[i]))
            reason = Reason(column, told, malformed.rule, malformed.remedy)
            row = self.offset[i].as_py()
            yield Rejected(TOPIC, self._file(i), -1 if row is None else row, f"key {key}, value {value}", (reason,))

    def counts(self, quarantined: Mapping[int, Malformed]) -> Iterator[FileCount]:
        bad = Counter(self.partition[i].as_py() for i in quarantined)
        for found in self.partition.value_counts().to_pylist():
            yield FileCount(_named(found["values"]), found["counts"], bad[found["values"]])

    def _file(self, i: int) -> str:
        return _named(self.partition[i].as_py())


def _named(partition: int | None) -> str:
    return TOPIC if partition is None or partition < 0 else f"{TOPIC}-{partition}"


def _outside(values: pa.Array, least: int, most: int) -> pa.Array:
    inside = pc.and_(pc.greater_equal(values, least), pc.less_equal(values, most))
    return pc.invert(inside.fill_null(False))


def _hex(data: bytes | None) -> str:
    """Bytes as they are shown: the first of them in hex."""
    if data is None:
        return "null"
    return data.hex() if len(data) <= MOST_BYTES else f"{data[:MOST_BYTES].hex()}… ({len(data):,} bytes)"
