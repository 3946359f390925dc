"""Facts of a Kafka group's commits: each beside the owner of its partition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from subreplay.audit.codes import Code, Exemption
from subreplay.audit.context import Context, Dispatcher
from subreplay.audit.needs import Need
from subreplay.audit.passes.beginning import joined_earlier
from subreplay.audit.passes.keys import numbers
from subreplay.audit.passes.owners import owners_at
from subreplay.audit.passes.positions import PositionState
from subreplay.audit.rules.commits import KINDS, NONE
from subreplay.audit.sessions import UNKNOWN_CONSUMER
from subreplay.rows.model.columns import UNKNOWN, column, flags
from subreplay.rows.model.tables import COMMIT, COMMIT_REFUSED, FACTS


def without_commits(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """``LOG`` rows without the commits among them, and these; those of earlier days, which were judged then, are left
    out."""
    kind = numbers(rows, "kind")
    is_commit = kind >= COMMIT
    if not is_commit.any():
        return rows, rows.slice(0, 0)
    mine = is_commit & ~flags(rows, "before")
    return rows.filter(pa.array(~is_commit)), rows.filter(pa.array(mine)).combine_chunks()


def commit_facts(context: Context, dispatcher: Dispatcher, state: PositionState, rows: pa.Table) -> pa.Table:
    """``FACTS`` of commits, in order of position, with COMMIT_NOT_OWNER."""
    n, at, seq = rows.num_rows, numbers(rows, "at"), numbers(rows, "seq", 0)
    position = [numbers(rows, name) for name in ("ledger", "entry", "batch_index")]
    owners = owners_at(
        context.policy, dispatcher, np.full(n, context.policy.space[0]), np.zeros(n, np.uint32), at, seq,
        column(rows, "consumer"), column(rows, "instance"),
    )  # fmt: skip
    strange = owners.wrong | (owners.session == UNKNOWN_CONSUMER)
    kind = numbers(rows, "kind")
    exemptions = np.where(kind == COMMIT_REFUSED, Exemption.REFUSED.bit, 0)
    scope = dispatcher.timeline.scope
    exemptions |= context.rejects.exemptions(scope.partition, position[0], position[1], at, column(rows, "consumer"))
    if state.beginning.since != UNKNOWN:
        of = dispatcher.timeline, state.beginning.since, column(rows, "consumer")
        exemptions[joined_earlier(*of, at, owners.wrong)] |= Exemption.JOINED_EARLIER.bit
    if scope in context.uncovered:
        exemptions |= Exemption.NOBODY_JOINED.bit
    if Need.DELIVERIES in context.lacking:
        exemptions |= Exemption.SEEKS_NOT_RECORDED.bit
    given: dict[str, Any] = {
        name: column(rows, name) for name in ("topic", "partition", "ledger", "entry", "batch_index")
    }
    given |= {
        "delivered": True, "ordinal": state.ordinals.number(*position), "consumer": owners.consumer,
        "session": owners.session, "expected": owners.expected, "epoch": owners.epoch, "at": at, "seq": seq,
        "acked": at, "held_until": at, "in_transition": owners.in_transition, "excuses": exemptions,
        "codes": np.where(strange, Code.COMMIT_NOT_OWNER.bit, 0), "commit": KINDS[kind],
        **dict.fromkeys(("published", "due", "received", "reset"), UNKNOWN), **dict.fromkeys(("key_id", "slot"), -1),
    }  # fmt: skip
    return pa.table([_column(given.get(f.name, _NOTHING.get(f.name)), n, f) for f in FACTS], schema=FACTS)


_NOTHING = dict.fromkeys(("before", "mixed", "by_receipt", "skipped_others"), False) | dict.fromkeys(
    ("hash", "size", "redelivery_count", "nth", "restarts", "previous", "repeated", "contradicted", "stored_again"),
    NONE,
)


def _column(values: Any, rows: int, field: pa.Field) -> pa.Array:
    if values is None:
        return pa.nulls(rows, field.type)
    if isinstance(values, pa.Array):
        return values.cast(field.type)
    return pa.array(values if isinstance(values, np.ndarray) else np.full(rows, values), field.type)
