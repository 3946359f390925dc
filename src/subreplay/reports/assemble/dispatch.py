"""From what a dispatch replay counted to what its report shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from subreplay.reports import words
from subreplay.reports.assemble import findings
from subreplay.reports.assemble.drain import Spread, drain, longest
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
from subreplay.rows.model.words import instant
from subreplay.semantics.policies.base import Policy
from subreplay.semantics.policies.kafka.assignor import is_group

MOST_HALTED = 3  # consumers that stop working, by name
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
        to_delivered=_latency(figures.latencies, "received", figures.steps),
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
        early=_early(figures.latencies),
        codes=findings.code_summaries(figures.judged, "predicted") if figures.judged else (),
        findings_over_time=findings.over_time(figures.judged) if figures.judged else (),
    )


def _latency(rows: Iterable[Row], event: str, steps: int) -> Latency:
    """From a histogram of ``steps`` buckets for every doubling; what never happened has no bucket, and comes last."""
    of_event = [r for r in rows if r["event"] == event]
    mine = sorted((r for r in of_event if r["bucket"] is not None), key=lambda r: r["bucket"])
    count = sum(r["messages"] for r in of_event)
    never = count - sum(r["messages"] for r in mine)
    most: int = max((r["most"] for r in mine), default=0)

    def quantile(share: float) -> int | None:
        seen = 0
        for row in mine:
            seen += row["messages"]
            if seen >= share * count:
                middle: float = 2 ** ((row["bucket"] + 0.5) / steps)
                return min(round(middle), most)
        return None if never else 0

    return Latency(count, quantile(0.5), quantile(0.99), None if never else most, never)


def _early(rows: Iterable[Row]) -> Early | None:
    """What came before its time."""
    early = [r for r in rows if r["event"] == "received" and r["early"]]
    if not early:
        return None
    return Early(
        count=sum(r["early"] for r in early),
        delayed=sum(r["delayed"] for r in rows if r["event"] == "received"),
        least_ns=min(r["early_least"] for r in early),
        most_ns=max(r["early_most"] for r in early),
    )


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
    pending = sum(r["messages"] for r in figures.pending)
    last = max((r["last"] or 0 for r in figures.outcomes if r["settled"]), default=0)
    took = None if pending else max(last - figures.last_published, 0)
    serial = {"slot": "hash", "partition": "partition"}.get(figures.plan.policy.routing)
    bounds = [
        Bound(r["kind"], _bound(figures, r), r["messages"], r["busy"])
        for r in figures.drains
        if r["kind"] in ("consumer", serial)
    ]
    return drain(left, took, bounds, _never(figures), _spread(figures))


def _never(figures: DispatchFigures) -> str:
    """Why the replay never drains; empty where it does."""
    if not figures.pending:
        return ""
    holders = [r["consumer"] for r in figures.pending if r["consumer"] is not None]
    left = sum(r["messages"] for r in figures.pending)
    never = never_taken(figures)
    published = sum(r["rows"] for r in figures.outcomes if r["settled"]) + left
    said = [f"{words.count(never)} of {words.plural(published, 'message')} are never taken"] if never else []
    if left > never:
        who = f" by {words.best(sorted(holders, key=words.natural), 0)}" if holders else ""
        said.append(f"{words.count(left - never)} of {words.plural(published, 'message')} are never acknowledged{who}")
    reason = _cause(figures, frozenset(holders))
    return f"{' and '.join(said)}{': ' if reason else ''}{reason}."


def never_taken(figures: DispatchFigures) -> int:
    """How many messages no application ever takes, though nothing else becomes of them."""
    return sum(r["messages"] for r in figures.latencies if r["event"] == "received" and r["bucket"] is None)


def _cause(figures: DispatchFigures, holders: frozenset[str]) -> str:
    """What keeps a replay from its end, as far as its model knows."""
    halted = [name for name in figures.halts if name in holders] or [*figures.halts]
    if halted:
        return "; ".join(f"{name} {figures.halts[name]}" for name in sorted(halted, key=words.natural)[:MOST_HALTED])
    ends = {r["outcome"] for r in figures.outcomes if r["delivered"]}
    if is_group(figures.plan.policy) and "timed_out" in ends:
        return "members are evicted again and again, as the work on a poll takes longer than max.poll.interval.ms"
    if not any(timeline.list_connected(len(timeline.epochs) - 1) for timeline in figures.plan.timelines.values()):
        return "nobody is connected in the end"
    again = {"nacked": "fail", "timed_out": "are not acknowledged before the acknowledgement timeout"}
    return " and ".join(f"messages {what} again and again" for end, what in again.items() if end in ends)


def _spread(figures: DispatchFigures) -> Spread:
    """How many consumers there were in the end, and which of them had nothing to do while messages were left."""
    last = [timeline.list_connected(len(timeline.epochs) - 1) for timeline in figures.plan.timelines.values()]
    connected = {consumer.label for here in last for consumer in here}
    until = {r["consumer"]: r["busy_until"] or 0 for r in figures.taken if r["window"] is None}
    idle = [name for name in connected if until.get(name, 0) <= figures.last_published]
    return Spread(len(connected), len(idle), figures.plan.policy.routing == "any")


def _bound(figures: DispatchFigures, row: Row) -> str:
    if row["kind"] == "consumer":
        return str(row["consumer"])
    return words.count(row["slot"]) if row["kind"] == "hash" else _partition(figures, row)


def _partition(figures: DispatchFigures, row: Row) -> str:
    """The number of a partition, and its topic where there are several."""
    several = len({scope.topic for scope in figures.plan.timelines}) > 1
    return f"{max(row['partition'], 0)}" + (f" of {row['topic']}" if several else "")


def _blocked(figures: DispatchFigures, rows: Sequence[Row]) -> tuple[Blocked, ...]:
    end = max((r["last"] or 0 for r in figures.outcomes), default=0)
    return longest(
        Blocked(
            consumer=r["consumer"] or "nobody",
            place=_place(figures, r),
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


def _place(figures: DispatchFigures, row: Row) -> str:
    if row.get("generation") is not None:
        return f"partition {_partition(figures, row)}"
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
