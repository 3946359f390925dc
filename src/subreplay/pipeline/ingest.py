"""Write the rows that an adapter has read as canonical tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.config.run import Location
from subreplay.engine.interface import Dataset, Engine, Tables
from subreplay.pipeline.adapter_sources import Read
from subreplay.rows.conditions import field
from subreplay.rows.model.tables import INPUTS, QUARANTINE

TOPICS: Final = 64
"""The number of topics of a table that are written together."""
_NO_TOPIC: Final = "none"  # an empty partition
_TOPIC: Final = pa.schema([pa.field("topic", pa.string(), nullable=False)])


def write(engine: Engine, read: Read, location: Location, format: str, source: str) -> None:
    """Write canonical tables topic by topic, and the quarantine of ``source``.

    They replace the rows of an earlier ingest. If the source has no rows of a table, an empty table is created unless
    it exists.
    """
    tables = engine.open_tables(location, format=format)
    for name, schema in INPUTS.items():
        topics = _find_topics(read.tables[name]) if name in read.tables else []
        columns = pa.schema([each for each in schema if each.name != "topic"])
        for begin in range(0, len(topics), TOPICS):
            _write_topics(tables, name, columns, read.tables[name], topics[begin : begin + TOPICS])
        if not topics and tables.find(name) is None:
            tables.put(name, columns.empty_table(), {"topic": _NO_TOPIC})
    rejected = tables.begin_write("quarantine", QUARANTINE, {"source": source})
    read.rejected.split(_pass_through, {"0": rejected})
    tables.commit(rejected)
    tables.flush()


def _find_topics(rows: Dataset) -> list[str]:
    found: list[str] = pc.unique(
        rows.select(["topic"]).map(_find_distinct_topics, _TOPIC).to_table()["topic"]
    ).to_pylist()
    return sorted(found)


def _find_distinct_topics(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the topics of a task. Only the topics are held in memory."""
    found = pa.array([], pa.string())
    for batch in batches:
        found = pc.unique(pa.chunked_array([found, pc.unique(batch.column("topic")).cast(pa.string())]))
    yield pa.RecordBatch.from_arrays([found], schema=_TOPIC)


def _write_topics(tables: Tables, name: str, columns: pa.Schema, rows: Dataset, topics: Sequence[str]) -> None:
    new = {str(number): tables.begin_write(name, columns, {"topic": topic}) for number, topic in enumerate(topics)}
    rows.where(field("topic").is_in(*topics)).split(partial(_split_by_topic, tuple(topics), columns.names), new)
    for each in new.values():
        tables.commit(each)


def _split_by_topic(
    topics: Sequence[str], columns: Sequence[str], batches: Iterable[pa.RecordBatch]
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows by the number of their topic."""
    for batch in batches:
        for topic in pc.unique(batch.column("topic")).to_pylist():
            mine = batch.filter(pc.equal(batch.column("topic"), topic))
            yield str(topics.index(topic)), mine.select(columns)


def _pass_through(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    return (("0", batch) for batch in batches)
