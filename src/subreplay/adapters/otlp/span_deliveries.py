"""Build canonical ``deliveries`` from the spans of Kafka and Pulsar clients."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.capture.event_joins import rank_rows
from subreplay.adapters.otlp.span_columns import combine_chunks, encode_values
from subreplay.adapters.otlp.span_counts import SpanCounts
from subreplay.rows.model.columns import Ints
from subreplay.rows.model.tables import DELIVERIES

CONSUMERS: Final = pa.schema([(name, pa.string()) for name in ("subscription", "consumer", "process")])


def list_consumers(receipts: pa.Table) -> pa.Table:
    """List the consumers of receipts (``RECEIPTS``) with their processes."""
    return receipts.group_by(CONSUMERS.names).aggregate([])


def find_shared_ids(consumers: pa.Table) -> pa.Table:
    """Find the consumers whose id several processes share. Every other id identifies one consumer."""
    every = consumers.group_by(CONSUMERS.names).aggregate([])
    found = every.group_by(CONSUMERS.names[:2]).aggregate([([], "count_all")])
    return found.filter(pc.greater(found["count_all"], 1)).select(CONSUMERS.names[:2])


def build_deliveries(receipts: pa.Table, seq: Ints, shared_ids: pa.Table) -> pa.Table:
    """Build canonical deliveries from ``RECEIPTS`` with these sequence numbers.

    ``received_at`` is the start of a ``process`` span or the end of a ``receive`` span. ``consumer`` is the client id.
    A span without one uses its process: ``service.instance.id``, else the pod, else host and process id. ``instance``
    is the process where several processes share one id in a subscription. ``redelivery_count`` is 0, because spans do
    not contain it.
    """
    both = pa.concat_tables([receipts.select(shared_ids.column_names), shared_ids])
    consumer = rank_rows(*(encode_values(both[name]) for name in shared_ids.column_names))
    shared = np.isin(consumer[: len(receipts)], consumer[len(receipts) :])
    process = pc.if_else(pa.array(shared), combine_chunks(receipts["process"]), pa.scalar(None, pa.string()))
    replaced = {"seq": pa.array(seq), "instance": process}
    return pa.table([replaced.get(f.name, receipts[f.name]) for f in DELIVERIES], schema=DELIVERIES)


def sum_outcomes(outcomes: Iterable[pa.Table]) -> dict[str, SpanCounts]:
    """Sum the outcomes (``OUTCOMES``) of each file."""
    found: dict[str, SpanCounts] = {}
    for row in (row for table in outcomes for row in table.to_pylist()):
        before, more = found.get(row["file"], SpanCounts()), row["count"]
        count = getattr(before, row["outcome"])
        found[row["file"]] = replace(before, **{"spans": before.spans + more, row["outcome"]: count + more})
    return found
