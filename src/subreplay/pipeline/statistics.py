"""Compute statistics of a run's input tables from one scan of each (``audit.input_statistics``)."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from subreplay.audit.input_statistics import (
    MOST_EVENTS,
    InputFacts,
    InputStatistics,
    Rows,
    check_event_count,
    input_statistics,
)
from subreplay.engine.interface import Dataset
from subreplay.pipeline.daily_runs import EarlierState
from subreplay.pipeline.inputs import Inputs, TableScan
from subreplay.rows.intake import LOGGED, NUMBERS
from subreplay.rows.model.tables import INPUTS
from subreplay.rows.scan import counts
from subreplay.rows.scan.members import list_members


def compute_statistics(
    inputs: Inputs, look: TableScan, before: EarlierState | None, copies: int = 0
) -> InputStatistics:
    """Compute the statistics of the scanned tables.

    ``before`` is the state of an earlier run, ``copies`` is the number of dropped messages. Raises ``InputError`` if
    the membership is too large for the driver.
    """
    counted = {name: outputs["counts"].to_table() for name, outputs in look.by_table.items()}
    summaries = {name: counts.summarize_counts(name, [rows]) for name, rows in counted.items() if name in LOGGED}
    numbers = {name: rows for name, rows in counted.items() if name not in LOGGED}
    ingest = look.ingest["counts"].to_table() if look.ingest else NUMBERS.empty_table()
    facts = InputFacts(
        inputs.topic,
        inputs.scopes,
        inputs.absent["messages"],
        inputs.inferred,
        inputs.sampled,
        inputs.ranked,
        sum(ingest["count"].to_pylist()),
        copies,
        before.partitions if before is not None else (),
    )
    group_rows = _read_events(inputs.valid("group")) if "group" in inputs.names else None
    joined = _read_events(look.by_table["membership"]["valid"])
    return input_statistics(facts, summaries, numbers, joined, group_rows, [*look.by_table])


def _read_events(rows: Dataset) -> Rows:
    found = rows.to_table(MOST_EVENTS + 1)
    check_event_count([{}] * len(found))
    there: Mapping[str, pa.DataType] = {field.name: field.type for field in found.schema}
    columns = [found[f.name] if f.name in there else pa.nulls(len(found), f.type) for f in INPUTS["membership"]]
    return list_members(pa.table(columns, names=INPUTS["membership"].names))
