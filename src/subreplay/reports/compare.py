"""The what-if comparison: one line a scenario, from the traffic it was replayed with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from subreplay.figures import Row
from subreplay.replay.assign import Plan
from subreplay.replay.balance import connected, most_connected
from subreplay.reports.assemble import handovers
from subreplay.reports.data import ScenarioConsumer, ScenarioView


def scenario_views(
    plans: Iterable[Plan], traffic: Sequence[Row], extent: Row, width: int, hottest: int
) -> tuple[ScenarioView, ...]:
    """Scenarios side by side; ``hottest`` is the number of messages of the hottest key."""
    by_plan: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in traffic:
        by_plan[row["scenario"]][row["level"]].append(row)
    return tuple(_view(plan, by_plan[plan.name], extent, width, hottest) for plan in plans)


def _view(plan: Plan, rows: dict[str, list[Row]], extent: Row, width: int, hottest: int) -> ScenarioView:
    first, last = extent["first"], extent["last"] + 1
    intervals = connected(plan.timelines.values(), last)
    consumers = most_connected(intervals, first, last)
    whole = (
        rows["scenario"][0] if rows["scenario"] else {"messages": 0, "keys": 0, "messages_moved": 0, "keys_moved": 0}
    )
    served = [r for r in rows["consumer"] if r["consumer"] is not None]
    messages = whole["messages"]
    owned = sum(r["messages"] for r in served)
    perfect = 1 / consumers if consumers else 0.0
    shares = tuple(
        ScenarioConsumer(
            r["consumer"],
            r["messages"],
            r["bytes"],
            r["keys"],
            r["messages"] / owned,
            r["messages"] / owned * consumers,
        )
        for r in served
    )
    max_share = max((s.share for s in shares), default=0.0)
    hottest_share = hottest / messages if messages else 0.0
    rejected = sorted(
        {
            f"{e.cause.consumer}: {e.rejected.reason}"
            for t in plan.timelines.values()
            for e in t.epochs
            if e.rejected and e.cause
        }
    )
    return ScenarioView(
        name=plan.name,
        policy=plan.policy.name,
        profile=plan.policy.profile,
        consumers=consumers,
        messages=messages,
        max_share=max_share,
        perfect_share=perfect,
        skew=max_share * consumers,
        worst_window_skew=_worst_window(rows["window"], intervals, width),
        keys=whole["keys"],
        hottest_key_share=hottest_share,
        ceiling=1 / hottest_share if hottest_share and plan.policy.routing == "slot" else 0.0,
        epochs=max((len(t.epochs) - 1 for t in plan.timelines.values()), default=0),
        slots_moved=_slots_moved(plan, first, last),
        traffic_moved=whole["messages_moved"] / messages if messages else 0.0,
        keys_moved=whole["keys_moved"],
        unowned=messages - owned,
        per_consumer=shares,
        note=f"rejected: {'; '.join(rejected)}" if rejected else "",
    )


def _worst_window(rows: Iterable[Row], intervals: Any, width: int) -> float:
    """The largest share of a window times the consumers connected in it; windows with hardly any messages say
    nothing."""
    by_window: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        if row["consumer"] is not None:
            by_window[row["window"]].append(row)
    skews = [0.0]
    for start, mine in by_window.items():
        total = sum(r["messages"] for r in mine)
        consumers = most_connected(intervals, start, start + width)
        if total >= 10 * consumers:
            skews.append(max(r["messages"] for r in mine) / total * consumers)
    return max(skews)


def _slots_moved(plan: Plan, first: int, last: int) -> float:
    """Slots that changed hands while there was traffic, as a multiple of the whole space, averaged over dispatchers."""
    low, high = plan.policy.space
    moved = sum(
        sum(handovers(timeline, epoch).values())
        for timeline in plan.timelines.values()
        for epoch in timeline.epochs
        if first < epoch.start.at < last
    )
    return moved / (high - low + 1) / max(1, len(plan.timelines))
