"""Adapter ``capture``: what consumers recorded of themselves (``subreplay.capture``), as canonical tables.

All times are those of the consumers' clocks, and what is known is the application's side: a delivery is known by its
receipt (``received_at``), or by its acknowledgement alone where no receipt of it was recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.base import FileCount
from subreplay.adapters.capture.checks import are, codes, nulls
from subreplay.adapters.capture.joins import ranks
from subreplay.capture.events import Event
from subreplay.rows.model.columns import ints
from subreplay.rows.model.tables import MESSAGES, TIME

SIZES: Final = pa.schema([("file", pa.string()), ("file_number", pa.int32()), ("rows", pa.int64())])
_FIRSTS: Final = ("event", "receipt", "acknowledgement")
FIRSTS: Final = pa.schema(
    [("first", pa.string())] + [(n, pa.string()) for n in ("subscription", "topic")]
    + [("file_number", pa.int32()), ("row", pa.int64())]
)  # fmt: skip
_ENTRY: Final = ("partition", "ledger", "entry")
UNTOLD: Final = "unknown"
"""The producer of a message whose client does not tell it, as Kafka's does not."""


def sizes(events: pa.Table) -> pa.Table:
    """The rows of each file (``SIZES``)."""
    return events.group_by(SIZES.names[:2]).aggregate([([], "count_all")]).rename_columns(SIZES.names).cast(SIZES)


def file_counts(sizes: pa.Table, lost: Mapping[str, int]) -> tuple[FileCount, ...]:
    """What became of the rows of each file, of which so many are rejected."""
    rows = sizes.group_by(SIZES.names[:2]).aggregate([("rows", "sum")]).sort_by("file_number").to_pylist()
    return tuple(FileCount(row["file"], row["rows_sum"], lost.get(row["file"], 0)) for row in rows)


def firsts(valid: pa.Table) -> pa.Table:
    """The first event, the first receipt, and the first acknowledgement or refusal, of all of which these are some."""
    about = are(valid, Event.ACKNOWLEDGE, Event.NEGATIVE_ACKNOWLEDGE) & nulls(valid, "error")
    every = np.ones(len(valid), np.bool_)
    order = np.lexsort((ints(valid, "row"), ints(valid, "file_number")))
    found = [order[rows[order]][:1] for rows in (every, are(valid, Event.RECEIVE), about)]
    names = [name for name, rows in zip(_FIRSTS, found, strict=True) if len(rows)]
    taken = valid.select(FIRSTS.names[1:]).take(pa.array(np.concatenate(found)))
    return taken.add_column(0, FIRSTS.field("first"), pa.array(names, pa.string())).cast(FIRSTS)


def run_of(firsts: pa.Table) -> dict[str, Any]:
    """A run to start from: of the subscription of the first event, and of the topic of the first delivery."""
    first: dict[str, dict[str, Any]] = {}
    for row in firsts.sort_by([("file_number", "ascending"), ("row", "ascending")]).to_pylist():
        first.setdefault(row["first"], row)
    delivery = next((first[name] for name in _FIRSTS[1:] if name in first), None)
    if delivery is None:
        return {}
    return {"subscription": {"name": first["event"]["subscription"], "topic": delivery["topic"]}}


def messages(seen: pa.Table) -> pa.Table:
    """Canonical messages of their first receipts. The outer metadata of a batch are those of its first message
    (``Commands.initBatchMessageMetadata``); where that was not seen, they are not known."""
    seen = seen.sort_by([(name, "ascending") for name in ("topic", *_ENTRY, "batch_index")])
    entry = ranks(codes(seen, "topic"), *(ints(seen, name) for name in _ENTRY))
    new = np.diff(entry, prepend=-1) != 0
    head = np.maximum.accumulate(np.where(new, np.arange(len(seen)), 0))
    batch_index = ints(seen, "batch_index")
    of_batch = pa.array(head, mask=(batch_index < 0) | (batch_index[head] != 0))
    published = seen["publish_time_ms"].cast(pa.timestamp("ms", tz="UTC")).cast(TIME)
    columns = {
        "date": published.cast(pa.date32()),
        "batch_key": pc.take(seen["key"], of_batch),
        "batch_ordering_key": pc.take(seen["ordering_key"], of_batch),
        "producer": pc.fill_null(seen["producer"], UNTOLD),
        "sequence_id": pa.repeat(pa.scalar(-1, pa.int64()), len(seen)),  # no client tells it
        "publish_time": published,
        "event_time": seen["event_time_ms"].cast(pa.timestamp("ms", tz="UTC")).cast(TIME),
    }
    given = [columns[f.name] if f.name in columns else _same(seen, f) for f in MESSAGES]
    return pa.table(given, schema=MESSAGES)


def _same(seen: pa.Table, field: pa.Field) -> pa.Array | pa.ChunkedArray:
    """A column that captures have under the same name; null where they have none."""
    if field.name in seen.column_names:
        return seen[field.name].cast(field.type)
    return pa.array([None] * len(seen), field.type)  # of a struct, ``pa.nulls`` leaves fields null that must not be
