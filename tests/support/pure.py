"""The audit without Spark: the same judge over Arrow tables, for tests of rules."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.audit.context import Dispatcher
from subreplay.audit.dead_letters import DeadLetters
from subreplay.audit.judge import Judge
from subreplay.audit.needs import Need
from subreplay.audit.passes.beginning import FirstServed, Position, find_beginnings
from subreplay.audit.passes.loads import LoadCollector
from subreplay.audit.sessions import add_unknown_consumers
from subreplay.audit.terms import Terms
from subreplay.rows.model.columns import UNKNOWN
from subreplay.rows.model.rows import Scope
from subreplay.rows.model.tables import COMMIT, COMMIT_AUTOMATIC, COMMIT_REFUSED, DELIVERY, FACTS, JUDGED, LOG
from subreplay.semantics.policies.base import Policy
from subreplay.semantics.timelines.membership import (
    build_dispatcher_events,
    collect_ownership_events,
    find_unknown_consumers,
)
from subreplay.semantics.timelines.recorded_ownership import find_abandonment_time
from subreplay.whatif.scenario import build_plan

NOTHING_TOLD = Terms()
POSITION = ["topic", "partition", "ledger", "entry", "batch_index"]
ORDER = ["topic", "partition", "ledger", "entry", "batch_index", "kind", "at", "seq", "consumer", "instance"]


def log_of(messages: pa.Table, deliveries: pa.Table) -> pa.Table:
    """Messages and deliveries as one log sorted by position: what Spark's union and sort produce."""
    first = _select(messages, {"kind": 0, "at": "publish_time", "seq": 0, "judged": True, "deliver_at": "deliver_at"})
    sequence = pc.coalesce(messages["batch_sequence_id"], messages["sequence_id"])
    first = first.set_column(first.schema.get_field_index("sequence_id"), "sequence_id", sequence)
    first = first.set_column(
        first.schema.get_field_index("own_sequence_id"), "own_sequence_id", messages["sequence_id"]
    )
    content = pl.DataFrame(messages).hash_rows().to_numpy().view(np.int64)
    first = first.set_column(first.schema.get_field_index("content"), "content", pa.array(content))
    second = _select(deliveries, {"kind": DELIVERY, "at": "delivered_at"})
    is_automatic = pc.fill_null(pc.equal(deliveries["ack_type"], "AutoCommit"), False)
    is_commit = pc.or_(is_automatic, pc.fill_null(pc.equal(deliveries["ack_type"], "Commit"), False))
    refused = pc.fill_null(pc.equal(deliveries["outcome"], "refused"), False)
    taken = pc.if_else(is_automatic, COMMIT_AUTOMATIC, COMMIT)
    kind = pc.if_else(is_commit, pc.if_else(refused, COMMIT_REFUSED, taken), DELIVERY).cast(pa.int8())
    second = second.set_column(second.schema.get_field_index("kind"), "kind", kind)
    acks = {"cumulative": ("ack_type", "Cumulative"), "rejected": ("ack_type", "Reject")}
    for name, (of, value) in (acks | {"ack_refused": ("outcome", "refused")}).items():
        second = second.set_column(second.schema.get_field_index(name), name, pc.equal(deliveries[of], value))
    second = _in_nanos(
        second,
        {"at": "delivered_nanos", "received_at": None, "acked_at": "acked_nanos", "nacked_at": "nacked_nanos"},
        deliveries,
    )
    first = _in_nanos(first, {"at": None, "deliver_at": None}, messages)
    committed = pc.if_else(is_commit, second["acked_at"], pa.scalar(None, pa.int64()))
    at = pc.fill_null(pc.coalesce(second["at"], second["received_at"], committed), UNKNOWN)
    by_receipt = pc.and_(second["at"].is_null(), second["received_at"].is_valid())
    second = second.set_column(second.schema.get_field_index("by_receipt"), "by_receipt", by_receipt)
    second = second.set_column(second.schema.get_field_index("at"), "at", at)
    return pa.concat_tables([first.cast(LOG), second.cast(LOG)]).sort_by([(name, "ascending") for name in ORDER])


def _in_nanos(log: pa.Table, columns: dict[str, str | None], source: pa.Table) -> pa.Table:
    for name, beyond in columns.items():
        nanos = pc.multiply(log[name], 1000)
        if beyond is not None:
            nanos = pc.add(nanos, pc.fill_null(source[beyond].cast(pa.int64()), 0))
        log = log.set_column(log.schema.get_field_index(name), name, nanos)
    return log


def _select(table: pa.Table, given: dict[str, Any]) -> pa.Table:
    columns = []
    for field in LOG:
        source = given.get(field.name, field.name if field.name in table.column_names else None)
        if isinstance(source, str):
            columns.append(table[source].cast(field.type))
        else:
            columns.append(_constant(source, table.num_rows, field.type))
    return pa.table(columns, names=LOG.names)


@lru_cache(1000)
def _constant(value: Any, rows: int, of: pa.DataType) -> pa.Array:
    return pa.array([value] * rows, of)


def judge_of(policy: Policy, tables: dict[str, pa.Table], terms: Terms = NOTHING_TOLD) -> Judge:
    """A judge from canonical tables."""
    membership = tables["membership"].to_pylist()
    delivered = tables["deliveries"].filter(tables["deliveries"]["delivered_at"].is_valid())
    served = _consumers(delivered)
    untold = {row["consumer"] for row in served if row["instance"] is None}
    events = build_dispatcher_events(membership, _scopes(tables), untold)
    unknown = find_unknown_consumers(served, membership)
    reported = collect_ownership_events(membership)
    folded = build_plan("", policy, events, reported).timelines
    others = {s: add_unknown_consumers(s, e, unknown) for s, e in events.items()} if unknown else {}
    would_be = {s: Dispatcher.of(timeline) for s, timeline in build_plan("", policy, others).timelines.items()}
    dispatchers = {
        s: Dispatcher.of(timeline, None, would_be.get(s), find_abandonment_time(policy, reported.get(s, ()), events[s]))
        for s, timeline in folded.items()
    }
    recorded, acknowledged = (
        set(delivered.filter(delivered[at].is_valid())["consumer"].to_pylist()) for at in ("received_at", "acked_at")
    )
    receipts = bool(recorded) and acknowledged <= recorded
    lowest = _lowest(tables["messages"])
    begins = find_beginnings(lowest, _served(delivered), folded, reported)
    ledgers = {scope: position[0] for scope, position in lowest.items()}
    letters = DeadLetters.of(tables["dead_letters"]) if "dead_letters" in tables else DeadLetters()
    judge = Judge(
        policy, dispatchers, terms=terms, begins=begins, ledgers=ledgers, last=_last(delivered), dead_letters=letters
    )
    return with_receipts(judge, receipts)


def _consumers(delivered: pa.Table) -> list[dict[str, Any]]:
    """Who was served, and when first and last (ns)."""
    at = pc.multiply(delivered["delivered_at"].cast(pa.int64()), 1000)
    rows = pa.table({"consumer": delivered["consumer"], "instance": delivered["instance"], "first": at, "last": at})
    of_each = rows.group_by(["consumer", "instance"]).aggregate([("first", "min"), ("last", "max")])
    return of_each.rename_columns(["consumer", "instance", "first", "last"]).to_pylist()


def _lowest(messages: pa.Table) -> dict[Scope, Position]:
    """The lowest position of each log."""
    return {scope: row[:3] for scope, row in _first_by_position(messages.select(POSITION)).items()}


def _last(delivered: pa.Table) -> int:
    last = pc.max(delivered["delivered_at"].cast(pa.int64())).as_py()
    return UNKNOWN if last is None else last * 1000


def _served(delivered: pa.Table) -> dict[Scope, FirstServed]:
    """What was delivered first on each topic partition."""
    micros, beyond = delivered["delivered_at"].cast(pa.int64()), delivered["delivered_nanos"]
    at = pc.add(pc.multiply(micros, 1000), pc.fill_null(beyond.cast(pa.int64()), 0))
    again = pc.greater(delivered["redelivery_count"], 0)
    rows = delivered.select(POSITION).append_column("when", at).append_column("again", again)
    first = rows.group_by(["topic", "partition"]).aggregate([("when", "min")]).to_pylist()
    earliest = {Scope(row["topic"], row["partition"]): row["when_min"] for row in first}
    return {scope: FirstServed(earliest[scope], row[:3], *row[3:]) for scope, row in _first_by_position(rows).items()}


def _first_by_position(rows: pa.Table) -> dict[Scope, Any]:
    """The position of the first row of each topic partition, and what is beside it."""
    ordered = rows.sort_by([(name, "ascending") for name in rows.column_names])
    of = ["topic", "partition"]
    first = ordered.group_by(of, use_threads=False).aggregate([(c, "first") for c in rows.column_names if c not in of])
    return {
        Scope(topic, partition): tuple(row) for topic, partition, *row in zip(*first.to_pydict().values(), strict=True)
    }


def with_receipts(judge: Judge, receipts: bool) -> Judge:
    """The same judge, told whether applications recorded what they took."""
    return replace(judge, lacking=frozenset() if receipts else frozenset({Need.RECEIPTS}))


def _scopes(tables: dict[str, pa.Table]) -> list[tuple[str, int]]:
    each = tables["messages"].group_by(["topic", "partition"]).aggregate([])
    return sorted(zip(*each.to_pydict().values(), strict=True))


def audit(policy: Policy, tables: dict[str, pa.Table], batch_rows: int = 1000, terms: Terms = NOTHING_TOLD) -> pa.Table:
    """Judged rows of a whole set of canonical tables."""
    return audit_by(judge_of(policy, tables, terms), tables, batch_rows)


def audit_by(judge: Judge, tables: dict[str, pa.Table], batch_rows: int = 1000) -> pa.Table:
    """The same by a judge at hand."""
    return judged_log(judge, log_of(tables["messages"], tables["deliveries"]), batch_rows)


def judged_log(judge: Judge, log: pa.Table, batch_rows: int = 1000) -> pa.Table:
    """Judged rows of a sorted log."""
    return _judged(judge, log, batch_rows, None)


def sums_by(judge: Judge, tables: dict[str, pa.Table], batch_rows: int = 1000) -> pa.Table:
    """What is added up (``LOADS_OF_RUN``) while a whole set of canonical tables is judged."""
    return sums_of(judge, log_of(tables["messages"], tables["deliveries"]), batch_rows)


def sums_of(judge: Judge, log: pa.Table, batch_rows: int = 1000) -> pa.Table:
    """The same of a sorted log."""
    given = judge.make_load_collector()
    assert given is not None
    _judged(judge, log, batch_rows, given)
    return given.compute_sum()


def _judged(judge: Judge, log: pa.Table, batch_rows: int, given: LoadCollector | None) -> pa.Table:
    facts = pa.Table.from_batches(judge.by_position(log.combine_chunks().to_batches(batch_rows)), FACTS)
    order = [("topic", "ascending"), ("partition", "ascending"), ("delivered", "descending"), ("at", "ascending"),
             ("seq", "ascending"), ("ledger", "ascending"), ("entry", "ascending"),
             ("batch_index", "ascending")]  # fmt: skip
    in_time = facts.sort_by(order).combine_chunks().to_batches(batch_rows)
    rows = pa.Table.from_batches(judge.by_time(in_time, given), JUDGED)
    assert not [field.name for field in JUDGED if not field.nullable and rows[field.name].null_count]  # nor may tables
    return rows
