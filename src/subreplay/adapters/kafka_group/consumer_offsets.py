"""Decode records of Kafka's internal topic ``__consumer_offsets`` into tables.

The input columns are those of Spark's Kafka source: ``key`` and ``value`` binary, ``partition`` int, ``offset`` long,
``timestamp`` timestamp. Each record becomes one row of one table of ``group_records.TABLES``, or is quarantined. The
file of a quarantined row is then the topic partition (``__consumer_offsets-12``), and its row number is the offset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.base import FileCount, Reason, RejectedRow
from subreplay.adapters.kafka_group.group_records import RECORD_TABLES, decode_record
from subreplay.adapters.kafka_group.offset_commits import BinaryCells, decode_commits, read_key_versions
from subreplay.adapters.kafka_group.protocol_bytes import MalformedBytes
from subreplay.errors import InputError
from subreplay.rows.model.columns import Ints
from subreplay.rows.model.contracts import HAPPENED
from subreplay.rows.model.tables import TIME

OFFSETS_TOPIC: Final = "__consumer_offsets"
RECORD_COLUMNS: Final = ("key", "value", "partition", "offset", "timestamp")
MAX_SHOWN_BYTES: Final = 100
"""The bytes of a rejected record that are shown, in hex."""


@dataclass(frozen=True)
class DecodedRecords:
    """The decoded tables by name (all of ``RECORD_TABLES``), rejected records, and the counts of each topic
    partition."""

    tables: dict[str, pa.Table]
    rejected: tuple[RejectedRow, ...]
    counts: tuple[FileCount, ...]


def decode_records(records: pa.RecordBatch | pa.Table) -> DecodedRecords:
    """Decode records of ``__consumer_offsets``. Raises ``InputError`` where a column is missing or of another type."""
    parts = [_decode_batch(batch) for batch in _select_columns(records).to_batches()]
    return concatenate_decoded(parts)


def concatenate_decoded(parts: Iterable[DecodedRecords]) -> DecodedRecords:
    """Concatenate the results of several batches."""
    every = list(parts)
    tables = {
        name: pa.concat_tables([part.tables[name] for part in every] or [schema.empty_table()])
        for name, schema in RECORD_TABLES.items()
    }
    counts: dict[str, FileCount] = {}
    for one in (count for part in every for count in part.counts):
        before = counts.get(one.file, FileCount(one.file, 0, 0))
        counts[one.file] = FileCount(one.file, before.rows_in + one.rows_in, before.quarantined + one.quarantined)
    rejected = tuple(rejected for part in every for rejected in part.rejected)
    return DecodedRecords(tables, rejected, tuple(counts[file] for file in sorted(counts)))


def _select_columns(records: pa.RecordBatch | pa.Table) -> pa.Table:
    missing = [name for name in RECORD_COLUMNS if name not in records.schema.names]
    if missing:
        raise InputError(
            f"{OFFSETS_TOPIC}: the copy has no column {', '.join(missing)}. Copy all columns of Spark's Kafka source"
        )
    types = (pa.large_binary(), pa.large_binary(), pa.int64(), pa.int64(), TIME)
    columns = {}
    for name, kind in zip(RECORD_COLUMNS, types, strict=True):
        try:
            columns[name] = records.column(name).cast(kind, safe=name != "timestamp")  # a time may have nanoseconds
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InputError(
                f"{OFFSETS_TOPIC}: column {name} is {records.schema.field(name).type}, but must be {kind}. Copy it as "
                "Spark's "
                "Kafka source has it"
            ) from error
    return pa.table(columns)


def _decode_batch(batch: pa.RecordBatch) -> DecodedRecords:
    batch = _RecordBatch(batch)
    quarantined: dict[int, MalformedBytes] = batch.find_incomplete()
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in RECORD_TABLES}
    complete = np.ones(len(batch), np.bool_)
    complete[list(quarantined)] = False
    versions = read_key_versions(BinaryCells(batch.key))
    mass = np.flatnonzero(complete & ((versions == 0) | (versions == 1)))
    found = decode_commits(batch.key.take(pa.array(mass)), batch.value.take(pa.array(mass)))
    alone = complete.copy()
    alone[mass[found.usual]] = False
    for i in np.flatnonzero(alone).tolist():
        try:
            table, row = decode_record(batch.key[i].as_py(), batch.value[i].as_py())
        except MalformedBytes as malformed:
            quarantined[i] = malformed
        else:
            rows[table].append(row | batch.locate(i))
    tables = {name: pa.Table.from_pylist(rows[name], schema) for name, schema in RECORD_TABLES.items()}
    usual = batch.columns(mass[found.usual]) | found.columns
    fast = pa.table(
        [usual[f.name].cast(f.type) for f in RECORD_TABLES["offset_commits"]], RECORD_TABLES["offset_commits"]
    )
    tables["offset_commits"] = pa.concat_tables([fast, tables["offset_commits"]])
    return DecodedRecords(tables, tuple(batch.build_rejected_rows(quarantined)), tuple(batch.build_counts(quarantined)))


class _RecordBatch:
    """The columns of a batch, with the locations of its rows."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.key, self.value, self.partition, self.offset, self.time = (batch.column(name) for name in RECORD_COLUMNS)

    def __len__(self) -> int:
        return len(self.key)

    def find_incomplete(self) -> dict[int, MalformedBytes]:
        """Find rows that lack a value that every record has."""
        micros = pc.cast(self.time, pa.int64())
        wrong = {
            "key": (self.key.is_null(), "a group record must have a key"),
            "partition": (_is_outside(self.partition, 0, 2**31 - 1), "a partition must be from 0 to 2,147,483,647"),
            "offset": (_is_outside(self.offset, 0, 2**63 - 1), "an offset must not be negative"),
            "timestamp": (_is_outside(micros, HAPPENED.least, HAPPENED.most), HAPPENED.rule),
        }
        found: dict[int, MalformedBytes] = {}
        for column, (rows, rule) in wrong.items():
            for i in np.flatnonzero(rows.to_numpy(zero_copy_only=False)).tolist():
                found.setdefault(i, MalformedBytes(rule, "copy the record as Spark's Kafka source has it"))
                found[i].column = column
        return found

    def locate(self, i: int) -> dict[str, Any]:
        """Return the position of record ``i``."""
        return {
            "record_partition": self.partition[i].as_py(),
            "record_offset": self.offset[i].as_py(),
            "record_time": self.time[i],
            "tombstone": not self.value[i].is_valid,
        }

    def columns(self, rows: Ints) -> dict[str, pa.Array]:
        """Return the positions of some records."""
        names = {"record_partition": self.partition, "record_offset": self.offset, "record_time": self.time}
        return {name: column.take(pa.array(rows)) for name, column in names.items()}

    def build_rejected_rows(self, quarantined: Mapping[int, MalformedBytes]) -> Iterator[RejectedRow]:
        for i, malformed in sorted(quarantined.items()):
            key, value = _format_hex(self.key[i].as_py()), _format_hex(self.value[i].as_py())
            column = malformed.column
            shown = {"key": key, "value": value, "partition": self.partition[i], "offset": self.offset[i]}
            text = str(shown.get(column, self.time[i]))
            reason = Reason(column, text, malformed.rule, malformed.remedy)
            row = self.offset[i].as_py()
            yield RejectedRow(
                OFFSETS_TOPIC, self._find_file(i), -1 if row is None else row, f"key {key}, value {value}", (reason,)
            )

    def build_counts(self, quarantined: Mapping[int, MalformedBytes]) -> Iterator[FileCount]:
        bad = Counter(self.partition[i].as_py() for i in quarantined)
        for found in self.partition.value_counts().to_pylist():
            yield FileCount(_name_file(found["values"]), found["counts"], bad[found["values"]])

    def _find_file(self, i: int) -> str:
        return _name_file(self.partition[i].as_py())


def _name_file(partition: int | None) -> str:
    return OFFSETS_TOPIC if partition is None or partition < 0 else f"{OFFSETS_TOPIC}-{partition}"


def _is_outside(values: pa.Array, least: int, most: int) -> pa.Array:
    inside = pc.and_(pc.greater_equal(values, least), pc.less_equal(values, most))
    return pc.invert(inside.fill_null(False))


def _format_hex(data: bytes | None) -> str:
    """Format the first bytes in hex."""
    if data is None:
        return "null"
    return data.hex() if len(data) <= MAX_SHOWN_BYTES else f"{data[:MAX_SHOWN_BYTES].hex()}… ({len(data):,} bytes)"
