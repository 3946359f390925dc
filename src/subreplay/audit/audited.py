"""Build table ``audited`` from judged rows. Times are in ns, except those of type timestamp."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.audit.codes import drop_exempt
from subreplay.audit.judge import Judge
from subreplay.rows.model.columns import DAY, ints
from subreplay.rows.model.tables import JUDGED, nullable_parts


def make_audited_rows(rows: pa.Table, subscription: str, judge: Judge) -> pa.Table:
    """Convert ``JUDGED`` rows to table ``audited``: without hashes of keys, and with times also as timestamps.

    Fields of structs may be null in it, because Spark reads a missing struct as one with null fields.
    """
    delivered, at, stored = rows["delivered"], rows["at"], rows["published"]
    found = rows.drop_columns(["key_id", "hash"])
    found = found.cast(pa.schema([field.with_type(nullable_parts(field.type)) for field in found.schema]))
    if not judge.words.shows_slots(judge.policy.space):
        hidden = pa.repeat(pa.scalar(-1, pa.int64()), len(rows))
        found = found.set_column(found.schema.get_field_index("slot"), "slot", hidden)
    day = pc.divide(pc.if_else(delivered, at, stored), DAY).cast(pa.int32()).cast(pa.date32())
    more = {
        "subscription": pa.repeat(subscription, len(rows)),
        "delivered_at": _to_timestamps(at, delivered),
        "published_at": _to_timestamps(stored, pc.greater(stored, 0)),
        "date": day,
    }
    for name, values in more.items():
        found = found.append_column(name, values)
    return found


def _to_timestamps(at: pa.ChunkedArray, where: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert times to timestamps; null for other rows."""
    return pc.if_else(where, pc.divide(at, 1_000), None).cast(pa.timestamp("us", "UTC"))


def drop_state_rows(rows: pa.Table) -> pa.Table:
    """Drop the judged rows that carry state."""
    return rows.filter(rows["checkpoint"].is_null()).drop_columns(["checkpoint"])


def select_explained(rows: pa.Table, judge: Judge) -> pa.Table:
    """Select rows with a finding that fails or that is kept as an example."""
    failing = drop_exempt(ints(rows, "codes"), ints(rows, "excuses")) & judge.promised
    explained = rows.filter(pa.array((failing | ints(rows, "shown")) != 0, pa.bool_()))
    return explained.select([name for name in JUDGED.names if name in rows.column_names])
