"""Convert messages and deliveries to rows of the log (``model.tables.LOG``), times in ns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from subreplay.hashing.key_identity import compute_key_identities
from subreplay.rows.model.columns import UNKNOWN
from subreplay.rows.model.tables import (
    CARRIED,
    COMMIT,
    COMMIT_AUTOMATIC,
    COMMIT_REFUSED,
    DELIVERY,
    INPUTS,
    LOG,
    MESSAGE,
)
from subreplay.rows.scan.table_columns import Columns

_POSITION: Final = ("topic", "partition", "ledger", "entry", "batch_index")
_CONTENT: Final = tuple(name for name in INPUTS["messages"].names if name not in ("date", *_POSITION))
"""The columns in which two messages of one position may differ."""
_ODD: Final = 0x9E3779B97F4A7C15
_MIX: Final = 0xFF51AFD7ED558CCD
_BITS: Final = (1 << 64) - 1


def select_log_columns(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Select some columns of the log from valid messages."""
    columns = Columns("messages", batch)
    given = {"at": to_nanos(columns, "publish_time"), "sequence_id": _sequence_ids(columns)}
    there = _select_present(columns, *(name for name in names if name not in given))
    return _log_rows(columns, there | {name: given[name] for name in names if name in given})


def make_log_rows(table: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert valid rows of ``messages`` or ``deliveries``, without the columns that the table lacks or that belong to
    the other table."""
    return _log_messages(batch) if table == "messages" else _log_deliveries(batch)


def _log_messages(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns, n = Columns("messages", batch), batch.num_rows
    return _log_rows(
        columns,
        {
            "kind": pa.repeat(pa.scalar(MESSAGE, pa.int8()), n),
            "at": to_nanos(columns, "publish_time"),
            "seq": pa.repeat(0, n),
            "judged": pa.repeat(True, n),
            "before": pa.repeat(False, n),
            "content": _hash_content(columns),
            **_select_present(columns, *CARRIED),
            "sequence_id": _sequence_ids(columns),
            "own_sequence_id": columns["sequence_id"],
        },
    )


def _sequence_ids(columns: Columns) -> pa.Array:
    """Return the sequence ids in the outer metadata of entries."""
    own = columns["sequence_id"]
    return pc.coalesce(columns["batch_sequence_id"], own) if "batch_sequence_id" in columns else own


def _log_deliveries(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns, n = Columns("deliveries", batch), batch.num_rows
    commit = is_commit(columns)
    received, acked = to_nanos(columns, "received_at"), to_nanos(columns, "acked_at", "acked_nanos")
    of_commit = acked if commit.true_count == n else pc.if_else(commit, acked, pa.scalar(None, pa.int64()))
    kind = pa.repeat(pa.scalar(DELIVERY, pa.int8()), n)
    if commit.true_count:
        refused = pc.fill_null(pc.equal(columns["outcome"], "refused"), False)
        made = pc.if_else(pc.equal(columns["ack_type"], "AutoCommit"), COMMIT_AUTOMATIC, COMMIT)
        kind = pc.if_else(commit, pc.if_else(refused, COMMIT_REFUSED, made), DELIVERY)
    return _log_rows(
        columns,
        {
            "kind": kind,
            "at": pc.coalesce(find_delivery_time(columns), of_commit, UNKNOWN),
            "by_receipt": pc.and_(columns["delivered_at"].is_null(), columns["received_at"].is_valid()),
            "seq": columns["seq"],
            "before": pa.repeat(False, n),
            **_select_present(columns, "consumer", "instance", "redelivery_count"),
            "received_at": received,
            "acked_at": acked,
            "nacked_at": to_nanos(columns, "nacked_at", "nacked_nanos"),
            "cumulative": pc.equal(columns["ack_type"], "Cumulative"),
            "ack_refused": pc.equal(columns["outcome"], "refused"),
            "rejected": pc.equal(columns["ack_type"], "Reject"),
        },
    )


def _select_present(columns: Columns, *names: str) -> dict[str, pa.Array]:
    """Select those of some columns that exist, with times in ns as in the log."""
    is_time = {name: pa.types.is_timestamp(INPUTS[columns.table].field(name).type) for name in names}
    return {name: to_nanos(columns, name) if is_time[name] else columns[name] for name in names if name in columns}


def _log_rows(columns: Columns, given: Mapping[str, pa.Array]) -> pa.RecordBatch:
    of = {**_select_present(columns, *_POSITION), **given}
    fields = [field for field in LOG if field.name in of]
    return pa.RecordBatch.from_arrays([of[f.name].cast(f.type) for f in fields], schema=pa.schema(fields))


def is_commit(columns: Columns) -> pa.Array:
    """Return which rows of ``deliveries`` are commits of an offset."""
    if "ack_type" not in columns:
        return pa.repeat(False, columns.rows)
    return pc.is_in(columns["ack_type"], pa.array(["Commit", "AutoCommit"]))


def find_delivery_time(columns: Columns) -> pa.Array:
    """Return when a delivery happened, in ns: its dispatch, or else its receipt; null for an acknowledgement without a
    delivery."""
    delivered = to_nanos(columns, "delivered_at", "delivered_nanos")
    return delivered if not delivered.null_count else pc.coalesce(delivered, to_nanos(columns, "received_at"))


def to_nanos(columns: Columns, time: str, beyond: str | None = None) -> pa.Array:
    """Convert a time to ns, with the column of the digits beyond the microsecond."""
    whole = pc.multiply(columns[time].cast(pa.int64()), 1_000)
    if beyond is None or beyond not in columns:
        return whole
    return pc.add(whole, pc.fill_null(columns[beyond], 0).cast(pa.int64()))


def _hash_content(columns: Columns) -> pa.Array:
    """Hash everything in a message except its position; equal for equal rows."""
    total = np.zeros(columns.rows, np.uint64)
    for number, name in enumerate(_CONTENT):
        if name in columns:
            _mix_in(total, columns[name], number + 1)
    return pa.array(total.view(np.int64))


def _mix_in(total: NDArray[np.uint64], values: pa.Array, salt: int) -> None:
    """Mix a column into the hashes; null adds nothing."""
    if values.null_count == len(values):
        return
    if pa.types.is_struct(values.type):
        there = pc.if_else(values.is_valid(), 1, pa.scalar(None, pa.int64()))
        for number, part in enumerate([there, *values.flatten()]):
            _mix_in(total, part, salt << 8 | number)
        return
    mixed = _to_numbers(values) ^ np.uint64(salt * _ODD & _BITS)
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(_MIX)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(_ODD)
    if values.null_count:
        mixed[np.asarray(values.is_null())] = 0
    total += mixed


def _to_numbers(values: pa.Array) -> NDArray[np.uint64]:
    if pa.types.is_binary(values.type) or pa.types.is_string(values.type):
        return compute_key_identities(values).view(np.uint64)
    if pa.types.is_timestamp(values.type) or pa.types.is_boolean(values.type):
        values = values.cast(pa.int64())
    found: NDArray[Any] = np.asarray(pc.fill_null(values, 0)).astype(np.int64)
    return found.view(np.uint64)
