"""Convert ``membership`` rows to the events of each dispatcher."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any, Final, NamedTuple

from subreplay.rows.model.rows import Instant, MembershipEvent, Scope
from subreplay.rows.model.tables import MEMBERSHIP
from subreplay.semantics.timelines.consumer_aliases import assign_aliases

CHANGES: Final = frozenset({"join", "leave", "crash"})
"""Events that change the set of members."""
OWNERSHIP: Final = frozenset({"assigned", "revoked", "lost", "owner", "withdrawn"})
"""Events that change the owner of a Kafka partition."""
CLOSED: Final = "closed"
"""The reason of a revocation because the consumer closes."""


def build_dispatcher_events(
    rows: Iterable[Mapping[str, Any]], scopes: Iterable[tuple[str, int]], unnamed_instances: Container[str] = ()
) -> dict[Scope, tuple[MembershipEvent, ...]]:
    """Return the joins, leaves and crashes of each dispatcher, in order. A row without a partition applies to every
    partition of its topic.

    Times of ``rows`` are aware datetimes with ``_nanos`` beside them, or ns. ``scopes`` are the (topic, partition)
    pairs that contain messages. Rejected joins are omitted because the broker behaves as if these consumers had never
    connected (row P-KS-ST-2). ``unnamed_instances`` are names with deliveries that have no instance (see
    ``assign_aliases``).
    """
    events: dict[Scope, list[MembershipEvent]] = {Scope(*scope): [] for scope in scopes}
    for row in rows:
        if row["event"] not in CHANGES:
            continue
        if row["partition"] is None:
            seen_by = [scope for scope in events if scope.topic == row["topic"]]
        else:
            seen_by = [Scope(row["topic"], row["partition"])]
        for scope in seen_by:
            events.setdefault(scope, []).append(_build_event(scope, row))
    return {
        scope: tuple(assign_aliases(sorted(scope_events, key=lambda e: e.at), unnamed_instances))
        for scope, scope_events in sorted(events.items(), key=_topic_and_partition)
    }


def collect_member_changes(rows: Iterable[Mapping[str, Any]]) -> list[MembershipEvent]:
    """Return the joins, leaves and crashes of a Kafka group's members, one for each topic; rows as for
    ``build_dispatcher_events``."""
    return [_build_event(Scope(row["topic"]), row) for row in rows if row["event"] in CHANGES]


def collect_ownership_events(rows: Iterable[Mapping[str, Any]]) -> dict[Scope, tuple[MembershipEvent, ...]]:
    """Return the callbacks of a Kafka group's consumers and the decisions of its coordinator by partition, in order.

    Rows are as for ``build_dispatcher_events``.
    """
    events: dict[Scope, list[MembershipEvent]] = {}
    for row in rows:
        if row["event"] in OWNERSHIP and row["partition"] is not None:
            scope = Scope(row["topic"], row["partition"])
            events.setdefault(scope, []).append(_build_event(scope, row))
    return {
        scope: tuple(sorted(scope_events, key=lambda e: e.at))
        for scope, scope_events in sorted(events.items(), key=_topic_and_partition)
    }


class ServedInterval(NamedTuple):
    """The times (ns) of a consumer's first and last delivery."""

    first: int
    last: int


def find_unknown_consumers(
    served: Iterable[Mapping[str, Any]], membership: Iterable[Mapping[str, Any]]
) -> dict[str, ServedInterval]:
    """Return the consumers with deliveries from ``first`` to ``last`` (ns) whose join the membership does not contain.

    Consumers are matched by ``consumer`` and, where both sides have it, by ``instance``. An instance that belongs to
    another name is ignored.
    """
    joined: dict[str, set[str | None]] = {}
    for row in membership:
        if row["event"] == "join":
            joined.setdefault(row["consumer"], set()).add(row["instance"])
    known = {None}.union(*joined.values())
    rows_or_spans: dict[str, ServedInterval] = {}
    for row in served:
        name = row["consumer"]
        if name not in joined or (row["instance"] not in known and None not in joined[name]):
            before = rows_or_spans.get(name, ServedInterval(row["first"], row["last"]))
            rows_or_spans[name] = ServedInterval(min(before.first, row["first"]), max(before.last, row["last"]))
    return rows_or_spans


def infer_membership(served: Iterable[Mapping[str, Any]], topic: str) -> list[dict[str, Any]]:
    """Infer the rows of a missing membership: each consumer (by name and instance) is connected to each topic partition
    from its first delivery to its last one.

    ``served`` rows have partition, consumer, instance, ``first`` and ``last`` (ns). The real joins and leaves are
    unknown, so rules that need them are not evaluated.
    """
    fields = {f.name: None for f in MEMBERSHIP} | {"subscription": "", "topic": topic, "type": "", "since_nanos": None}
    rows_or_spans = []
    for row in served:
        identity = {name: row[name] for name in ("partition", "consumer", "instance")}
        rows_or_spans.append({**fields, **identity, "event": "join", "at": row["first"], "seq": 0})
        rows_or_spans.append({**fields, **identity, "event": "leave", "at": row["last"] + 1, "seq": 1})
    return sorted(
        rows_or_spans, key=lambda row: (row["at"], row["seq"], row["partition"], row["consumer"], row["instance"] or "")
    )


def _topic_and_partition(item: tuple[Scope, object]) -> tuple[str, int]:
    return item[0].topic, item[0].partition


def _build_event(scope: Scope, row: Mapping[str, Any]) -> MembershipEvent:
    at = Instant(_nanos(row, "at"), row["seq"])
    since = at if row["since"] is None else Instant(_nanos(row, "since"), row["since_seq"] or 0)
    ranges = row["ranges"]
    return MembershipEvent(
        scope,
        row["event"],
        row["consumer"],
        at,
        since,
        row["priority"] or 0,
        None if ranges is None else tuple((r["start"], r["end"]) for r in ranges),
        row["receiver_queue_size"],
        instance=row["instance"],
        instance_id=row.get("instance_id"),
        rack=row.get("rack"),
        topics=None if row.get("topics") is None else tuple(row["topics"]),
        client_id=row.get("client_id"),
        generation=row.get("generation"),
        closing=row.get("reason") == CLOSED,
    )


def _nanos(row: Mapping[str, Any], name: str) -> int:
    """Return a time of a row in ns, exactly."""
    value = row[name]
    if isinstance(value, int):
        return value
    whole = int(value.timestamp() // 1)
    return (whole * 1_000_000 + int(value.microsecond)) * 1_000 + (row.get(f"{name}_nanos") or 0)
