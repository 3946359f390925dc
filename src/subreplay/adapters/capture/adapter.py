"""Adapter ``capture``: what consumers recorded of themselves (``subreplay.capture``), as canonical tables.

All times are those of the consumers' clocks, and what is known is the application's side: a delivery is known by its
receipt (``received_at``), or by its acknowledgement alone where no receipt of it was recorded.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from subreplay.adapters.base import FileCount, Ingested
from subreplay.adapters.canonical import to_table
from subreplay.adapters.capture.checks import are, checked, codes, seen_messages
from subreplay.adapters.capture.deliveries import delivery_rows
from subreplay.adapters.capture.joins import ranks
from subreplay.adapters.capture.membership import membership_rows
from subreplay.capture.events import EVENTS, METADATA, VERSION, Event
from subreplay.capture.files import files
from subreplay.errors import InputError
from subreplay.failures import of_system
from subreplay.model.columns import ints
from subreplay.model.tables import MESSAGES, TIME

_ENTRY: Final = ("partition", "ledger", "entry")
UNTOLD: Final = "unknown"
"""The producer of a message whose client does not tell it, as Kafka's does not."""


def read(folder: Path) -> Ingested:
    """Read all capture files of a folder, of any number of consumers and processes.

    Raises ``InputError`` where there is none, or one that is no capture file of this release, and ``EnvironmentFailed``
    where one cannot be read.
    """
    paths = files(folder)
    if not paths:
        raise InputError(f"{folder}: no capture file; subreplay.capture.wrap writes them")
    return ingested(pa.concat_tables([numbered(_table(path), str(path.relative_to(folder))) for path in paths]))


def numbered(events: pa.Table, file: str) -> pa.Table:
    """The events of one file with its name and their row numbers, from 1: where to look for a rejected row."""
    rows = pa.array(np.arange(1, len(events) + 1))
    return events.append_column("file", pa.repeat(file, len(events))).append_column("row", rows)


def ingested(events: pa.Table) -> Ingested:
    """``numbered`` events of any number of files as canonical tables, the rows that do not fit, and a run to start
    from. A receipt may be no message and yet a delivery, where its publication is not known or told in two ways."""
    valid, checks = checked(events)
    seen, of_messages = seen_messages(valid.filter(pa.array(are(valid, Event.RECEIVE))))
    rejected = (*checks.rejected("deliveries"), *of_messages.rejected("messages"))
    tables = {
        "messages": _messages(seen),
        "membership": to_table("membership", membership_rows(valid)),
        "deliveries": delivery_rows(valid),
    }
    lost = Counter(row.file for row in rejected)
    counts = [
        FileCount(each["values"], each["counts"], lost[each["values"]])
        for each in pc.value_counts(events["file"]).to_pylist()
    ]
    names = pc.unique(valid["subscription"]).to_pylist()
    topics = pc.unique(tables["deliveries"]["topic"]).to_pylist()
    run = {"subscription": {"name": names[0], "topic": topics[0]}} if names and topics else {}
    return Ingested(tables, rejected, tuple(counts), run)


def _messages(seen: pa.Table) -> pa.Table:
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


def _table(path: Path) -> pa.Table:
    try:
        table = pq.ParquetFile(path).read()
    except OSError as error:
        raise of_system(error, path) from error
    except pa.ArrowInvalid as error:
        raise InputError(f"{path} is no Parquet file: {error}; remove it") from error
    described = json.loads((table.schema.metadata or {}).get(METADATA, b"{}"))
    if described.get("version") != VERSION or not table.schema.equals(EVENTS):
        raise InputError(f"{path} is no capture file of version {VERSION}, which this release reads")
    return table.replace_schema_metadata(None)
