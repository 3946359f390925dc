"""Adapter ``pulsar-broker-log``: what a Pulsar broker's own log tells of members, deliveries and acknowledgements.

The stock log4j2 layout of 3.2, 4.0 and 4.2. Members are told at level INFO; dispatches and acknowledgements by the
DEBUG lines of a few classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.broker_log.deliveries import LOCATION
from subreplay.adapters.broker_log.members import Members, membership_rows
from subreplay.rows.model.tables import MEMBERSHIP

BATCH: Final = 1_000_000
"""Events that are folded at once."""
BACKWARDS: Final = 1_000
"""A step back (ms) that is more than lines of several threads out of turn: the clock was set back."""


JOINED: Final = pa.schema([*(f.with_nullable(True) if f.name == "consumer" else f for f in MEMBERSHIP), *LOCATION])
"""``MEMBERSHIP``, of which some consumers are not known, with the file and line of each event."""


def joined(who: Members, topic: str, partition: int, types: Mapping[str, str], ordered: pa.Table) -> pa.Table:
    """The membership (``JOINED``) of a topic partition, whose events are among the ``ordered`` ones."""
    found = pa.Table.from_pylist(list(membership_rows(who, topic, partition, types)), schema=JOINED)
    row = pa.array(np.searchsorted(ordered["seq"].to_numpy(), found["seq"].to_numpy()))
    for field in LOCATION:
        column = JOINED.get_field_index(field.name)
        found = found.set_column(column, field, ordered[field.name].take(row))
    return found


def apart(table: pa.Table, schema: pa.Schema) -> tuple[pa.Table, pa.Table]:
    """Rows with a consumer, without their locations, and those without one."""
    named = pc.is_valid(table["consumer"])
    return table.filter(named).select(schema.names).cast(schema), table.filter(pc.invert(named))


def types_of(found: pa.Table) -> dict[str, str]:
    """The types of subscriptions, as far as kinds of events (``subscription``, ``kind``) tell them."""
    sticky = found.filter(pc.is_in(found["kind"], value_set=pa.array(["selected", "adding"])))
    key_shared = set(pc.unique(sticky["subscription"]).to_pylist())
    every = pc.unique(found["subscription"]).drop_null().to_pylist()
    return {s: "Key_Shared" if s in key_shared else "unknown" for s in every}
