"""Deliveries of one dispatcher in order of time: facts in, judged rows out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from subreplay.audit.checkpoint import fill_column
from subreplay.audit.codes import Code, Exemption
from subreplay.audit.context import Context, Dispatcher
from subreplay.audit.deliveries import (
    AT,
    BATCH_INDEX,
    BLOCKER_COUNT,
    CHANGING,
    DELIVERY,
    DUE,
    ENTRY,
    EPOCH,
    EVIDENCE_WIDTH,
    HOLDER,
    KEY,
    LEDGER,
    NTH,
    ORDER,
    ORDINAL,
    OWNER,
    RECEIVED,
    SESSION,
    SLOT,
    UNTIL,
    Found,
)
from subreplay.audit.passes.instants import Conditions, DispatcherState, read_instants, recall_instants
from subreplay.audit.rules.liveness import find_end_of_data, find_obligations, make_limits
from subreplay.audit.rules.registry import BY_ROW
from subreplay.audit.rules.undelivered import find_settled_time
from subreplay.rows.model.columns import NEVER, UNKNOWN, Ints, flags, ints
from subreplay.rows.model.tables import JUDGED

_COLUMNS = {
    LEDGER: "ledger", ENTRY: "entry", BATCH_INDEX: "batch_index", SESSION: "session", AT: "at", UNTIL: "held_until",
    KEY: "key_id", SLOT: "slot", ORDINAL: "ordinal", DUE: "due", RECEIVED: "received", EPOCH: "epoch",
}  # fmt: skip
# one cause, one finding: a mixed batch scatters its keys
_SCATTERED = Code.KEY_ORDER.bit | Code.KEY_TWO_OWNERS.bit | Code.BEFORE_PREDECESSOR_ACK.bit


def judge_deliveries(context: Context, dispatcher: Dispatcher, state: DispatcherState, rows: pa.Table) -> Found:
    """Findings about one batch of deliveries."""
    active = context.policy.routing == "partition"
    order_code = Code.PARTITION_ORDER if active else Code.KEY_ORDER
    found = Found.nothing(ints(rows, "codes"), ints(rows, "excuses"))
    d = _deliveries(rows)
    state.end = max(state.end, min(_latest(ints(rows, "acked"), d[AT], d[RECEIVED]), context.horizon))
    conditions = Conditions(
        order_code.bit,
        active,
        not context.waits_by_slot,
        context.has_receipts,
        context.slot_stuck_after,
        find_settled_time(context),
    )
    state.given(d[SESSION], d[UNTIL])
    limits = make_limits(context, find_end_of_data(context, state.end))
    read_instants(state, d, find_obligations(context, dispatcher, rows, d), conditions, limits, found)
    found.exemptions[d[DUE] > ints(rows, "published")] |= Exemption.DELAYED.bit
    for bit, breaks in BY_ROW.items():
        found.codes[breaks(rows, context.terms)] |= bit
    mixed = flags(rows, "mixed")
    found.codes[mixed] &= ~_SCATTERED
    return found


def _latest(*times: Ints) -> int:
    """The latest of some times that were reached."""
    return max(int(np.max(of, initial=UNKNOWN, where=of != NEVER)) for of in times)


def recall_deliveries(context: Context, state: DispatcherState, rows: pa.Table) -> None:
    """Deliveries of earlier days, of which some still hold others back."""
    d = _deliveries(rows)
    state.given(d[SESSION], d[UNTIL])
    recall_instants(state, d, ints(rows, "codes"), not context.waits_by_slot)


def _deliveries(rows: pa.Table) -> Ints:
    d = np.empty((DELIVERY, rows.num_rows), np.int64)
    for row, name in _COLUMNS.items():
        d[row] = rows.column(name)
    # a counted redelivery is no first delivery, even where the first one lies outside the data
    np.maximum(rows.column("nth"), ints(rows, "redelivery_count") > 0, out=d[NTH])
    d[CHANGING] = flags(rows, "in_transition")
    return d


def with_findings(rows: pa.Table, found: Found, shown: Ints, names: tuple[str, ...]) -> pa.Table:
    """``JUDGED`` columns of facts and what was found; ``names`` are the labels of the sessions."""
    named = np.array([*names, None], dtype=object)
    columns = {
        "expected": pa.array(named, pa.string()).take(pa.array(ints(rows, "expected") % len(named))),
        "codes": pa.array(found.codes),
        "excuses": pa.array(found.exemptions),
        "order_witness": _evidence_structs(found, ORDER, named),
        "owner_witness": _evidence_structs(found, OWNER, named),
        "holder_witness": _evidence_structs(found, HOLDER, named),
        "shown": pa.array(shown),
    }
    return pa.table([columns[f.name] if f.name in columns else rows.column(f.name) for f in JUDGED], schema=JUDGED)


def with_owners(rows: pa.Table, owner: Ints, labels: tuple[str, ...]) -> pa.Table:
    """Messages that were never delivered, with the consumer that each waits for (-1: none is named)."""
    named = pa.array([*labels, None], pa.string()).take(pa.array(owner % (len(labels) + 1)))
    for name, values in (("consumer", named), ("expected", pa.array(owner))):
        index = rows.schema.get_field_index(name)
        rows = rows.set_column(index, rows.schema.field(index), values.cast(rows.schema.field(index).type))
    return rows


def checkpoint_as_judged(rows: pa.Table) -> pa.Table:
    """Rows of a checkpoint, which the pass lets through, in the ``JUDGED`` shape; no delivery is among them."""
    given: dict[str, object] = {"delivered": False, "expected": None, "shown": 0}
    carried = set(rows.column_names) - set(given)
    columns = (
        rows.column(f.name) if f.name in carried
        else fill_column(f.with_nullable(True), given.get(f.name), rows.num_rows)
        for f in JUDGED
    )  # fmt: skip
    return pa.table([*columns], schema=JUDGED)


def _evidence_structs(found: Found, kind: int, names: np.ndarray) -> pa.Array:
    """One kind of witness as a struct column; null where there is none."""
    shape = JUDGED.field("order_witness").type
    there = found.proven[kind]
    where = np.flatnonzero(there)
    if not len(where):
        return pa.nulls(len(there), shape)
    of = found.proof[kind, where].T
    values = [
        of[LEDGER],
        of[ENTRY],
        of[BATCH_INDEX],
        names[of[SESSION]],
        of[AT],
        of[UNTIL],
        of[EVIDENCE_WIDTH] == 1,
        of[BLOCKER_COUNT],
    ]
    few = pa.StructArray.from_arrays(
        [pa.array(v, f.type) for v, f in zip(values, shape, strict=True)], fields=list(shape)
    )
    index = np.zeros(len(there), np.int64)
    index[where] = np.arange(len(where))
    return few.take(pa.array(index, mask=~there))
