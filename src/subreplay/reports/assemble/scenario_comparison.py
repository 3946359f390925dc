"""Compare the scenarios of a what-if over the same traffic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal

import numpy as np

from subreplay.audit.needs import Need
from subreplay.hashing.sticky_key import has_keyless_spread
from subreplay.reports.assemble.consumer_loads import sum_messages_by_window
from subreplay.reports.assemble.dispatch_views import count_never_taken
from subreplay.reports.data import Flow, ScenarioConsumer, ScenarioView, WindowLoad
from subreplay.reports.figures import DispatchFigures, Figures, Row
from subreplay.rows.model.text_format import format_instant
from subreplay.semantics.policies.base import Policy
from subreplay.whatif.fair_share import (
    compute_fair_share,
    compute_fair_shares,
    count_most_connected,
    find_connected_intervals,
)
from subreplay.whatif.handovers import find_handovers, group_changes
from subreplay.whatif.idle_consumers import explain_idle_consumers, explain_messages_without_owner
from subreplay.whatif.message_assignment import ScenarioPlan

MIN_MESSAGES_PER_CONSUMER = 10  # per connected consumer; windows with fewer do not show balance
MAX_FLOWS = 60  # of a scenario
MAX_TIME_SLICES = 90  # periods whose busiest consumer is shown
MAX_PARTITIONS_SHOWN = 24  # partitions whose retention is listed
NO_TRAFFIC: Final[Row] = {"messages": 0, "keys": 0, "messages_moved": 0, "keys_moved": 0}


def build_scenario_views(
    plans: Iterable[ScenarioPlan], figures: Figures, replayed: Iterable[DispatchFigures] = ()
) -> tuple[ScenarioView, ...]:
    """Build the views of all scenarios; those in ``replayed`` count what consumers received in the replay."""
    by_plan: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in figures.traffic:
        by_plan[row["scenario"]][row["level"]].append(row)
    replays = {replay.plan.name: replay for replay in replayed}
    return tuple(_build_view(plan, by_plan[plan.name], figures, replays.get(plan.name)) for plan in plans)


def _build_view(
    plan: ScenarioPlan, rows: dict[str, list[Row]], figures: Figures, replay: DispatchFigures | None
) -> ScenarioView:
    extent, width, hottest = figures.extent, figures.width, figures.hottest
    if replay is not None:
        rows = rows | _select_taken_rows(rows, replay)
        extent = {**extent, "last": replay.end}
        width = next((row["width"] for row in replay.taken if row["window"] is not None), width)
    first, last = extent["first"], extent["last"] + 1
    intervals = find_connected_intervals(plan.timelines.values(), last)
    served = [row for row in rows["window"] if row["consumer"] is not None]
    sums = sum_messages_by_window(served)
    shares = compute_fair_shares(intervals, sums, width)
    even = compute_fair_share(shares, sums)
    whole = rows["scenario"][0] if rows["scenario"] else NO_TRAFFIC
    messages, owned = whole["messages"], sum(sums.values())
    consumers = _build_consumers(plan, rows["consumer"], owned, even, extent, replay)
    max_share = max((one.share for one in consumers), default=0.0)
    skew = max_share / even if even else 0.0
    hottest = max(hottest, *(row["messages"] for row in rows["keyless"]), 0)
    hottest_share = hottest / messages if messages else 0.0
    changed, slots_moved, flows = _summarize_moves(plan, first, figures.extent["last"] + 1)
    never = 0 if replay is None else count_never_taken(replay)
    owns = plan.policy.routing != "any"
    notes = (
        _describe_producers(plan, rows),
        _describe_retention(plan, rows),
        _describe_rejections(plan),
        _describe_assumptions(plan, figures.lacking),
    )
    return ScenarioView(
        name=plan.name,
        policy=plan.policy.name,
        profile=plan.policy.profile,
        consumers=count_most_connected(intervals, first, last),
        messages=messages,
        max_share=max_share,
        even_share=even,
        skew=skew,
        worst_window_skew=max([skew, *_list_significant_skews(served, sums, shares)]),
        keys=whole["keys"],
        hottest_key_share=hottest_share,
        ceiling=1 / hottest_share if hottest_share and plan.policy.routing == "slot" else 0.0,
        changes=changed,
        slots_moved=slots_moved if owns else None,
        traffic_moved=(whole["messages_moved"] / messages if messages else 0.0) if owns else None,
        keys_moved=whole["keys_moved"] if owns else 0,
        unowned=messages - owned if replay is None else never,
        unowned_why=_describe_never_taken(never)
        if replay is not None
        else explain_messages_without_owner(plan, rows["move"]),
        per_consumer=consumers,
        replayed=replay is not None,
        order=_find_order(plan.policy),
        keys_rerouted=sum(row["keys"] for row in rows["relocated"]),
        traffic_rerouted=sum(row["messages"] for row in rows["relocated"]) / max(messages, 1),
        note="; ".join(filter(None, notes)),
        load=_build_window_loads(served, sums, shares, first, last, width),
        flows=flows[:MAX_FLOWS],
        flows_left_out=max(len(flows) - MAX_FLOWS, 0),
    )


def _find_order(policy: Policy) -> Literal["none", "key", "partition"]:
    """Find what a policy keeps in order."""
    if not policy.ordered:
        return "none"
    return "partition" if policy.routing == "partition" else "key"


def _describe_never_taken(messages: int) -> str:
    return f"{messages:,} that no application receives in the replay" if messages else ""


def _select_taken_rows(rows: Mapping[str, list[Row]], replay: DispatchFigures) -> dict[str, list[Row]]:
    """Select the rows of ``window`` and ``consumer`` from a dispatch replay.

    A replay does not count keys, so each consumer has the keys that it owns.
    """
    keys = {row["consumer"]: row["keys"] for row in rows.get("consumer", ())}
    whole = [row for row in replay.taken if row["window"] is None]
    return {
        "window": [row for row in replay.taken if row["window"] is not None],
        "consumer": [{**row, "keys": keys.get(row["consumer"], 0)} for row in whole],
    }


def _build_window_loads(
    served: Iterable[Row], sums: Mapping[int, int], even: Mapping[int, float], first: int, last: int, width: int
) -> tuple[WindowLoad, ...]:
    """Find the busiest consumer of each period in ``[first, last)``; a period is one or more windows."""
    begin = first - first % width
    wide = width * -(-((last - 1 - begin) // width + 1) // MAX_TIME_SLICES)
    busiest: dict[int, Row] = {}
    for row in served:
        start = begin + (row["window"] - begin) // wide * wide
        if start not in busiest or row["messages"] > busiest[start]["messages"]:
            busiest[start] = row
    return tuple(
        WindowLoad(
            format_instant(start), format_instant(start + wide), row["consumer"], row["messages"],
            sums[row["window"]] * even[row["window"]],
        )
        for start, row in sorted(busiest.items())
    )  # fmt: skip


def _build_consumers(
    plan: ScenarioPlan, rows: Iterable[Row], owned: int, even: float, extent: Row, replay: DispatchFigures | None
) -> tuple[ScenarioConsumer, ...]:
    """Build the load of each consumer; idle consumers come last, with the reason."""
    served_consumers = [
        ScenarioConsumer(
            r["consumer"], r["messages"], r["bytes"], r["keys"], r["messages"] / owned, r["messages"] / owned / even
        )
        for r in rows
        if r["consumer"] is not None
    ]
    dispatched = None if replay is None else max((row["delivered_until"] for row in replay.taken), default=0)
    reasons = explain_idle_consumers(
        plan, {one.consumer for one in served_consumers}, extent["first"], extent["last"], dispatched
    )
    return (*served_consumers, *(ScenarioConsumer(name, 0, 0, 0, 0.0, 0.0, why) for name, why in reasons.items()))


def _list_significant_skews(served: Iterable[Row], sums: Mapping[int, int], even: Mapping[int, float]) -> list[float]:
    """List the skews of all consumers in windows with enough messages."""
    return [
        row["messages"] / sums[row["window"]] / even[row["window"]]
        for row in served
        if sums[row["window"]] * even[row["window"]] >= MIN_MESSAGES_PER_CONSUMER
    ]


def _summarize_moves(plan: ScenarioPlan, first: int, last: int) -> tuple[int, float, tuple[Flow, ...]]:
    """Summarize the membership changes during the traffic.

    Returns the changes at the dispatcher with the most, the mean fraction of the slots that moved at a change, and the
    flows between consumers, largest first.
    """
    low, high = plan.policy.space
    most, of_all = 0, 0
    moved_slots: dict[tuple[str, str], int] = defaultdict(int)
    for timeline in plan.timelines.values():
        change_epochs = [change[-1].index for change in group_changes(timeline) if first < change[0].start.at < last]
        moved = find_handovers(timeline)
        taken, named = np.isin(moved.epoch, change_epochs), len(moved.names)
        pairs, number = np.unique((moved.before * named + moved.after)[taken], return_inverse=True)
        sums = np.bincount(number, moved.slots[taken], len(pairs)).astype(np.int64)
        for pair, slots in zip(pairs.tolist(), sums.tolist(), strict=True):
            moved_slots[moved.names[pair // named], moved.names[pair % named]] += slots
        most, of_all = max(most, len(change_epochs)), of_all + len(change_epochs)
    space = high - low + 1
    order = sorted(moved_slots.items(), key=lambda pair: (-pair[1], pair[0]))
    whole = space * max(1, len(plan.timelines))
    flows = tuple(Flow(*pair, slots, slots / whole) for pair, slots in order)
    return most, sum(moved_slots.values()) / space / max(1, of_all), flows


def _describe_producers(plan: ScenarioPlan, rows: Mapping[str, list[Row]]) -> str:
    """Describe the partitioning of a scenario, and what goes to another partition."""
    if plan.routing is None:
        return ""
    keys, messages = (sum(row[name] for row in rows["relocated"]) for name in ("keys", "messages"))
    count, scheme, keyless = plan.routing.partitions, plan.routing.scheme, plan.routing.keyless
    uncertainty = f" ({plan.routing.counter_evidence})" if plan.routing.counter_evidence else ""
    return (
        f"{count:,} partitions, keys by {scheme}, without a key {keyless}: "
        f"{keys:,} keys with {messages:,} messages go to another partition{uncertainty}"
    )


def _describe_retention(plan: ScenarioPlan, rows: Mapping[str, list[Row]]) -> str:
    """Describe what retention keeps of each partition at the last publication."""
    if plan.retention is None:
        return ""
    kept = [
        f"partition {row['partition']}: {row['messages']:,} messages, {row['bytes']:,} bytes"
        + (f", since {format_instant(row['window'])}" if row["window"] is not None else "")
        for row in sorted(rows["kept"], key=lambda row: row["partition"])
    ]
    more = f" and {len(kept) - MAX_PARTITIONS_SHOWN:,} more partitions" if len(kept) > MAX_PARTITIONS_SHOWN else ""
    messages, size = (sum(row[name] for row in rows["kept"]) for name in ("messages", "bytes"))
    return f"retention keeps {messages:,} messages, {size:,} bytes ({'; '.join(kept[:MAX_PARTITIONS_SHOWN])}{more})"


def _describe_assumptions(plan: ScenarioPlan, lacking: Collection[Need]) -> str:
    """Describe the assumption about messages without a key if the data lack what spreads them."""
    if Need.STICKY_KEYS not in lacking or plan.policy.routing != "slot" or not has_keyless_spread(plan.policy.profile):
        return ""
    return (
        f"the spread of messages without a key is assumed: {plan.policy.profile} spreads them by producer name and "
        "sequence id, which the data do not contain"
    )


def _describe_rejections(plan: ScenarioPlan) -> str:
    reasons = {
        f"{epoch.cause.label}: {epoch.rejected.reason}"
        for timeline in plan.timelines.values()
        for epoch in timeline.epochs
        if epoch.rejected and epoch.cause
    }
    return f"rejected: {'; '.join(sorted(reasons))}" if reasons else ""
