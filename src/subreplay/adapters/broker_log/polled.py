"""What polled topic statistics add to a broker's log: names of those who never leave, members from before the log
begins, types, key-shared modes and ranges.

A consumer of the log and one of the statistics are the same where the addresses of their connections are, and where the
one joined when the other says to be connected since.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.broker_log.parsing import number_at
from subreplay.rows.model.tables import MEMBERSHIP

SAME: Final = 2_000_000
"""How far (µs) a join in the log and the time that a consumer is connected since may be apart: 0.1 s was seen."""
_TAKEN: Final = ("type", "key_shared_mode", "allow_out_of_order", "ranges")
Row = dict[str, Any]


def names(found: pa.Table, polled: pa.Table) -> dict[str, str]:
    """Consumers by ``instance`` for those who asked to join within the ``found`` events of one topic partition.

    ``polled`` is the membership of the statistics by address.
    """
    at_address: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in _joins(polled):
        at_address[row["subscription"], row["instance"]].append(row)
    asked = found.filter(pc.equal(found["kind"], "subscribing"))
    told: dict[str, str] = {}
    for row in _rows(asked.select(["subscription", "connection", "consumer_id", "at"])):
        candidates = at_address[row["subscription"], row["connection"]]
        near = min(candidates, key=lambda other: abs(other["at"] - row["at"]), default=None)
        if near is not None and (abs(near["at"] - row["at"]) <= SAME or len(candidates) == 1):
            told[f"{row['connection']}#{row['consumer_id']}"] = near["consumer"]
    return told


def completed(membership: pa.Table, polled: pa.Table, known: Iterable[str], begin: int, end: int) -> pa.Table:
    """The ``membership`` of one topic partition's log, with what the statistics (``polled``, by address) know beside:
    types, modes and ranges of its joins, and the members whom no line shows joining.

    ``known`` are the instances of the log. It spans ``begin`` to ``end`` (µs).
    """
    rows = _rows(membership)
    polls: list[Row] = []
    instances: dict[str, set[str]] = defaultdict(set)
    for instance in known:
        instances[instance.rpartition("#")[0]].add(instance)
    leaves = {row["seq"]: row for row in _rows(polled) if row["event"] != "join"}
    for told in _joins(polled):
        same = _same(rows, told)
        if same is not None:
            same |= {name: told[name] for name in _TAKEN if told[name] is not None}
            continue
        gone = min((row for row in leaves.values() if _of_one(row, told)), key=lambda row: int(row["at"]), default=None)
        if gone is not None and gone["at"] < begin:
            continue
        here = instances[told["instance"]]
        whose = {"instance": next(iter(here)) if len(here) == 1 else None}
        polls.append(told | whose)
        if gone is not None and gone["since"] <= end and not _left([*rows, *polls], told):
            polls.append(gone | whose)
    rows += [row | {"seq": number_at(row["at"] // 1_000), "since_seq": None} for row in polls]
    rows.sort(key=lambda row: (row["seq"], row["at"], row["event"] == "join"))
    return pa.Table.from_pylist(rows, schema=MEMBERSHIP)


def _rows(table: pa.Table) -> list[Row]:
    """Rows with times in µs."""
    fields = [pa.field(f.name, pa.int64()) if pa.types.is_timestamp(f.type) else f for f in table.schema]
    found: list[Row] = table.cast(pa.schema(fields)).to_pylist()
    return found


def _joins(polled: pa.Table) -> list[Row]:
    return [row for row in _rows(polled) if row["event"] == "join"]


def _same(rows: list[Row], told: Row) -> Row | None:
    """The join of the log that a poll tells of."""
    at_address = [
        row for row in rows
        if row["event"] == "join" and _whose(row) == _whose(told) and abs(row["at"] - told["at"]) <= SAME
    ]  # fmt: skip
    return min(at_address, key=lambda row: abs(int(row["at"]) - int(told["at"])), default=None)


def _whose(row: Row) -> tuple[str, str, str]:
    return row["subscription"], row["consumer"], (row["instance"] or "").partition("#")[0]


def _of_one(leave: Row, join: Row) -> bool:
    return _whose(leave) == _whose(join) and bool(leave["at"] >= join["at"])


def _left(rows: list[Row], told: Row) -> bool:
    """Whether the log shows it leaving."""
    return any(row["event"] in ("leave", "crash") and _of_one(row, told) for row in rows)
