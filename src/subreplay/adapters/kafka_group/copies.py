"""Copies of ``__consumer_offsets`` in files: Parquet with the columns of Spark's Kafka source, or JSON lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from subreplay.adapters.base import Reason, Rejected
from subreplay.adapters.files import lines_of
from subreplay.adapters.kafka_group.consumer_offsets import COLUMNS, TOPIC
from subreplay.adapters.kafka_group.json_copies import Parsed, one_by_one, parsed
from subreplay.errors import InputError
from subreplay.failures import describe_os_error
from subreplay.rows.model.columns import Ints
from subreplay.rows.model.tables import TIME

RECORDS: Final = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),  # of the file, from 1
        pa.field("key", pa.large_binary()),
        pa.field("value", pa.large_binary()),
        pa.field("partition", pa.int64()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", TIME),
    ]
)
"""Records as they were copied, with the locations of their rows."""

_ROWS: Final = 1 << 16


class Part(NamedTuple):
    """``RECORDS`` of a part of a file, and what was rejected of it; how many rows it has, and of them those of
    ``other_topics``. ``without_partition``: no record of the file tells its partition, which is taken to be 0."""

    records: pa.Table
    rejected: tuple[Rejected, ...] = ()
    rows: int = 0
    other_topics: int = 0
    without_partition: bool = False


def parts_of(path: Path, name: str) -> Iterator[Part]:
    """The parts of a file that is called so.

    Raises ``InputError`` where it is of another kind, and ``EnvironmentFailed`` where it cannot be read.
    """
    return _parquet(path, name) if _is_parquet(path) else _json(path, name)


def _is_parquet(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PAR1"
    except OSError as error:
        raise describe_os_error(error, path, "read") from error


def _parquet(path: Path, name: str) -> Iterator[Part]:
    rows = 0
    try:
        file = pq.ParquetFile(path)
        schema = file.schema_arrow
        missing = [column for column in COLUMNS if column not in schema.names]
        if missing:
            raise InputError(f"{path}: no column {', '.join(missing)}; copy all columns of Spark's Kafka source")
        kinds = {"key": pa.types.is_binary, "value": pa.types.is_binary, "timestamp": pa.types.is_timestamp}
        for column, fits in kinds.items():
            kind = schema.field(column).type
            if not (fits(kind) or (column != "timestamp" and pa.types.is_large_binary(kind))):
                raise InputError(f"{path}: column {column} is {kind}; copy it as Spark's Kafka source gives it")
        for batch in file.iter_batches(_ROWS, columns=[*COLUMNS, *({"topic"} & set(schema.names))]):
            table = pa.Table.from_batches([batch])
            yield _part(table.append_column("row", pa.array(np.arange(rows, rows + len(table)) + 1)), name)
            rows += len(table)
    except OSError as error:
        raise describe_os_error(error, path) from error
    except pa.ArrowException as error:
        raise InputError(f"{path}: cannot be read to its end: {error}; copy it again") from error


def _json(path: Path, name: str) -> Iterator[Part]:
    partitioned = any(not isinstance(found, Rejected) and found.partitioned for found in _parsed(path, name))
    for found in _parsed(path, name):
        if isinstance(found, Rejected):
            yield Part(RECORDS.empty_table(), (found._replace(table="membership"),), 1)
            continue
        table = found.records
        if not partitioned:
            index = table.schema.get_field_index("partition")
            table = table.set_column(index, "partition", pa.array(np.zeros(len(table), np.int64)))
        yield _part(table, name, found.rejected, not partitioned)


def _parsed(path: Path, name: str) -> Iterator[Parsed | Rejected]:
    for part in lines_of(path, name):
        if isinstance(part, Rejected):
            yield part
        else:
            lines = part.filter(pc.match_substring_regex(part.column("text"), r"\S"))  # of blank lines nothing
            yield parsed(one_by_one(lines))


def _part(table: pa.Table, name: str, rejected: tuple[Rejected, ...] = (), without_partition: bool = False) -> Part:
    """The records of ``__consumer_offsets``, where the table tells topics. Times may have nanoseconds."""
    rows = len(table)
    if "topic" in table.column_names:
        table = table.filter(pc.fill_null(pc.equal(table["topic"].cast(pa.string()), TOPIC), True))
    others = rows - len(table)
    table = table.append_column("file", pa.array([name] * len(table), pa.string()))
    records = [table[f.name].cast(f.type, safe=f.name != "timestamp") for f in RECORDS]
    return Part(pa.table(records, RECORDS), rejected, rows + len(rejected), others, without_partition)


class Once(NamedTuple):
    """Records, each once; those that were copied before, by file, and those that contradict what was copied before."""

    records: pa.Table
    again: Counter[str]
    rejected: tuple[Rejected, ...]


def once(records: pa.Table) -> Once:
    """The records (``RECORDS``, maybe with more columns), each once, in their order; of those at one position the
    first. Of two at one position with different contents nobody can tell which is right."""
    later, first = _again(records)
    same = np.ones(len(later), np.bool_)
    for name in ("key", "value"):
        mine, other = (records[name].take(pa.array(rows)) for rows in (later, first))
        alike = pc.or_kleene(pc.equal(mine, other), pc.and_(pc.is_null(mine), pc.is_null(other)))
        same &= alike.fill_null(False).to_numpy()
    again = Counter(records["file"].take(pa.array(later[same])).to_pylist())
    positions = records.select(["file", "row", "partition", "offset"]).take(pa.array(later[~same]))
    rejected = []
    for row in positions.to_pylist():
        where = f"{row['partition']}:{row['offset']}"
        reason = Reason("partition, offset", where, "one place, two contents", "copy one cluster, and the partitions")
        rejected.append(Rejected("membership", row["file"], row["row"], f"the record at {where}", (reason,)))
    kept = np.ones(len(records), np.bool_)
    kept[later] = False
    return Once(records.filter(pa.array(kept)), again, tuple(rejected))


def _again(records: pa.Table) -> tuple[Ints, Ints]:
    """Rows whose position another one has before them, and that one; rows without a position have none."""
    known = pc.and_(pc.is_valid(records["partition"]), pc.is_valid(records["offset"]))
    rows = np.flatnonzero(known.to_numpy())
    position = records.select(["partition", "offset"]).take(pa.array(rows))
    partition, offset = (position[name].to_numpy() for name in ("partition", "offset"))
    order = np.lexsort((rows, offset, partition))
    new = np.ones(len(rows), np.bool_)
    new[1:] = (np.diff(partition[order]) != 0) | (np.diff(offset[order]) != 0)
    firsts = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    return rows[order[~new]], rows[order[firsts[~new]]]
