"""Build the canonical tables of adapter ``pulsar-broker-log``.

It reads the default log4j2 layout of Pulsar 3.2, 4.0 and 4.2, and that of 5.0 with attributes. Lines at level INFO
contain the members; DEBUG lines of a few classes contain dispatches and acknowledgements.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.broker_log.log_deliveries import LOCATION
from subreplay.adapters.broker_log.log_members import LogMembers, build_membership_rows
from subreplay.rows.model.tables import MEMBERSHIP

BATCH_EVENTS: Final = 1_000_000
"""Events that are folded together."""
MIN_STEP_BACK: Final = 1_000
"""A step back (ms) that threads out of turn cannot explain, so the clock was set back."""


LOCATED_MEMBERSHIP: Final = pa.schema(
    [*(f.with_nullable(True) if f.name == "consumer" else f for f in MEMBERSHIP), *LOCATION]
)
"""``MEMBERSHIP`` with the file and line of each event; unknown consumers are null."""


def build_located_membership(
    who: LogMembers, topic: str, partition: int, types: Mapping[str, str], ordered: pa.Table
) -> pa.Table:
    """Build the membership (``LOCATED_MEMBERSHIP``) of a topic partition, whose events are among the ``ordered``
    ones."""
    found = pa.Table.from_pylist(list(build_membership_rows(who, topic, partition, types)), schema=LOCATED_MEMBERSHIP)
    row = pa.array(np.searchsorted(ordered["seq"].to_numpy(), found["seq"].to_numpy()))
    for field in LOCATION:
        column = LOCATED_MEMBERSHIP.get_field_index(field.name)
        found = found.set_column(column, field, ordered[field.name].take(row))
    return found


def split_by_consumer(table: pa.Table, schema: pa.Schema) -> tuple[pa.Table, pa.Table]:
    """Split rows into those with a consumer, without their locations, and those without one."""
    named = pc.is_valid(table["consumer"])
    return table.filter(named).select(schema.names).cast(schema), table.filter(pc.invert(named))


def infer_types(found: pa.Table) -> dict[str, str]:
    """Infer the types of subscriptions from the kinds of their events (``subscription``, ``kind``)."""
    sticky = found.filter(pc.is_in(found["kind"], value_set=pa.array(["selected", "adding"])))
    key_shared = set(pc.unique(sticky["subscription"]).to_pylist())
    every = pc.unique(found["subscription"]).drop_null().to_pylist()
    return {s: "Key_Shared" if s in key_shared else "unknown" for s in every}
