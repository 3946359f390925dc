"""Store a traffic profile as bytes: a Parquet file of one row, whose columns are lists.

Equal profiles give equal bytes.

Times are stored as differences, in microseconds if all are whole microseconds. Repeated values are dictionary-encoded,
and everything is compressed with Zstandard.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from subreplay.errors import InputError
from subreplay.rows.model.columns import DAY
from subreplay.rows.model.rows import Scope
from subreplay.whatif.traffic.traffic_profile import KeyHashes, Runs, TrafficProfile

VERSION: Final = "2"
"""The version of the layout. A table of another version cannot be read."""
BLOCKS: Final = pa.schema(
    [
        pa.field("date", pa.date32(), nullable=False),  # UTC day of its messages
        pa.field("first", pa.int64(), nullable=False),  # publish time, ns
        pa.field("last", pa.int64(), nullable=False),
        pa.field("messages", pa.int64(), nullable=False),
        pa.field("secret", pa.string(), nullable=False),  # check value of the run's secret
        pa.field("version", pa.string(), nullable=False),  # version of the layout
        pa.field("block", pa.binary(), nullable=False),  # ``to_bytes``
    ]
)
"""Rows of table ``profile``: each has the profile of some messages."""
_CODES: Final = ("key", "sticky", "routed", "scope", "producer")
_COLUMNS: Final[dict[str, pa.DataType]] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "producers": pa.string(),
    **{f"key_{field.name}": pa.uint32() for field in fields(KeyHashes)},
    "key_identity": pa.uint64(),
    "run_length": pa.int64(),
    **{f"run_{name}": pa.int32() for name in _CODES},
    "at": pa.int64(),
    "entry": pa.int64(),
    "size": pa.int64(),
    "spread": pa.uint32(),
}
_REPEATED: Final = ("topic", "producers", "run_scope", "run_producer", "size", "spread")
_RISING: Final = ("at", "entry", "run_length", "run_key", "run_sticky", "run_routed")


def to_bytes(profile: TrafficProfile) -> bytes:
    """Return the profile as the content of a file. Runs are written in order, with their messages."""
    runs, keys = profile.runs, profile.keys
    if len(runs) and (runs.begin[1:] != runs.end[:-1]).any():
        profile = profile.select_runs(runs)
        runs = profile.runs
    micros = not (profile.at % 1000).any()
    columns: dict[str, Any] = {
        "topic": [scope.topic for scope in profile.scopes],
        "partition": [scope.partition for scope in profile.scopes],
        "producers": list(profile.producers),
        **{f"key_{field.name}": getattr(keys, field.name) for field in fields(KeyHashes)},
        "run_length": runs.end - runs.begin,
        **{f"run_{name}": getattr(runs, name) for name in _CODES},
        "at": profile.at // 1000 if micros else profile.at,
        "entry": profile.entry,
        "size": profile.size,
        "spread": profile.spread,
    }
    lists = [pa.array(columns[name], kind) for name, kind in _COLUMNS.items()]
    row = [pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values) for values in lists]
    metadata = {"version": VERSION, "secret": profile.secret, "unit": "1000" if micros else "1"}
    table = pa.table(row, names=list(_COLUMNS)).replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression="zstd",
        use_dictionary=[f"{name}.list.element" for name in _REPEATED],
        column_encoding={f"{name}.list.element": "DELTA_BINARY_PACKED" for name in _RISING},
        write_statistics=False,
    )
    content: bytes = sink.getvalue().to_pybytes()
    return content


def build_blocks(profiles: Iterable[TrafficProfile]) -> Iterator[pa.RecordBatch]:
    """Yield ``BLOCKS`` rows, one for each profile that has messages."""
    for profile in profiles:
        if len(profile):
            first, last = profile.extent
            day = np.array([first // DAY], "datetime64[D]")
            row = [day, [first], [last], [len(profile)], [profile.secret], [VERSION], [to_bytes(profile)]]
            yield pa.record_batch([pa.array(v, f.type) for v, f in zip(row, BLOCKS, strict=True)], schema=BLOCKS)


def iterate_profiles(blocks: Iterable[pa.RecordBatch]) -> Iterator[TrafficProfile]:
    """Yield the profiles of ``BLOCKS`` rows."""
    for batch in blocks:
        for block in batch.column("block"):
            yield from_bytes(block.as_buffer())


def from_bytes(data: bytes | pa.Buffer) -> TrafficProfile:
    """Read a profile written by ``to_bytes``. Raises ``InputError`` if it has another version."""
    table = pq.read_table(pa.BufferReader(data))
    metadata = {name.decode(): value.decode() for name, value in (table.schema.metadata or {}).items()}
    if metadata.get("version") != VERSION:
        raise InputError(
            f"The traffic profile has version {metadata.get('version')}, but this release reads version {VERSION}. "
            "Make it again with `subreplay profile`."
        )
    lists = {name: table[name].combine_chunks().flatten() for name in _COLUMNS}
    arrays = {name: np.asarray(values) for name, values in lists.items() if name not in ("topic", "producers")}
    ends = np.cumsum(arrays["run_length"])
    topic_partitions = zip(lists["topic"].to_pylist(), arrays["partition"].tolist(), strict=True)
    return TrafficProfile(
        scopes=tuple(Scope(*topic_partition) for topic_partition in topic_partitions),
        producers=tuple(lists["producers"].to_pylist()),
        keys=KeyHashes(**{field.name: arrays[f"key_{field.name}"] for field in fields(KeyHashes)}),
        runs=Runs(ends - arrays["run_length"], ends, *(arrays[f"run_{name}"] for name in _CODES)),
        at=arrays["at"] * int(metadata["unit"]),
        entry=arrays["entry"],
        size=arrays["size"],
        spread=arrays["spread"],
        secret=metadata["secret"],
    )
