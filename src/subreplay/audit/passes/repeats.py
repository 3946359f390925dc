"""Judge each event once although several input rows record it.

Rows of one event that agree, or of which one has fewer values, are one row that was exported twice. If they contradict
one another, only the event itself is certain; the values that differ are unknown. A true second delivery of a message
is another event: it has its own time, order or redelivery count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from subreplay.audit.deliveries import Flags
from subreplay.audit.passes.keys import read_integers
from subreplay.audit.scoped_rows import ScopedRows
from subreplay.rows.model.columns import NEVER, UNKNOWN, Ints, column, flags, ints

_SAME_EVENT: Final = ("ledger", "entry", "batch_index", "at", "seq", "redelivery_count")
_TIMES: Final = ("received_at", "acked_at", "nacked_at")
_MEMBER: Final = ("partition", "consumer", "instance", "event", "at", "at_nanos", "seq")


class UniqueDeliveries(NamedTuple):
    """Deliveries without repeated rows. For each: the number of further rows that agree with it, and of rows that
    contradict it. ``kept`` marks them among all rows."""

    rows: pa.Table
    kept: Flags
    repeated: Ints
    contradicted: Ints


def drop_repeated_deliveries(some: ScopedRows) -> UniqueDeliveries:
    """Drop repeated deliveries from ``LOG`` rows that are sorted by topic partition, position, time and order. If rows
    contradict one another, the values that differ become unknown. Acknowledgements without a delivery stay as they are.
    """
    rows, again = some.rows, _find_repeated(some.rows)
    again[some.bounds[:-1][some.bounds[:-1] < len(again)]] = False
    nothing = np.zeros(rows.num_rows, np.int64)
    if not again.any():
        return UniqueDeliveries(rows, ~again, nothing, nothing)
    members = np.flatnonzero(again | np.append(again[1:], False))
    heads = np.flatnonzero(~again[members])  # the first row of each event
    first, further = members[heads], np.diff(np.append(heads, len(members))) - 1
    alike = rows.take(pa.array(members))
    known = {name: read_integers(alike, name) for name in _TIMES}
    known["cumulative"] = np.where(known["acked_at"] == UNKNOWN, UNKNOWN, flags(alike, "cumulative"))
    who = {name: _encode_words(alike, name) for name in ("consumer", "instance")}
    differs = np.zeros(len(heads), np.bool_)
    for values in (known | who).values():
        least = np.minimum.reduceat(np.where(values == UNKNOWN, NEVER, values), heads)
        differs |= least < np.maximum.reduceat(values, heads)
    for name, values in known.items():
        merged = np.where(differs, UNKNOWN, np.maximum.reduceat(values, heads))
        rows = _set_values(rows, name, first, merged)
    repeated, contradicted = nothing.copy(), nothing.copy()
    repeated[first], contradicted[first] = np.where(differs, 0, further), np.where(differs, further, 0)
    return UniqueDeliveries(
        rows.filter(pa.array(~again)).combine_chunks(), ~again, repeated[~again], contradicted[~again]
    )


def _find_repeated(rows: pa.Table) -> Flags:
    """Return whether each row records the same event as the row before it."""
    again = np.zeros(rows.num_rows, np.bool_)
    if rows.num_rows > 1:
        again[1:] = read_integers(rows, "at")[1:] != UNKNOWN
        for name in _SAME_EVENT:
            values = read_integers(rows, name)
            again[1:] &= values[1:] == values[:-1]
    return again


def _encode_words(rows: pa.Table, name: str) -> Ints:
    """Number the values of a text column; ``UNKNOWN`` for null."""
    return ints(pa.table({name: column(rows, name).dictionary_encode().indices}), name)


def _set_values(rows: pa.Table, name: str, indices: Ints, values: Ints) -> pa.Table:
    """Return ``rows`` with other values of a column at some indices; ``UNKNOWN`` becomes null."""
    field, every = rows.schema.field(name), ints(rows, name)
    every[indices] = values
    return rows.set_column(
        rows.schema.get_field_index(name), field, pa.array(every, pa.int64(), mask=every == UNKNOWN).cast(field.type)
    )


class UniqueMembers(NamedTuple):
    """Rows of the membership, each event once; how many further rows said the same, and how many said otherwise."""

    rows: list[Mapping[str, Any]]
    repeated: int
    contradicted: int


def drop_repeated_members(rows: Iterable[Mapping[str, Any]]) -> UniqueMembers:
    """Membership rows without those of an event that an earlier row tells already."""
    known: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    repeated = contradicted = 0
    for row in rows:
        event = tuple(row.get(name) for name in _MEMBER)
        if event not in known:
            known[event] = row
        elif known[event] == row:
            repeated += 1
        else:
            contradicted += 1
    return UniqueMembers(list(known.values()), repeated, contradicted)
