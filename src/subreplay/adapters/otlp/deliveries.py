"""Canonical ``deliveries`` from the spans of Kafka and Pulsar clients."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.capture.joins import ranks
from subreplay.adapters.otlp.columns import codes, whole
from subreplay.adapters.otlp.counts import SpanCounts
from subreplay.rows.model.columns import Ints
from subreplay.rows.model.tables import DELIVERIES

NAMES: Final = pa.schema([(name, pa.string()) for name in ("subscription", "consumer", "process")])


def names(told: pa.Table) -> pa.Table:
    """The consumers of deliveries (``TOLD``), with their processes."""
    return told.group_by(NAMES.names).aggregate([])


def several(names: pa.Table) -> pa.Table:
    """The consumers whose id is used by several processes; of others their name says enough."""
    every = names.group_by(NAMES.names).aggregate([])
    found = every.group_by(NAMES.names[:2]).aggregate([([], "count_all")])
    return found.filter(pc.greater(found["count_all"], 1)).select(NAMES.names[:2])


def in_order(told: pa.Table, seq: Ints, several: pa.Table) -> pa.Table:
    """``TOLD`` as canonical deliveries, of these numbers in the order of receipts.

    ``received_at`` is when a ``process`` span begins or a ``receive`` span ends. ``consumer`` is the client's id; where
    none is told, its process: ``service.instance.id``, else the pod, else host and process id. ``instance`` is the
    process where several use one id in a subscription. ``redelivery_count`` is 0: no span tells it.
    """
    both = pa.concat_tables([told.select(several.column_names), several])
    consumer = ranks(*(codes(both[name]) for name in several.column_names))
    shared = np.isin(consumer[: len(told)], consumer[len(told) :])
    process = pc.if_else(pa.array(shared), whole(told["process"]), pa.scalar(None, pa.string()))
    given = {"seq": pa.array(seq), "instance": process}
    return pa.table([given.get(f.name, told[f.name]) for f in DELIVERIES], schema=DELIVERIES)


def fates_by_file(fates: Iterable[pa.Table]) -> dict[str, SpanCounts]:
    """The counts of each file, of ``FATES``."""
    found: dict[str, SpanCounts] = {}
    for row in (row for table in fates for row in table.to_pylist()):
        before, more = found.get(row["file"], SpanCounts()), row["count"]
        known = getattr(before, row["fate"])
        found[row["file"]] = replace(before, **{"spans": before.spans + more, row["fate"]: known + more})
    return found
