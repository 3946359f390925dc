"""Read copies of ``__consumer_offsets`` from files: Parquet with the columns of Spark's Kafka source, or JSON lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from subreplay.adapters.base import Reason, RejectedRow
from subreplay.adapters.input_files import read_line_batches
from subreplay.adapters.kafka_group.consumer_offsets import OFFSETS_TOPIC, RECORD_COLUMNS
from subreplay.adapters.kafka_group.json_copies import ParsedCopies, parse_copies, split_records
from subreplay.adapters.kafka_group.share_state import STATE_TOPIC
from subreplay.errors import InputError
from subreplay.failures import describe_os_error
from subreplay.rows.model.columns import Ints
from subreplay.rows.model.tables import TIME

COPIED_RECORDS: Final = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),  # in the file, from 1
        pa.field("key", pa.large_binary()),
        pa.field("value", pa.large_binary()),
        pa.field("partition", pa.int64()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", TIME),
    ]
)
"""Copied records, with the file and row of each."""

_BATCH_ROWS: Final = 1 << 16


class CopyPart(NamedTuple):
    """A part of a file: its ``COPIED_RECORDS``, its rejected rows, its row count, and the count of rows of
    ``other_topics``. ``without_partition``: no record of the file contains its partition, so it is read as 0.
    ``states`` are the records of ``__share_group_state``."""

    records: pa.Table
    rejected: tuple[RejectedRow, ...] = ()
    rows: int = 0
    other_topics: int = 0
    without_partition: bool = False
    states: pa.Table = COPIED_RECORDS.empty_table()


def read_copy(path: Path, name: str) -> Iterator[CopyPart]:
    """Read the parts of a file, which rows call ``name``.

    Raises ``InputError`` where it has another format, and ``EnvironmentFailed`` where it cannot be read.
    """
    return _read_parquet(path, name) if _is_parquet(path) else _read_json(path, name)


def _is_parquet(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PAR1"
    except OSError as error:
        raise describe_os_error(error, path, "read") from error


def _read_parquet(path: Path, name: str) -> Iterator[CopyPart]:
    rows = 0
    try:
        file = pq.ParquetFile(path)
        schema = file.schema_arrow
        missing = [column for column in RECORD_COLUMNS if column not in schema.names]
        if missing:
            raise InputError(
                f"{path}: the copy has no column {', '.join(missing)}. Copy all columns of Spark's Kafka source"
            )
        kinds = {"key": pa.types.is_binary, "value": pa.types.is_binary, "timestamp": pa.types.is_timestamp}
        for column, fits in kinds.items():
            kind = schema.field(column).type
            if not (fits(kind) or (column != "timestamp" and pa.types.is_large_binary(kind))):
                raise InputError(f"{path}: column {column} is {kind}. Copy it as Spark's Kafka source has it")
        for batch in file.iter_batches(_BATCH_ROWS, columns=[*RECORD_COLUMNS, *({"topic"} & set(schema.names))]):
            table = pa.Table.from_batches([batch])
            yield _build_part(table.append_column("row", pa.array(np.arange(rows, rows + len(table)) + 1)), name)
            rows += len(table)
    except OSError as error:
        raise describe_os_error(error, path) from error
    except pa.ArrowException as error:
        raise InputError(f"{path}: the file cannot be read to its end ({error}). Copy it again") from error


def _read_json(path: Path, name: str) -> Iterator[CopyPart]:
    partitioned = any(not isinstance(found, RejectedRow) and found.partitioned for found in _parse_lines(path, name))
    for found in _parse_lines(path, name):
        if isinstance(found, RejectedRow):
            yield CopyPart(COPIED_RECORDS.empty_table(), (found._replace(table="membership"),), 1)
            continue
        table = found.records
        if not partitioned:
            index = table.schema.get_field_index("partition")
            table = table.set_column(index, "partition", pa.array(np.zeros(len(table), np.int64)))
        yield _build_part(table, name, found.rejected, not partitioned)


def _parse_lines(path: Path, name: str) -> Iterator[ParsedCopies | RejectedRow]:
    for part in read_line_batches(path, name):
        if isinstance(part, RejectedRow):
            yield part
        else:
            lines = part.filter(pc.match_substring_regex(part.column("text"), r"\S"))  # without blank lines
            yield parse_copies(split_records(lines))


def _build_part(
    table: pa.Table, name: str, rejected: tuple[RejectedRow, ...] = (), without_partition: bool = False
) -> CopyPart:
    """Select the records of ``__consumer_offsets``, and of ``__share_group_state``, where the table has topics."""
    rows = len(table)
    states = table.slice(0, 0)
    if "topic" in table.column_names:
        topic = table["topic"].cast(pa.string())
        states = table.filter(pc.fill_null(pc.equal(topic, STATE_TOPIC), False))
        table = table.filter(pc.fill_null(pc.equal(topic, OFFSETS_TOPIC), True))
    others = rows - len(table) - len(states)
    read = _to_records(table, name), rejected, rows + len(rejected), others, without_partition
    return CopyPart(*read, _to_records(states, name))


def _to_records(table: pa.Table, name: str) -> pa.Table:
    """Return the records of a file. Times may have nanoseconds."""
    table = table.append_column("file", pa.array([name] * len(table), pa.string()))
    records = [table[f.name].cast(f.type, safe=f.name != "timestamp") for f in COPIED_RECORDS]
    return pa.table(records, COPIED_RECORDS)


class UniqueRecords(NamedTuple):
    """Records without repetitions; repeated records by file; and rejected records that contradict earlier ones."""

    records: pa.Table
    repeated: Counter[str]
    rejected: tuple[RejectedRow, ...]


def drop_repeated_records(records: pa.Table) -> UniqueRecords:
    """Drop repeated records (``COPIED_RECORDS``, perhaps with more columns): the first record of a position stays.

    Two records at one position with different contents are contradictory, and the later one is rejected."""
    later, first = _find_repeated(records)
    same = np.ones(len(later), np.bool_)
    for name in ("key", "value"):
        own, other = (records[name].take(pa.array(rows)) for rows in (later, first))
        alike = pc.or_kleene(pc.equal(own, other), pc.and_(pc.is_null(own), pc.is_null(other)))
        same &= alike.fill_null(False).to_numpy()
    repeated = Counter(records["file"].take(pa.array(later[same])).to_pylist())
    positions = records.select(["file", "row", "partition", "offset"]).take(pa.array(later[~same]))
    rejected = []
    for row in positions.to_pylist():
        where = f"{row['partition']}:{row['offset']}"
        reason = Reason("partition, offset", where, "the records at one position must be equal",
                        "copy one cluster, with its partitions")  # fmt: skip
        rejected.append(RejectedRow("membership", row["file"], row["row"], f"the record at {where}", (reason,)))
    kept = np.ones(len(records), np.bool_)
    kept[later] = False
    return UniqueRecords(records.filter(pa.array(kept)), repeated, tuple(rejected))


def _find_repeated(records: pa.Table) -> tuple[Ints, Ints]:
    """Find rows whose position occurred before, and the first row of that position. Rows need a position."""
    known = pc.and_(pc.is_valid(records["partition"]), pc.is_valid(records["offset"]))
    rows = np.flatnonzero(known.to_numpy())
    position = records.select(["partition", "offset"]).take(pa.array(rows))
    partition, offset = (position[name].to_numpy() for name in ("partition", "offset"))
    order = np.lexsort((rows, offset, partition))
    new = np.ones(len(rows), np.bool_)
    new[1:] = (np.diff(partition[order]) != 0) | (np.diff(offset[order]) != 0)
    firsts = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    return rows[order[~new]], rows[order[firsts[~new]]]
