"""Build the result tables that the driver writes: epochs, range changes, moves, scenarios and runs."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from subreplay.reports.assemble.audit_verdict import RunJudgement, count_failing_findings, write_headline
from subreplay.reports.assemble.incidents import INCIDENTS, build_incident_table
from subreplay.reports.assemble.ownership_moves import OwnershipMoves
from subreplay.reports.assemble.report import build_input_counts
from subreplay.reports.data import MoveView, RunInfo, ScenarioView
from subreplay.reports.figures import Figures
from subreplay.reports.incident_data import IncidentView
from subreplay.rows.model.tables import TIME
from subreplay.semantics.timelines.event_text import describe_event
from subreplay.semantics.timelines.timeline import Timeline, compute_once_per_index

EPOCHS: Final = pa.schema(
    [
        pa.field("scope", pa.string()),
        pa.field("epoch", pa.int64()),
        pa.field("from", TIME),
        pa.field("to", TIME),
        pa.field("cause", pa.string()),
        pa.field("members", pa.int64()),
    ]
)
RANGES: Final = pa.schema(
    [
        pa.field("scope", pa.string()),
        pa.field(
            "epoch", pa.int64()
        ),  # the range belongs to `consumer` from this epoch on, until a later row says otherwise
        pa.field("start", pa.int64()),
        pa.field("end", pa.int64()),
        pa.field("before", pa.string()),
        pa.field("consumer", pa.string()),
    ]
)
RUNS: Final = pa.schema(
    [
        pa.field(name, pa.string())
        for name in (
            "run_id",
            "kind",
            "config_digest",
            "policy",
            "profile",
            "verdict",
            "headline",
            "doubts",
            "versions",
            "inputs",
            "engine",
        )
    ]
    + [pa.field(name, pa.int64()) for name in ("rows_read", "findings", "incidents")]
)
_KINDS: Final[dict[Any, pa.DataType]] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    float | None: pa.float64(),
}


def build_result_tables(
    figures: Figures,
    run: RunInfo,
    judged: RunJudgement,
    scenarios: tuple[ScenarioView, ...],
    incidents: tuple[IncidentView, ...] = (),
) -> dict[str, pa.Table]:
    """Build the complete result tables by name, without the limits of a report."""
    timelines = {scope.full_name: timeline for scope, timeline in figures.plan.timelines.items()}
    moves = OwnershipMoves.from_figures(figures).build_columns()
    return {
        "epochs": _build_dispatcher_table(timelines, _list_epoch_rows, EPOCHS),
        "range_tables": _build_dispatcher_table(timelines, _list_range_rows, RANGES),
        "moves": pa.table([*moves.values()], schema=_build_flat_schema(MoveView)),
        "scenarios": _build_view_table(ScenarioView, scenarios),
        **({"incidents": build_incident_table(incidents)} if run.kind == "audit" else {}),
        "runs": pa.Table.from_pylist([_build_run_row(figures, run, judged, incidents)], schema=RUNS),
    }


def _build_dispatcher_table(
    timelines: Mapping[str, Timeline], rows: Callable[[Timeline], list[dict[str, Any]]], schema: pa.Schema
) -> pa.Table:
    """Concatenate the rows of all dispatchers, with the dispatcher's name as first column."""
    others = pa.schema([*schema][1:])
    parts = [
        *compute_once_per_index(
            timelines.values(), lambda timeline: pa.Table.from_pylist(rows(timeline), schema=others)
        )
    ]
    names = pa.array([*timelines], pa.string()).take(pa.array(np.repeat(np.arange(len(parts)), [*map(len, parts)])))
    return pa.concat_tables([others.empty_table(), *parts]).add_column(0, schema.field(0), names)


def _list_epoch_rows(timeline: Timeline) -> list[dict[str, Any]]:
    members, rows = 0, []
    for epoch in timeline.epochs[1:]:
        members += (epoch.joined is not None) - len(epoch.left)
        end = None if epoch.end is None else epoch.end.at // 1_000
        rows.append(
            {
                "epoch": epoch.index,
                "from": epoch.start.at // 1_000,
                "to": end,
                "cause": describe_event(epoch),
                "members": members,
            }
        )
    return rows


def _list_range_rows(timeline: Timeline) -> list[dict[str, Any]]:
    return [
        {
            "epoch": epoch.index,
            "start": move.start,
            "end": move.end,
            "before": _name_owner(timeline, move.before),
            "consumer": _name_owner(timeline, move.after),
        }
        for epoch in timeline.epochs
        for move in epoch.moves
    ]


def _name_owner(timeline: Timeline, owner: int) -> str | None:
    """Name the consumer of an owner code, or all consumers that share a point of the ring."""
    if owner >= 0:
        return timeline.consumers[owner].label
    return None if owner == -1 else " + ".join(timeline.consumers[i].label for i in timeline.index.groups[-2 - owner])


def _build_view_table(kind: type[Any], views: tuple[Any, ...]) -> pa.Table:
    """Build a table from the flat fields of report views."""
    schema = _build_flat_schema(kind)
    return pa.Table.from_pylist([{name: getattr(view, name) for name in schema.names} for view in views], schema=schema)


def _build_flat_schema(kind: type[Any]) -> pa.Schema:
    """List the flat fields of a report view."""
    hints = typing.get_type_hints(kind)
    flat = [f.name for f in dataclasses.fields(kind) if hints[f.name] in _KINDS]
    return pa.schema([pa.field(name, _KINDS[hints[name]]) for name in flat])


SCHEMAS: Final = {
    "epochs": EPOCHS,
    "range_tables": RANGES,
    "moves": _build_flat_schema(MoveView),
    "scenarios": _build_flat_schema(ScenarioView),
    "incidents": INCIDENTS,
}
"""The columns of each result table except ``runs``."""


def _build_run_row(
    figures: Figures, run: RunInfo, judged: RunJudgement, incidents: tuple[IncidentView, ...]
) -> dict[str, str | int | None]:
    counts = build_input_counts(figures)
    audited = run.kind == "audit"
    return {
        "run_id": run.run_id,
        "kind": run.kind,
        "config_digest": run.config_digest,
        "policy": run.policy,
        "profile": run.profile,
        "verdict": str(judged.verdict),
        "headline": write_headline(run, judged, figures, incidents).headline,
        "doubts": json.dumps(judged.uncertainties),
        "versions": json.dumps(dict(run.versions) | ({run.engine.name: run.engine.version} if run.engine else {})),
        "inputs": json.dumps({i.table: [i.rows_in, i.valid, i.quarantined] for i in counts}),
        "engine": run.engine.name if run.engine else None,
        "rows_read": sum(i.rows_in for i in counts),
        "findings": count_failing_findings(figures) if audited else None,
        "incidents": len(incidents) if audited else None,
    }
