"""Build the report data of a dispatch replay from its counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from subreplay.reports.assemble import finding_views
from subreplay.reports.assemble.drain_limits import ConsumerSpread, build_drain, select_longest
from subreplay.reports.dispatch_data import (
    BacklogPoint,
    Blocked,
    Bound,
    DispatchView,
    Drain,
    DuplicateCause,
    Early,
    Latency,
    Outcomes,
)
from subreplay.reports.figures import DispatchFigures, Row
from subreplay.reports.formatting import format_count, format_names, format_nanos, format_plural, natural_sort_key
from subreplay.rows.model.text_format import format_instant
from subreplay.semantics.policies.base import Policy
from subreplay.semantics.policies.kafka.assignor import is_group
from subreplay.semantics.policies.kafka.share import is_share_group

MAX_HALTED_SHOWN = 3  # stopped consumers that a sentence names
# The final state of a message for each outcome. Redeliveries are counted by cause instead.
OUTCOME_GROUPS = {
    "acked": "acked",
    "covered": "acked",
    "retried": "acked",
    "dead_lettered": "dead_lettered",
    "expired": "expired",
    "dropped": "dropped",
    "deduplicated": "deduplicated",
    "skipped": "skipped",
}
REDELIVERY_CAUSES = {
    "nacked": "nack",
    "timed_out": "acknowledgement timeout",
    "returned": "its consumer left, or a rewind",
}
GROUP_REDELIVERY_CAUSES = {"timed_out": "an eviction for not polling", "returned": "a crash before the commit"}
SHARE_REDELIVERY_CAUSES = {
    "nacked": "a release",
    "timed_out": "a lock that ended",
    "returned": "a consumer that closed or crashed",
}


def build_dispatch_view(figures: DispatchFigures) -> DispatchView:
    """Build the report data of one scenario's dispatch replay."""
    points, most, most_at, remaining = _build_backlog(figures)
    rows = figures.outcomes
    causes = _find_redelivery_causes(figures.plan.policy)
    return DispatchView(
        name=figures.plan.name,
        policy=figures.plan.policy.name,
        profile=figures.plan.policy.profile,
        service=figures.service,
        seed=figures.seed,
        settings=figures.settings + _list_session_settings(figures.plan.policy),
        to_delivered=_compute_latency(figures.latencies, "received", figures.steps),
        to_acked=_compute_latency(figures.latencies, "acked", figures.steps),
        backlog=points,
        backlog_max=most,
        backlog_max_at=most_at,
        drain=_build_drain(figures, remaining),
        blocked_ns=figures.waits[0]["total"] if figures.waits else 0,
        blocked_consumers=_build_blocked_rows(figures, figures.waits),
        blocked_consumers_count=figures.waits[0]["of"] if figures.waits else 0,
        blocked_hashes=_build_blocked_rows(figures, figures.hash_waits),
        blocked_hashes_count=figures.hash_waits[0]["of"] if figures.hash_waits else 0,
        places="partition" if is_group(figures.plan.policy) else "hash",
        outcomes=_count_outcomes(rows),
        redeliveries=sum(r["delivered"] for r in rows if r["outcome"] in causes),
        retries=sum(r["rows"] for r in rows if r["outcome"] == "retried"),
        duplicates=tuple(
            DuplicateCause(cause, count)
            for outcome, cause in causes.items()
            if (count := sum(r["delivered"] for r in rows if r["outcome"] == outcome))
        ),
        early=_count_early(figures.latencies),
        codes=finding_views.build_code_summaries(figures.judged, "predicted") if figures.judged else (),
        findings_over_time=finding_views.count_findings_over_time(figures.judged) if figures.judged else (),
    )


def _compute_latency(rows: Iterable[Row], event: str, steps: int) -> Latency:
    """Compute quantiles from a histogram with ``steps`` buckets per doubling.

    Messages without the event have no bucket and rank last.
    """
    of_event = [r for r in rows if r["event"] == event]
    reached = sorted((r for r in of_event if r["bucket"] is not None), key=lambda r: r["bucket"])
    count = sum(r["messages"] for r in of_event)
    never = count - sum(r["messages"] for r in reached)
    most: int = max((r["most"] for r in reached), default=0)

    def quantile(share: float) -> int | None:
        seen = 0
        for row in reached:
            seen += row["messages"]
            if seen >= share * count:
                middle: float = 2 ** ((row["bucket"] + 0.5) / steps)
                return min(round(middle), most)
        return None if never else 0

    return Latency(count, quantile(0.5), quantile(0.99), None if never else most, never)


def _count_early(rows: Iterable[Row]) -> Early | None:
    """Count the messages that were delivered before their delivery time."""
    early = [r for r in rows if r["event"] == "received" and r["early"]]
    if not early:
        return None
    return Early(
        count=sum(r["early"] for r in early),
        delayed=sum(r["delayed"] for r in rows if r["event"] == "received"),
        least_ns=min(r["early_least"] for r in early),
        most_ns=max(r["early_most"] for r in early),
    )


def _build_backlog(figures: DispatchFigures) -> tuple[tuple[BacklogPoint, ...], int, str, int]:
    """Build the backlog points by window, the largest backlog, its time, and the backlog after the last publication.

    A point is the state at the end of its window. Messages settled between the last publication and the end of its
    window count as backlog at the last publication.
    """
    steps: dict[int, list[int]] = {}
    for row in figures.backlog:
        steps[row["window"]] = [row["published"] - row["settled"], 0]
    for row in figures.unacked:
        steps.setdefault(row["window"], [0, 0])[1] = row["held"]
    points: list[BacklogPoint] = []
    total = at_consumer_total = most = remaining = 0
    most_at = ""
    for window, (change, taken) in sorted(steps.items()):
        total, at_consumer_total = total + change, at_consumer_total + taken
        at_consumers = min(max(at_consumer_total, 0), max(total, 0))
        points.append(BacklogPoint(format_instant(window), max(total - at_consumers, 0), at_consumers))
        if total > most:
            most, most_at = total, format_instant(window)
        if window <= figures.last_published:
            remaining = total
    remaining = max(remaining, 0) + sum(row["late"] for row in figures.outcomes)
    if remaining > most:
        most, most_at = remaining, format_instant(figures.last_published)
    return tuple(points), most, most_at, remaining


def _build_drain(figures: DispatchFigures, remaining: int) -> Drain:
    pending = sum(r["messages"] for r in figures.pending)
    last = max((r["last"] or 0 for r in figures.outcomes if r["settled"]), default=0)
    took = None if pending else max(last - figures.last_published, 0)
    serial = {"slot": "hash", "partition": "partition"}.get(figures.plan.policy.routing)
    bounds = [
        Bound(r["kind"], _name_bound(figures, r), r["messages"], r["busy"])
        for r in figures.drains
        if r["kind"] in ("consumer", serial)
    ]
    return build_drain(remaining, took, bounds, _describe_never_drained(figures), _count_idle(figures))


def _describe_never_drained(figures: DispatchFigures) -> str:
    """Explain why the replay never drains; empty if it does."""
    if not figures.pending:
        return ""
    holders = [r["consumer"] for r in figures.pending if r["consumer"] is not None]
    remaining = sum(r["messages"] for r in figures.pending)
    never = count_never_taken(figures)
    published = sum(r["rows"] for r in figures.outcomes if r["settled"]) + remaining
    sentences = [f"{format_count(never)} of {format_plural(published, 'message')} are never received"] if never else []
    if remaining > never:
        holders_text = f" by {format_names(sorted(holders, key=natural_sort_key), 0)}" if holders else ""
        sentences.append(
            f"{format_count(remaining - never)} of {format_plural(published, 'message')} "
            f"are never acknowledged{holders_text}"
        )
    reason = _describe_cause(figures, frozenset(holders))
    return f"{' and '.join(sentences)}{': ' if reason else ''}{reason}."


def count_never_taken(figures: DispatchFigures) -> int:
    """Count the messages that no application ever receives and that do not end otherwise."""
    return sum(r["messages"] for r in figures.latencies if r["event"] == "received" and r["bucket"] is None)


def _describe_cause(figures: DispatchFigures, holders: frozenset[str]) -> str:
    """Describe what keeps a replay from draining, as far as the model knows."""
    halted = [name for name in figures.halts if name in holders] or [*figures.halts]
    if halted:
        return "; ".join(
            f"{name} {figures.halts[name]}" for name in sorted(halted, key=natural_sort_key)[:MAX_HALTED_SHOWN]
        )
    ends = {r["outcome"] for r in figures.outcomes if r["delivered"]}
    if is_group(figures.plan.policy) and "timed_out" in ends:
        return "members are evicted again and again, as the work on a poll takes longer than max.poll.interval.ms"
    if not any(timeline.list_connected(len(timeline.epochs) - 1) for timeline in figures.plan.timelines.values()):
        return "no consumer is connected at the end"
    limit = "their lock ends" if is_share_group(figures.plan.policy) else "the acknowledgement timeout"
    again = {"nacked": "fail", "timed_out": f"are not acknowledged before {limit}"}
    return " and ".join(f"messages {what} again and again" for end, what in again.items() if end in ends)


def _count_idle(figures: DispatchFigures) -> ConsumerSpread:
    """Count the consumers at the end, and those that were idle during the drain."""
    last = [timeline.list_connected(len(timeline.epochs) - 1) for timeline in figures.plan.timelines.values()]
    connected = {consumer.label for consumers_at_end in last for consumer in consumers_at_end}
    until = {r["consumer"]: r["busy_until"] or 0 for r in figures.taken if r["window"] is None}
    idle = [name for name in connected if until.get(name, 0) <= figures.last_published]
    return ConsumerSpread(len(connected), len(idle), figures.plan.policy.routing == "any")


def _name_bound(figures: DispatchFigures, row: Row) -> str:
    if row["kind"] == "consumer":
        return str(row["consumer"])
    return format_count(row["slot"]) if row["kind"] == "hash" else _name_partition(figures, row)


def _name_partition(figures: DispatchFigures, row: Row) -> str:
    """Name a partition by its number, and by its topic if there are several topics."""
    several = len({scope.topic for scope in figures.plan.timelines}) > 1
    return f"{max(row['partition'], 0)}" + (f" of {row['topic']}" if several else "")


def _build_blocked_rows(figures: DispatchFigures, rows: Sequence[Row]) -> tuple[Blocked, ...]:
    end = max((r["last"] or 0 for r in figures.outcomes), default=0)
    return select_longest(
        Blocked(
            consumer=r["consumer"] or "nobody",
            place=_name_place(figures, r),
            holder=r["holder"] or "",
            why=_describe_wait_reason(figures, r),
            since=format_instant(r["since"]),
            blocked_ns=r["blocked"],
            stretches=r["stretches"],
            messages=r["messages"],
            ongoing=r["until"] >= end,
        )
        for r in rows
    )


def _list_session_settings(policy: Policy) -> tuple[tuple[str, str], ...]:
    """List the assumptions about a group that its policy options set."""
    if is_share_group(policy):
        return (
            ("session timeout", format_nanos(policy.session_timeout_us * 1_000)),
            ("lock duration", format_nanos(policy.lock_duration_us * 1_000)),
            ("delivery limit", format_count(policy.delivery_limit)),
            ("locks of a partition", f"at most {format_count(policy.max_locks)}"),
        )
    if not is_group(policy):
        return ()
    return (("session timeout", format_nanos(policy.session_timeout_us * 1_000)),)


def _name_place(figures: DispatchFigures, row: Row) -> str:
    if row.get("generation") is not None:
        return f"partition {_name_partition(figures, row)}"
    return "" if row.get("hash") is None else f"hash {format_count(row['hash'])}"


def _describe_wait_reason(figures: DispatchFigures, row: Row) -> str:
    if is_group(figures.plan.policy):
        if row.get("generation") is None:
            return "its partitions were paused"
        return f"rebalance {row['generation']}" if row["generation"] else "a restart"
    return "the hash drains" if row["by_hash"] else "it joined recently"


def _find_redelivery_causes(policy: Policy) -> Mapping[str, str]:
    if is_share_group(policy):
        return SHARE_REDELIVERY_CAUSES
    return GROUP_REDELIVERY_CAUSES if is_group(policy) else REDELIVERY_CAUSES


def _count_outcomes(rows: Iterable[Row]) -> Outcomes:
    ends = dict.fromkeys(("acked", "dead_lettered", "expired", "dropped", "deduplicated", "skipped"), 0)
    for row in rows:
        if row["settled"]:
            ends[OUTCOME_GROUPS.get(row["outcome"], "acked")] += row["rows"]
    pending = sum(r["rows"] for r in rows if r["outcome"] == "pending" and not r["settled"])
    return Outcomes(sum(ends.values()) + pending, **ends, pending=pending)
