"""Return the keys of messages as a broker sees them: those of the entry in which a message is stored."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.hashing.sticky_key import compute_sticky_keys
from subreplay.rows.model.columns import column, ints


def own_keys(rows: pa.Table) -> pa.Array:
    """Return the key that the application set for each message: its ordering key, else its key; null for neither."""
    return pc.coalesce(column(rows, "ordering_key"), column(rows, "key"))


def outer_keys(rows: pa.Table) -> tuple[pa.Array, pa.Array]:
    """Return the ordering key and the key of each message's entry: the outer metadata of the batch for a batched
    message (row L-BATCH-3)."""
    batched = pa.array(ints(rows, "batch_index") >= 0)
    ordering = pc.if_else(batched, column(rows, "batch_ordering_key"), column(rows, "ordering_key"))
    return ordering, pc.if_else(batched, column(rows, "batch_key"), column(rows, "key"))


def outer_sticky_keys(rows: pa.Table, profile: str) -> pa.Array:
    """Return the sticky key by which a broker dispatches each message under ``profile``.

    Some releases distribute messages without a key by producer and sequence id. If these are not recorded, the position
    in the log replaces them. The messages are then distributed equally, over other slots; rules that need the slot are
    not evaluated.
    """
    ordering, key = outer_keys(rows)
    producer, sequence_id = pc.fill_null(column(rows, "producer"), ""), column(rows, "sequence_id")
    numbers = pc.coalesce(sequence_id, column(rows, "entry")) if sequence_id.null_count else sequence_id
    return compute_sticky_keys(ordering, key, None, producer, numbers, profile)
