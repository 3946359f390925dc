"""Complete the members of a broker's log with polled topic statistics.

Statistics add the names of members that never leave, members from before the log, types, Key_Shared modes and ranges. A
consumer of the log and one of the statistics are the same if the addresses of their connections are equal, and if the
time of the join equals the connection time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.broker_log.numbered_events import find_number_at
from subreplay.rows.model.tables import MEMBERSHIP

MAX_DIFFERENCE: Final = 2_000_000
"""The largest difference (µs) between a join in the log and the polled connection time; 0.1 s was measured."""
_COPIED_COLUMNS: Final = ("type", "key_shared_mode", "allow_out_of_order", "ranges")
MembershipRow = dict[str, Any]


def find_polled_names(found: pa.Table, polled: pa.Table) -> dict[str, str]:
    """Find the names of consumers, by ``instance``, that requested to join within ``found`` events of a topic
    partition.

    ``polled`` is the membership of the statistics, by address.
    """
    at_address: dict[tuple[str, str], list[MembershipRow]] = defaultdict(list)
    for row in _list_joins(polled):
        at_address[row["subscription"], row["instance"]].append(row)
    requests = found.filter(pc.equal(found["kind"], "subscribing"))
    by_instance: dict[str, str] = {}
    for row in _to_rows(requests.select(["subscription", "connection", "consumer_id", "at"])):
        candidates = at_address[row["subscription"], row["connection"]]
        near = min(candidates, key=lambda other: abs(other["at"] - row["at"]), default=None)
        if near is not None and (abs(near["at"] - row["at"]) <= MAX_DIFFERENCE or len(candidates) == 1):
            by_instance[f"{row['connection']}#{row['consumer_id']}"] = near["consumer"]
    return by_instance


def complete_membership(membership: pa.Table, polled: pa.Table, known: Iterable[str], begin: int, end: int) -> pa.Table:
    """Complete the ``membership`` of one topic partition's log with the statistics (``polled``, by address).

    They add types, modes and ranges of its joins, and members whose join no line shows. ``known`` are the instances in
    the log, which spans ``begin`` to ``end`` (µs).
    """
    rows = _to_rows(membership)
    polls: list[MembershipRow] = []
    instances: dict[str, set[str]] = defaultdict(set)
    for instance in known:
        instances[instance.rpartition("#")[0]].add(instance)
    leaves = {row["seq"]: row for row in _to_rows(polled) if row["event"] != "join"}
    for join in _list_joins(polled):
        same = _find_same_join(rows, join)
        if same is not None:
            same |= {name: join[name] for name in _COPIED_COLUMNS if join[name] is not None}
            continue
        gone = min(
            (row for row in leaves.values() if _is_leave_of(row, join)), key=lambda row: int(row["at"]), default=None
        )
        if gone is not None and gone["at"] < begin:
            continue
        candidates = instances[join["instance"]]
        identity = {"instance": next(iter(candidates)) if len(candidates) == 1 else None}
        polls.append(join | identity)
        if gone is not None and gone["since"] <= end and not _has_left([*rows, *polls], join):
            polls.append(gone | identity)
    rows += [row | {"seq": find_number_at(row["at"] // 1_000), "since_seq": None} for row in polls]
    rows.sort(key=lambda row: (row["seq"], row["at"], row["event"] == "join"))
    return pa.Table.from_pylist(rows, schema=MEMBERSHIP)


def _to_rows(table: pa.Table) -> list[MembershipRow]:
    """Convert a table to rows with times in µs."""
    fields = [pa.field(f.name, pa.int64()) if pa.types.is_timestamp(f.type) else f for f in table.schema]
    found: list[MembershipRow] = table.cast(pa.schema(fields)).to_pylist()
    return found


def _list_joins(polled: pa.Table) -> list[MembershipRow]:
    return [row for row in _to_rows(polled) if row["event"] == "join"]


def _find_same_join(rows: list[MembershipRow], join: MembershipRow) -> MembershipRow | None:
    """Find the join of the log that equals a polled join."""
    at_address = [
        row
        for row in rows
        if row["event"] == "join"
        and _identify(row) == _identify(join)
        and abs(row["at"] - join["at"]) <= MAX_DIFFERENCE
    ]
    return min(at_address, key=lambda row: abs(int(row["at"]) - int(join["at"])), default=None)


def _identify(row: MembershipRow) -> tuple[str, str, str]:
    return row["subscription"], row["consumer"], (row["instance"] or "").partition("#")[0]


def _is_leave_of(leave: MembershipRow, join: MembershipRow) -> bool:
    return _identify(leave) == _identify(join) and bool(leave["at"] >= join["at"])


def _has_left(rows: list[MembershipRow], join: MembershipRow) -> bool:
    """Check whether the log shows the leave of a join."""
    return any(row["event"] in ("leave", "crash") and _is_leave_of(row, join) for row in rows)
