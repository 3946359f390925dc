"""Table ``audited``, made of judged rows. Times are in ns, but for those of type timestamp."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.audit.codes import drop_exempt
from subreplay.audit.judge import Judge
from subreplay.rows.model.columns import DAY, ints
from subreplay.rows.model.tables import JUDGED, nullable_parts


def published(rows: pa.Table, subscription: str, judge: Judge) -> pa.Table:
    """``JUDGED`` rows as table ``audited``: without hashes of keys, times also as timestamps. Parts of structs may be
    null in it: Spark knows no row without a struct whose parts must be there."""
    delivered, at, stored = rows["delivered"], rows["at"], rows["published"]
    found = rows.drop_columns(["key_id", "hash"])
    found = found.cast(pa.schema([field.with_type(nullable_parts(field.type)) for field in found.schema]))
    if not judge.words.shows_slots(judge.policy.space):
        hidden = pa.repeat(pa.scalar(-1, pa.int64()), len(rows))
        found = found.set_column(found.schema.get_field_index("slot"), "slot", hidden)
    day = pc.divide(pc.if_else(delivered, at, stored), DAY).cast(pa.int32()).cast(pa.date32())
    more = {
        "subscription": pa.repeat(subscription, len(rows)),
        "delivered_at": _time(at, delivered),
        "published_at": _time(stored, pc.greater(stored, 0)),
        "date": day,
    }
    for name, values in more.items():
        found = found.append_column(name, values)
    return found


def _time(at: pa.ChunkedArray, where: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times as timestamps, null elsewhere."""
    return pc.if_else(where, pc.divide(at, 1_000), None).cast(pa.timestamp("us", "UTC"))


def deliveries(rows: pa.Table) -> pa.Table:
    """Judged rows without those that hold state."""
    return rows.filter(rows["checkpoint"].is_null()).drop_columns(["checkpoint"])


def worth_words(rows: pa.Table, judge: Judge) -> pa.Table:
    """Rows with a finding that fails, or that is kept as an example."""
    failing = drop_exempt(ints(rows, "codes"), ints(rows, "excuses")) & judge.promised
    worth = rows.filter(pa.array((failing | ints(rows, "shown")) != 0, pa.bool_()))
    return worth.select([name for name in JUDGED.names if name in rows.column_names])
