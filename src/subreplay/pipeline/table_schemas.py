"""The result tables of each kind of run, except ``runs``, with their columns."""

from __future__ import annotations

from typing import Final, Literal

import pyarrow as pa

from subreplay.audit import sums
from subreplay.audit.passes.loads import LOADS_OF_RUN
from subreplay.audit.window_sums import ASSIGNMENTS, VIOLATIONS_BY_WINDOW
from subreplay.pipeline.dispatch import PREDICTED_AUDITED
from subreplay.reports.assemble import result_tables
from subreplay.rows.model.tables import AUDITED, QUARANTINE, RETRACTED_FINDINGS, STATE, VIOLATIONS
from subreplay.whatif.dispatch_replay import PREDICTED

RunKind = Literal["audit", "whatif", "plan"]
PREFIXES: Final[dict[RunKind, str]] = {"audit": "", "whatif": "whatif_", "plan": "plan_"}
"""What the names of a run's tables begin with."""


def list_result_tables(kind: RunKind, *, daily: bool, retracts: bool, replays: bool) -> dict[str, pa.Schema]:
    """List the tables that a run writes, without the prefix of their names.

    ``retracts``: a daily run judges findings of earlier runs again. ``replays``: a scenario has a dispatch section.
    """
    found = dict(result_tables.SCHEMAS)
    if kind == "audit":
        found = {
            "violations": VIOLATIONS,
            "violations_by_window": VIOLATIONS_BY_WINDOW,
            "finding_counts": sums.COUNTS,
            "audited": AUDITED,
            "assignments": ASSIGNMENTS,
            "loads": LOADS_OF_RUN,
            **found,
            **({"state": STATE} if daily else {}),
            **({"withdrawn": RETRACTED_FINDINGS} if retracts else {}),
        }
    else:
        del found["incidents"]
    replayed = {"predicted": PREDICTED, "predicted_audited": PREDICTED_AUDITED} if replays else {}
    return {**found, "quarantine": QUARANTINE, **replayed}
