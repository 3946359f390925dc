"""From what a dispatch replay counted to what its report shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from subreplay.figures import DispatchFigures, Row
from subreplay.model.words import instant
from subreplay.policies.base import Policy
from subreplay.policies.kafka.assignor import is_group
from subreplay.reports import words
from subreplay.reports.assemble import findings
from subreplay.reports.assemble.drain import drain, longest
from subreplay.reports.dispatch_data import (
    BacklogPoint,
    Blocked,
    Bound,
    DispatchView,
    Drain,
    DuplicateCause,
    Latency,
    Outcomes,
)

# Which end of a message each outcome is; what came back is counted by its cause.
ENDS = {
    "acked": "acked",
    "covered": "acked",
    "retried": "acked",
    "dead_lettered": "dead_lettered",
    "expired": "expired",
    "dropped": "dropped",
    "deduplicated": "deduplicated",
    "skipped": "skipped",
}
CAUSES = {"nacked": "nack", "timed_out": "acknowledgement timeout", "returned": "its consumer left, or a rewind"}
GROUP_CAUSES = {"timed_out": "an eviction for not polling", "returned": "a crash before the commit"}


def dispatch_view(figures: DispatchFigures) -> DispatchView:
    """One scenario's dispatch replay."""
    points, most, most_at, left = _backlog(figures)
    rows = figures.outcomes
    causes = GROUP_CAUSES if is_group(figures.plan.policy) else CAUSES
    return DispatchView(
        name=figures.plan.name,
        policy=figures.plan.policy.name,
        profile=figures.plan.policy.profile,
        service=figures.service,
        seed=figures.seed,
        settings=figures.settings + _session(figures.plan.policy),
        to_delivered=_latency(figures.latencies, "delivered", figures.steps),
        to_acked=_latency(figures.latencies, "acked", figures.steps),
        backlog=points,
        backlog_max=most,
        backlog_max_at=most_at,
        drain=_drain(figures, left),
        blocked_ns=figures.waits[0]["total"] if figures.waits else 0,
        blocked_consumers=_blocked(figures, figures.waits),
        blocked_consumers_count=figures.waits[0]["of"] if figures.waits else 0,
        blocked_hashes=_blocked(figures, figures.hash_waits),
        blocked_hashes_count=figures.hash_waits[0]["of"] if figures.hash_waits else 0,
        places="partition" if is_group(figures.plan.policy) else "hash",
        outcomes=_outcomes(rows),
        redeliveries=sum(r["delivered"] for r in rows if r["outcome"] in causes),
        retries=sum(r["rows"] for r in rows if r["outcome"] == "retried"),
        duplicates=tuple(
            DuplicateCause(cause, count)
            for outcome, cause in causes.items()
            if (count := sum(r["delivered"] for r in rows if r["outcome"] == outcome))
        ),
        codes=findings.code_summaries(figures.plan.policy, figures.judged, "predicted") if figures.judged else (),
        findings_over_time=findings.over_time(figures.judged) if figures.judged else (),
    )


def _latency(rows: Iterable[Row], event: str, steps: int) -> Latency:
    """From a histogram of ``steps`` buckets for every doubling."""
    mine = sorted((r for r in rows if r["event"] == event), key=lambda r: r["bucket"])
    count = sum(r["messages"] for r in mine)
    most: int = max((r["most"] for r in mine), default=0)

    def quantile(share: float) -> int:
        seen = 0
        for row in mine:
            seen += row["messages"]
            if seen >= share * count:
                middle: float = 2 ** ((row["bucket"] + 0.5) / steps)
                return min(round(middle), most)
        return 0

    return Latency(count, quantile(0.5), quantile(0.99), most)


def _backlog(figures: DispatchFigures) -> tuple[tuple[BacklogPoint, ...], int, str, int]:
    """Points by window; the highest, and when; and what was left just after the last message was published.

    A window tells how it ended. What was done with between the last publication and the end of its window was left.
    """
    steps: dict[int, list[int]] = {}
    for row in figures.backlog:
        steps[row["window"]] = [row["published"] - row["settled"], 0]
    for row in figures.held:
        steps.setdefault(row["window"], [0, 0])[1] = row["held"]
    points: list[BacklogPoint] = []
    total = held = most = left = 0
    most_at = ""
    for window, (change, taken) in sorted(steps.items()):
        total, held = total + change, held + taken
        at_consumers = min(max(held, 0), max(total, 0))
        points.append(BacklogPoint(instant(window), max(total - at_consumers, 0), at_consumers))
        if total > most:
            most, most_at = total, instant(window)
        if window <= figures.last_published:
            left = total
    left = max(left, 0) + sum(row["late"] for row in figures.outcomes)
    if left > most:
        most, most_at = left, instant(figures.last_published)
    return tuple(points), most, most_at, left


def _drain(figures: DispatchFigures, left: int) -> Drain:
    pending = sum(r["rows"] for r in figures.outcomes if r["outcome"] == "pending")
    last = max((r["last"] or 0 for r in figures.outcomes if r["settled"]), default=0)
    took = None if pending else max(last - figures.last_published, 0)
    serial = {"slot": "hash", "partition": "partition"}.get(figures.plan.policy.routing)
    bounds = [
        Bound(r["kind"], _bound(r), r["messages"], r["busy"])
        for r in figures.drains
        if r["kind"] in ("consumer", serial)
    ]
    return drain(left, took, bounds)


def _bound(row: Row) -> str:
    if row["kind"] == "consumer":
        return str(row["consumer"])
    return words.count(row["slot"]) if row["kind"] == "hash" else str(max(row["partition"], 0))


def _blocked(figures: DispatchFigures, rows: Sequence[Row]) -> tuple[Blocked, ...]:
    end = max((r["last"] or 0 for r in figures.outcomes), default=0)
    return longest(
        Blocked(
            consumer=r["consumer"] or "nobody",
            place=_place(r),
            holder=r["holder"] or "",
            why=_why(figures, r),
            since=instant(r["since"]),
            blocked_ns=r["blocked"],
            stretches=r["stretches"],
            messages=r["messages"],
            ongoing=r["until"] >= end,
        )
        for r in rows
    )


def _session(policy: Policy) -> tuple[tuple[str, str], ...]:
    """What else is assumed of a group, which is an option of its policy."""
    if not is_group(policy):
        return ()
    return (("session timeout", words.nanos(policy.session_timeout_us * 1_000)),)


def _place(row: Row) -> str:
    if row.get("generation") is not None:
        return f"partition {max(row['partition'], 0)}"
    return "" if row.get("hash") is None else f"hash {words.count(row['hash'])}"


def _why(figures: DispatchFigures, row: Row) -> str:
    if is_group(figures.plan.policy):
        if row.get("generation") is None:
            return "its partitions were paused"
        return f"rebalance {row['generation']}" if row["generation"] else "a restart"
    return "the hash drains" if row["by_hash"] else "it joined recently"


def _outcomes(rows: Iterable[Row]) -> Outcomes:
    ends = dict.fromkeys(("acked", "dead_lettered", "expired", "dropped", "deduplicated", "skipped"), 0)
    for row in rows:
        if row["settled"]:
            ends[ENDS.get(row["outcome"], "acked")] += row["rows"]
    pending = sum(r["rows"] for r in rows if r["outcome"] == "pending" and not r["settled"])
    return Outcomes(sum(ends.values()) + pending, **ends, pending=pending)
