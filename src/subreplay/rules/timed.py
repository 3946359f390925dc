"""Deliveries of one dispatcher in order of time: facts in, judged rows out. Rules: KEY_ORDER, PARTITION_ORDER,
KEY_TWO_OWNERS."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from subreplay.columns import Ints, flags, ints
from subreplay.model import Standing
from subreplay.policies.base import Policy
from subreplay.rules.instants import WITNESS, DispatcherState, read_instants
from subreplay.rules.registry import Code, Excuse, standing
from subreplay.rules.sessions import STRANGER
from subreplay.tables import JUDGED

if TYPE_CHECKING:
    from subreplay.rules.judge import Dispatcher

# Profiles under which a newcomer may get at once what was read before it joined (`PersistentStickyKeyDispatcher…`,
# recentlyJoinedConsumers): the wait is for later messages only.
JOIN_PROTECTS_LATER_ONLY = frozenset({"documented", "pulsar-3.2"})


def judge_deliveries(policy: Policy, dispatcher: Dispatcher, state: DispatcherState, rows: pa.Table) -> pa.Table:
    """``JUDGED`` columns (all but ``shown``) of one batch of delivery facts."""
    columns = {name: ints(rows, name) for name in _READ}
    codes, excuses = columns["codes"], columns["excuses"]
    # a counted redelivery is no first delivery, even where the first one lies outside the data
    nth = np.maximum(columns["nth"], columns["redelivery_count"] > 0)
    witness = np.stack([columns[name] for name in _WITNESSED], axis=1)
    order_code = Code.PARTITION_ORDER if policy.routing == "partition" else Code.KEY_ORDER
    order, owner = read_instants(
        state, columns["key_id"], columns["slot"], columns["ordinal"], nth, columns["held_until"],
        columns["closing"], witness, columns["received"], order_code.bit, policy.profile in JOIN_PROTECTS_LATER_ONLY,
        codes, excuses,
    )  # fmt: skip
    if policy.routing != "partition":  # one active consumer ignores delays (row L-DELAY-1)
        delayed = (columns["due"] > columns["published"]) & (codes & order_code.bit != 0)
        excuses[delayed] |= int(Excuse.DELAYED) << 4 * order_code.value
    if standing(Code.KEY_TWO_OWNERS, policy) is Standing.NOT_APPLICABLE:
        codes &= ~Code.KEY_TWO_OWNERS.bit
    explained = flags(rows, "mixed")  # a mixed batch scatters its keys: one cause, one finding
    codes[explained] &= ~(Code.KEY_ORDER.bit | Code.KEY_TWO_OWNERS.bit)
    names = np.array([*dispatcher.sessions.names, None], dtype=object)
    return with_witnesses(rows, codes, excuses, witness_column(order, names), witness_column(owner, names))


_WITNESSED = ("ledger", "entry", "batch_index", "session", "at", "held_until", "closing")
_READ = (*_WITNESSED, "key_id", "slot", "ordinal", "nth", "received", "codes", "excuses", "due", "published",
         "redelivery_count")  # fmt: skip
assert len(_WITNESSED) == WITNESS


def witness_column(witness: Ints, names: np.ndarray) -> pa.Array:
    """Witnesses as a struct column; null where there is none."""
    kind = JUDGED.field("order_witness").type
    none = witness[:, 3] == STRANGER
    fields = [witness[:, 0], witness[:, 1], witness[:, 2], names[witness[:, 3]], witness[:, 4], witness[:, 5]]
    arrays = [pa.array(values, field.type) for values, field in zip(fields, kind, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=pa.array(none))


def with_witnesses(rows: pa.Table, codes: Ints, excuses: Ints, order: pa.Array, owner: pa.Array) -> pa.Table:
    """``rows`` with the findings replaced and the witnesses added."""
    for name, values in (("codes", codes), ("excuses", excuses)):
        rows = rows.set_column(rows.schema.get_field_index(name), JUDGED.field(name), pa.array(values))
    return rows.append_column(JUDGED.field("order_witness"), order).append_column(JUDGED.field("owner_witness"), owner)
