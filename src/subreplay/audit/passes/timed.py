"""Judge deliveries in order of time: facts in, judged rows out."""

from __future__ import annotations

from collections.abc import Sequence

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
from subreplay.audit.scoped_rows import ScopedRows
from subreplay.rows.model.columns import NEVER, UNKNOWN, Ints, flags, ints
from subreplay.rows.model.tables import JUDGED

_COLUMNS = {
    LEDGER: "ledger", ENTRY: "entry", BATCH_INDEX: "batch_index", SESSION: "session", AT: "at", UNTIL: "held_until",
    KEY: "key_id", SLOT: "slot", ORDINAL: "ordinal", DUE: "due", RECEIVED: "received", EPOCH: "epoch",
}  # fmt: skip
# one cause, one finding: a mixed batch scatters its keys
_SCATTERED = Code.KEY_ORDER.bit | Code.KEY_TWO_OWNERS.bit | Code.BEFORE_PREDECESSOR_ACK.bit


def judge_deliveries(
    context: Context, dispatchers: Sequence[Dispatcher], states: Sequence[DispatcherState], some: ScopedRows
) -> Found:
    """Find violations in deliveries of several dispatchers, each with at least one delivery."""
    rows = some.rows
    active = context.policy.routing == "partition"
    order_code = Code.PARTITION_ORDER if active else Code.KEY_ORDER
    found = Found.make_empty(ints(rows, "codes"), ints(rows, "excuses"))
    d = _make_matrix(rows)
    latest = np.maximum.reduceat(_find_latest(ints(rows, "acked"), d[AT], d[RECEIVED]), some.bounds[:-1])
    conditions = Conditions(
        order_code.bit,
        active,
        not context.waits_by_slot,
        context.has_receipts,
        context.slot_stuck_after,
        find_settled_time(context),
    )
    owes, limits = find_obligations(context, dispatchers, some, d), make_limits(context, UNKNOWN)
    for number, (state, reached) in enumerate(zip(states, latest.tolist(), strict=True)):
        mine = some.get_slice(number)
        state.end = max(state.end, min(reached, context.horizon))
        state.note_busy(d[SESSION, mine], d[UNTIL, mine])
        read_instants(
            state, d, mine, owes, conditions, limits._replace(end=find_end_of_data(context, state.end)), found
        )
    found.exemptions[d[DUE] > ints(rows, "published")] |= Exemption.DELAYED.bit
    for bit, breaks in BY_ROW.items():
        found.codes[breaks(rows, context.terms)] |= bit
    mixed = flags(rows, "mixed")
    found.codes[mixed] &= ~_SCATTERED
    return found


def _find_latest(*times: Ints) -> Ints:
    """Return the latest of several times of each row."""
    latest: Ints = np.maximum.reduce([np.where(of == NEVER, UNKNOWN, of) for of in times])
    return latest


def recall_deliveries(context: Context, state: DispatcherState, rows: pa.Table) -> None:
    """Restore deliveries of earlier days, because some still block others."""
    d = _make_matrix(rows)
    state.note_busy(d[SESSION], d[UNTIL])
    recall_instants(state, d, ints(rows, "codes"), not context.waits_by_slot)


def _make_matrix(rows: pa.Table) -> Ints:
    d = np.empty((DELIVERY, rows.num_rows), np.int64)
    for row, name in _COLUMNS.items():
        d[row] = rows.column(name)
    # a counted redelivery is no first delivery, even where the first one lies outside the data
    np.maximum(rows.column("nth"), ints(rows, "redelivery_count") > 0, out=d[NTH])
    d[CHANGING] = flags(rows, "in_transition")
    return d


class Labels:
    """Labels of sessions of several dispatchers; a dispatcher and a session number give the label's index."""

    def __init__(self, dispatchers: Sequence[Dispatcher]) -> None:
        starts: dict[int, int] = {}  # where the labels of sessions begin
        labels: list[str | None] = []
        for each in dispatchers:
            if id(each.sessions) not in starts:
                starts[id(each.sessions)] = len(labels)
                labels += each.sessions.labels
        self._starts = np.array([starts[id(each.sessions)] for each in dispatchers], np.int64)
        self.names = np.array([*labels, None], dtype=object)

    def of(self, dispatcher: Ints, session: Ints) -> pa.Array:
        """Return the labels of sessions (-1: no session)."""
        return pa.array(self.names[np.where(session < 0, -1, self._starts[dispatcher] + session)], pa.string())


def add_findings(rows: pa.Table, found: Found, shown: Ints, dispatcher: Ints, labels: Labels) -> pa.Table:
    """Build the ``JUDGED`` columns from facts and findings; ``dispatcher`` are the dispatcher numbers of ``labels``."""
    columns = {
        "expected": labels.of(dispatcher, ints(rows, "expected")),
        "codes": pa.array(found.codes),
        "excuses": pa.array(found.exemptions),
        "order_witness": _evidence_structs(found, ORDER, dispatcher, labels),
        "owner_witness": _evidence_structs(found, OWNER, dispatcher, labels),
        "holder_witness": _evidence_structs(found, HOLDER, dispatcher, labels),
        "shown": pa.array(shown),
    }
    return pa.table([columns[f.name] if f.name in columns else rows.column(f.name) for f in JUDGED], schema=JUDGED)


def set_owners(rows: pa.Table, owner: Ints, dispatcher: Ints, labels: Labels) -> pa.Table:
    """Return undelivered messages with the consumer that each waits for (-1: unknown)."""
    for name, values in (("consumer", labels.of(dispatcher, owner)), ("expected", pa.array(owner))):
        index = rows.schema.get_field_index(name)
        rows = rows.set_column(index, rows.schema.field(index), values.cast(rows.schema.field(index).type))
    return rows


def make_judged_checkpoint(rows: pa.Table) -> pa.Table:
    """Return checkpoint rows in the ``JUDGED`` schema; they contain no delivery."""
    given: dict[str, object] = {"delivered": False, "expected": None, "shown": 0}
    carried = set(rows.column_names) - set(given)
    columns = (
        rows.column(f.name) if f.name in carried
        else fill_column(f.with_nullable(True), given.get(f.name), rows.num_rows)
        for f in JUDGED
    )  # fmt: skip
    return pa.table([*columns], schema=JUDGED)


def _evidence_structs(found: Found, kind: int, dispatcher: Ints, labels: Labels) -> pa.Array:
    """Return one kind of evidence as a struct column; null where there is none."""
    shape = JUDGED.field("order_witness").type
    is_proven = found.proven[kind]
    where = np.flatnonzero(is_proven)
    if not len(where):
        return pa.nulls(len(is_proven), shape)
    of = found.proof[kind, where].T
    consumer = labels.of(dispatcher[where], of[SESSION])
    values = [
        of[LEDGER],
        of[ENTRY],
        of[BATCH_INDEX],
        consumer,
        of[AT],
        of[UNTIL],
        of[EVIDENCE_WIDTH] == 1,
        of[BLOCKER_COUNT],
    ]
    structs = pa.StructArray.from_arrays(
        [pa.array(v, f.type) if isinstance(v, np.ndarray) else v for v, f in zip(values, shape, strict=True)],
        fields=list(shape),
    )
    index = np.zeros(len(is_proven), np.int64)
    index[where] = np.arange(len(where))
    return structs.take(pa.array(index, mask=~is_proven))
