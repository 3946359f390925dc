"""Build the messages, the row counts and the run of adapter ``capture``, which reads recordings of consumers.

All times are of the consumers' clocks. A capture shows the application's side only: a delivery is known by its receipt
(``received_at``), or by its acknowledgement where no receipt was recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.base import FileCount
from subreplay.adapters.capture.event_checks import encode_column, is_event, is_null
from subreplay.adapters.capture.event_joins import rank_rows
from subreplay.capture.file_format import SHARE, CaptureEvent
from subreplay.hashing.profiles import get_latest_profile
from subreplay.rows.model.columns import ints
from subreplay.rows.model.tables import MESSAGES, TIME

SIZES: Final = pa.schema([("file", pa.string()), ("file_number", pa.int32()), ("rows", pa.int64())])
_FIRSTS: Final = ("event", "receipt", "acknowledgement")
FIRSTS: Final = pa.schema(
    [("first", pa.string())] + [(n, pa.string()) for n in ("subscription", "subscription_type", "topic")]
    + [("file_number", pa.int32()), ("row", pa.int64())]
)  # fmt: skip
_ENTRY: Final = ("partition", "ledger", "entry")
UNKNOWN_PRODUCER: Final = "unknown"
"""The producer of a message whose client does not report it, such as Kafka's."""


def count_file_rows(events: pa.Table) -> pa.Table:
    """Count the rows of each file (``SIZES``)."""
    return events.group_by(SIZES.names[:2]).aggregate([([], "count_all")]).rename_columns(SIZES.names).cast(SIZES)


def build_file_counts(sizes: pa.Table, lost: Mapping[str, int]) -> tuple[FileCount, ...]:
    """Build the row counts of each file, with its rejected rows."""
    rows = sizes.group_by(SIZES.names[:2]).aggregate([("rows", "sum")]).sort_by("file_number").to_pylist()
    return tuple(FileCount(row["file"], row["rows_sum"], lost.get(row["file"], 0)) for row in rows)


def find_firsts(valid: pa.Table) -> pa.Table:
    """Find the first event, the first receipt, and the first acknowledgement or negative one among these events."""
    about = is_event(valid, CaptureEvent.ACKNOWLEDGE, CaptureEvent.NEGATIVE_ACKNOWLEDGE) & is_null(valid, "error")
    every = np.ones(len(valid), np.bool_)
    order = np.lexsort((ints(valid, "row"), ints(valid, "file_number")))
    found = [order[rows[order]][:1] for rows in (every, is_event(valid, CaptureEvent.RECEIVE), about)]
    names = [name for name, rows in zip(_FIRSTS, found, strict=True) if len(rows)]
    taken = valid.select(FIRSTS.names[1:]).take(pa.array(np.concatenate(found)))
    return taken.add_column(0, FIRSTS.field("first"), pa.array(names, pa.string())).cast(FIRSTS)


def build_run(firsts: pa.Table) -> dict[str, Any]:
    """Build a run for the subscription of the first event and the topic of the first delivery."""
    first: dict[str, dict[str, Any]] = {}
    for row in firsts.sort_by([("file_number", "ascending"), ("row", "ascending")]).to_pylist():
        first.setdefault(row["first"], row)
    delivery = next((first[name] for name in _FIRSTS[1:] if name in first), None)
    if delivery is None:
        return {}
    named = {"name": first["event"]["subscription"], "topic": delivery["topic"]}
    if first["event"]["subscription_type"] == SHARE:
        named |= {"policy": "kafka.share", "profile": get_latest_profile("kafka.share")}
    return {"subscription": named}


def build_messages(seen: pa.Table) -> pa.Table:
    """Build canonical messages from their first receipts.

    The outer metadata of a batch are those of its first message (``Commands.initBatchMessageMetadata``). They are null
    where that message was not received.
    """
    seen = seen.sort_by([(name, "ascending") for name in ("topic", *_ENTRY, "batch_index")])
    entry = rank_rows(encode_column(seen, "topic"), *(ints(seen, name) for name in _ENTRY))
    new = np.diff(entry, prepend=-1) != 0
    head = np.maximum.accumulate(np.where(new, np.arange(len(seen)), 0))
    batch_index = ints(seen, "batch_index")
    of_batch = pa.array(head, mask=(batch_index < 0) | (batch_index[head] != 0))
    published = seen["publish_time_ms"].cast(pa.timestamp("ms", tz="UTC")).cast(TIME)
    columns = {
        "date": published.cast(pa.date32()),
        "batch_key": pc.take(seen["key"], of_batch),
        "batch_ordering_key": pc.take(seen["ordering_key"], of_batch),
        "producer": pc.fill_null(seen["producer"], UNKNOWN_PRODUCER),
        "sequence_id": pa.repeat(pa.scalar(-1, pa.int64()), len(seen)),  # clients do not report it
        "publish_time": published,
        "event_time": seen["event_time_ms"].cast(pa.timestamp("ms", tz="UTC")).cast(TIME),
    }
    arrays = [columns[f.name] if f.name in columns else _copy_column(seen, f) for f in MESSAGES]
    return pa.table(arrays, schema=MESSAGES)


def _copy_column(seen: pa.Table, field: pa.Field) -> pa.Array | pa.ChunkedArray:
    """Copy the capture column of the same name; null where there is none."""
    if field.name in seen.column_names:
        return seen[field.name].cast(field.type)
    return pa.array([None] * len(seen), field.type)  # ``pa.nulls`` would leave required fields of a struct null
