"""Split the rows of input tables by topic, for the task that audits the subscriptions of that topic.

A chunk has the rows of one table and topic that a task read together: a binary value beside the number of its table.
Engines therefore sort and move few, large values, whatever columns the tables have.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.rows.encoded import as_bytes
from subreplay.rows.model.columns import as_schema, column, gather_batches
from subreplay.rows.sorted_blocks import SORT_ROWS, Order

CHUNKS: Final = "chunks"
"""The name of the output."""
_TEXT: Final = ("(topic)", "(number)")
_CHUNK: Final = pa.schema(
    [
        pa.field("(topic)", pa.string(), nullable=False),
        pa.field("(number)", pa.int32(), nullable=False),  # of the topic
        pa.field("table", pa.int64(), nullable=False),
        pa.field("nth", pa.int64(), nullable=False),  # chunk of its task
        pa.field("columns", pa.int64(), nullable=False),  # bit per column of the table: those that have values
        pa.field("rows", pa.binary(), nullable=False),
    ]
)
BY_TOPIC: Final = Order(_CHUNK, ("table", "nth"), (), _TEXT)


@dataclass(frozen=True)
class TopicChunks:
    """Splits rows of input table number ``table`` with ``schema`` into chunks of the ``topics`` that need them.

    A row goes to its own topic. A dead letter goes to the topic of its origin, too, and an event of a group in
    ``groups`` (by topic) to the other topics that the group reads. A row without a topic may belong to any of them.
    ``anywhere``: rows name a topic in column ``raw`` only, as those that an ingest rejected.
    """

    table: int
    schema: pa.Schema
    topics: tuple[str, ...]
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    anywhere: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        count = itertools.count()
        for rows in gather_batches(batches, SORT_ROWS):
            for topic, selected in self._split_raw(rows) if self.anywhere else self._split_by_topic(rows):
                if len(selected):
                    yield CHUNKS, self._build_chunk(topic, next(count), selected)

    def _build_chunk(self, topic: int, nth: int, rows: pa.Table) -> pa.RecordBatch:
        present = [name for name in rows.column_names if rows[name].null_count < len(rows)]
        columns = sum(1 << self.schema.get_field_index(name) for name in present)
        rows = rows.select([name for name in self.schema.names if name in present])
        (batch,) = rows.combine_chunks().to_batches()
        values = [[self.topics[topic]], [topic], [self.table], [nth], [columns]]
        arrays = [pa.array(value, f.type) for value, f in zip(values, [*_CHUNK][:-1], strict=True)]
        return pa.RecordBatch.from_arrays([*arrays, _wrap_value(batch.serialize())], schema=_CHUNK)

    @cached_property
    def _names(self) -> pa.Array:
        return pa.array(self.topics, pa.string())

    def _split_by_topic(self, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        topics = column(rows, "topic")
        own = _encode_topics(topics, self._names)
        yield from _split_by_code(rows, own)
        nowhere = pc.or_(topics.is_null(), pc.fill_null(pc.equal(topics, ""), False))
        if pc.any(nowhere).as_py():
            lost = rows.filter(nowhere)
            yield from ((number, lost) for number in range(len(self.topics)))
        if "origin" in rows.column_names and rows["origin"].null_count < len(rows):
            origin = _encode_topics(pc.struct_field(column(rows, "origin"), "topic"), self._names)
            yield from _split_by_code(rows, np.where(origin == own, -1, origin))
        for topic, groups in self.groups.items():
            number = self.topics.index(topic)
            selected = pc.is_in(rows["subscription"], pa.array(groups, pa.string()))
            others = pc.and_(selected, pa.array(own != number))
            yield number, rows.filter(pc.and_(others, pc.invert(nowhere)))

    def _split_raw(self, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        raw = as_bytes(column(rows, "raw"))
        without_topic = pc.invert(pc.match_substring(raw, b'"topic"'))
        for number, topic in enumerate(self.topics):
            yield number, rows.filter(pc.or_(pc.match_substring(raw, topic.encode()), without_topic))


def _encode_topics(topics: pa.Array, names: pa.Array) -> np.ndarray:
    """Return the index of each topic in ``names``; -1 if it is absent."""
    return np.asarray(pc.index_in(topics, value_set=names).fill_null(-1))


def _split_by_code(rows: pa.Table, codes: np.ndarray) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each code except -1."""
    if not len(codes):
        return
    if (codes == codes[0]).all():
        if codes[0] >= 0:
            yield int(codes[0]), rows
        return
    order = np.argsort(codes, kind="stable")
    order = order[np.searchsorted(codes[order], 0) :]
    selected, codes = rows.take(pa.array(order)), codes[order]
    cuts = [*np.flatnonzero(np.diff(codes, prepend=-1)).tolist(), len(codes)]
    for begin, end in itertools.pairwise(cuts):
        yield int(codes[begin]), selected.slice(begin, end - begin)


def _wrap_value(content: pa.Buffer) -> pa.Array:
    """Return an array of one binary value without a copy."""
    offsets = pa.py_buffer(np.array([0, len(content)], np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, content])


def open_chunks(
    batches: Iterable[pa.RecordBatch], schemas: Sequence[pa.Schema]
) -> Iterator[tuple[str, int, pa.RecordBatch]]:
    """Yield the rows of each chunk with its topic and the number of its table; ``schemas`` are the schemas of the
    tables. A batch may have chunks of several topics."""
    names = ("(topic)", "table", "columns", "rows")
    for batch in batches:
        for topic, table, columns, rows in zip(*(batch.column(name) for name in names), strict=True):
            schema = schemas[table.as_py()]
            present = pa.schema([f for index, f in enumerate(schema) if columns.as_py() >> index & 1])
            read = pa.ipc.read_record_batch(rows.as_buffer(), present)
            yield topic.as_py(), table.as_py(), as_schema(read, schema)
