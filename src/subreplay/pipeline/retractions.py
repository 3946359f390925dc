"""Retract findings of earlier daily runs that this day's data correct, on any engine (``audit.retractions``)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from subreplay.audit.retractions import (
    CORRECTIONS,
    COUNTED,
    DELIVERY_COLUMNS,
    FINDING_COLUMNS,
    FINDINGS,
    MESSAGE_COLUMNS,
    MOST_POSITIONS,
    POSITIONS,
    RETRACTED_COLUMNS,
    CorrectionReader,
    Retractor,
    group_retracted_by_rule,
    make_retracted_counter,
    select_findings_to_retract,
    select_joins,
    select_retracted_before,
    split_not_retracted,
)
from subreplay.engine.interface import Dataset, Engine, NewRows
from subreplay.rows.model.columns import ints


def retract(
    engine: Engine,
    reported: Dataset,
    retracted: Dataset | None,
    deliveries: Dataset,
    messages: Dataset,
    membership: pa.Table,
    withdrawn: NewRows,
) -> list[dict[str, Any]]:
    """Write the retracted findings to table ``withdrawn``, and count them by rule and day, with some positions.

    ``reported`` are findings of ``CODES`` in table ``violations`` of earlier runs. ``retracted`` are rows of table
    ``withdrawn`` of earlier runs. ``deliveries``, ``messages`` and ``membership`` are those of the day.
    """
    findings = [reported.select(FINDING_COLUMNS).map(select_findings_to_retract, FINDINGS.schema)]
    if retracted is not None:
        findings.append(retracted.select(RETRACTED_COLUMNS).map(select_retracted_before, FINDINGS.schema))
    found = engine.sort(findings, FINDINGS).split(
        split_not_retracted, {"findings": CORRECTIONS, "positions": POSITIONS}
    )
    positions = found["positions"].to_table(MOST_POSITIONS + 1)
    if not len(positions):
        return []
    some = ints(positions.sort_by("hash"), "hash") if len(positions) <= MOST_POSITIONS else None
    step = CorrectionReader(some)
    rows = [
        found["findings"],
        deliveries.select(DELIVERY_COLUMNS).map(step, CORRECTIONS.schema),
        messages.select(MESSAGE_COLUMNS).map(step, CORRECTIONS.schema),
    ]
    made = engine.sort(rows, CORRECTIONS).split(
        Retractor(select_joins(membership), tuple(withdrawn.columns.names)),
        {"withdrawn": withdrawn, "counted": COUNTED},
    )
    counted = make_retracted_counter()
    counted.add(made["counted"].to_table())
    return group_retracted_by_rule(counted.compute_sum())
