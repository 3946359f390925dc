"""Copies of ``__consumer_offsets`` in files: Parquet with the columns of Spark's Kafka source, or JSON lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from subreplay.adapters.base import Reason, Rejected
from subreplay.adapters.files import lines_of
from subreplay.adapters.kafka_group.consumer_offsets import COLUMNS, TOPIC
from subreplay.adapters.kafka_group.json_copies import one_by_one, parsed
from subreplay.errors import InputError
from subreplay.failures import of_system
from subreplay.model.columns import Ints
from subreplay.model.tables import TIME

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


@dataclass
class Copy:
    """``RECORDS`` of any number of files; what was rejected of them; the ``rows`` of each file, and of them those of
    other topics or copied before (``others``). ``without_partition`` files tell no partition: their records are taken
    to be of partition 0."""

    records: pa.Table
    rejected: list[Rejected] = field(default_factory=list)
    rows: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)
    without_partition: list[str] = field(default_factory=list)


def copied(files: Iterable[tuple[Path, str]]) -> Copy:
    """Read files, each with what it is called. A record that is there already counts once.

    Raises ``InputError`` where a file is of another kind, and ``EnvironmentFailed`` where one cannot be read.
    """
    copy = Copy(RECORDS.empty_table())
    parts = [copy.records]
    for path, name in files:
        copy.rows[name] += 0
        parts += _parquet(path, name, copy) if _is_parquet(path) else _json(path, name, copy)
    copy.records = _once(pa.concat_tables(parts), copy)
    return copy


def _is_parquet(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PAR1"
    except OSError as error:
        raise of_system(error, path, "read") from error


def _parquet(path: Path, name: str, copy: Copy) -> Iterator[pa.Table]:
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
            first = copy.rows[name] + 1
            copy.rows[name] += len(table)
            yield _ours(table.append_column("row", pa.array(np.arange(first, first + len(table)))), name, copy)
    except OSError as error:
        raise of_system(error, path) from error
    except pa.ArrowException as error:
        raise InputError(f"{path}: cannot be read to its end: {error}; copy it again") from error


def _json(path: Path, name: str, copy: Copy) -> Iterator[pa.Table]:
    tables, partitioned = [], False
    for part in lines_of(path, name):
        if isinstance(part, Rejected):
            copy.rejected.append(part._replace(table="membership"))
            copy.rows[name] += 1
            continue
        lines = part.filter(pc.match_substring_regex(part.column("text"), r"\S"))  # of blank lines nothing
        found = parsed(one_by_one(lines))
        copy.rows[name] += len(found.records) + len(found.rejected)
        copy.rejected += found.rejected
        partitioned |= found.partitioned
        tables.append(found.records)
    for table in tables:
        if not partitioned:
            index = table.schema.get_field_index("partition")
            table = table.set_column(index, "partition", pa.array(np.zeros(len(table), np.int64)))
        yield _ours(table, name, copy)
    if tables and not partitioned:
        copy.without_partition.append(name)


def _ours(table: pa.Table, name: str, copy: Copy) -> pa.Table:
    """The records of ``__consumer_offsets``, where the table tells topics. Times may have nanoseconds."""
    if "topic" in table.column_names:
        mine = pc.fill_null(pc.equal(table["topic"].cast(pa.string()), TOPIC), True)
        copy.others[name] += len(table) - (pc.sum(mine).as_py() or 0)
        table = table.filter(mine)
    table = table.append_column("file", pa.array([name] * len(table), pa.string()))
    return pa.table([table[f.name].cast(f.type, safe=f.name != "timestamp") for f in RECORDS], schema=RECORDS)


def _once(records: pa.Table, copy: Copy) -> pa.Table:
    """The records, each once. Of two at one position with different contents nobody can tell which is right."""
    later, first = _again(records)
    if not len(later):
        return records
    same = np.ones(len(later), np.bool_)
    for name in ("key", "value"):
        mine, other = (records[name].take(pa.array(rows)) for rows in (later, first))
        alike = pc.or_kleene(pc.equal(mine, other), pc.and_(pc.is_null(mine), pc.is_null(other)))
        same &= alike.fill_null(False).to_numpy()
    copy.others.update(records["file"].take(pa.array(later[same])).to_pylist())
    positions = records.select(["file", "row", "partition", "offset"]).take(pa.array(later[~same]))
    for row in positions.to_pylist():
        where = f"{row['partition']}:{row['offset']}"
        reason = Reason("partition, offset", where, "one place, two contents", "copy one cluster, and the partitions")
        copy.rejected.append(Rejected("membership", row["file"], row["row"], f"the record at {where}", (reason,)))
    kept = np.ones(len(records), np.bool_)
    kept[later] = False
    return records.filter(pa.array(kept))


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
