"""Figures of a report on cases computed by hand, and what is built for reports of large groups."""

from __future__ import annotations

from dataclasses import replace

import pytest

from subreplay.audit.needs import Need
from subreplay.reports.assemble import consumer_loads, epoch_views, ownership_moves
from subreplay.reports.assemble.report import build_facts
from subreplay.reports.assemble.scenario_comparison import MAX_TIME_SLICES, build_scenario_views
from subreplay.reports.figures import DispatchFigures, Figures
from subreplay.rows.model.rows import Scope
from subreplay.semantics.policies import make_policy
from subreplay.semantics.timelines.timeline import Timeline
from subreplay.whatif.fair_share import find_connected_intervals
from subreplay.whatif.message_assignment import ScenarioPlan
from subreplay.whatif.scenario import PlannedMember, build_plan, build_planned_events

T = "persistent://public/default/t"
SECOND = 10**9
WIDTH = 60 * SECOND


def planned(
    policy: str, members: list[PlannedMember], partitions: int = 0, profile: str = "pulsar-4.0"
) -> ScenarioPlan:
    scopes = [Scope(T, p) for p in range(partitions)] or [Scope(T)]
    return build_plan(
        "s", make_policy(policy, profile), {scope: build_planned_events(members, scope, 0) for scope in scopes}
    )


def counted(plan: ScenarioPlan, **more: object) -> Figures:
    extent = {"first": 0, "last": 2 * WIDTH - 1, "messages": 400}
    intervals = find_connected_intervals(plan.timelines.values(), extent["last"] + 1)
    return Figures(T, (), extent, WIDTH, plan, intervals, **more)  # type: ignore[arg-type]


def given(window: int, consumer: str | None, messages: int) -> dict[str, object]:
    return {"window": window, "consumer": consumer, "messages": messages, "bytes": messages, "keys": 1}


# a and b from the start; c and d from the second minute on
GROWING = [*(PlannedMember(n, 0, None) for n in "ab"), *(PlannedMember(n, WIDTH, None) for n in "cd")]
LOAD = [given(0, "a", 60), given(0, "b", 40), given(WIDTH, "a", 150), given(WIDTH, "c", 90), given(WIDTH, "d", 60)]
EVEN = (100 / 2 + 300 / 4) / 400  # of the whole


def test_skew_is_one_definition_in_windows_totals_and_scenarios() -> None:
    plan = planned("pulsar.key_shared.auto_split", GROWING)
    totals = [
        {"consumer": name, "messages": n, "bytes": n, "keys": 1}
        for name, n in zip("abcd", (210, 40, 90, 60), strict=True)
    ]
    figures = counted(plan, load=LOAD, consumers=totals)
    assert [(p.consumer, p.skew) for p in consumer_loads.build_load_points(figures)] == [
        ("a", 0.6 * 2), ("b", 0.4 * 2), ("a", 0.5 * 4), ("c", pytest.approx(0.3 * 4)), ("d", 0.2 * 4)
    ]  # fmt: skip
    in_all = {total.consumer: total.skew for total in consumer_loads.build_consumer_totals(figures)}
    assert in_all == pytest.approx({"a": 210 / 400 / EVEN, "b": 0.1 / EVEN, "c": 0.225 / EVEN, "d": 0.15 / EVEN})

    level = {"scenario": "s", "messages": 400, "keys": 8, "messages_moved": 90, "keys_moved": 2}
    rows = [{"scenario": "s", "level": "window", **row} for row in LOAD]
    rows += [{"scenario": "s", "level": "consumer", **row} for row in totals]
    (view,) = build_scenario_views(
        (plan,), replace(figures, traffic=[*rows, {**level, "level": "scenario"}], hottest=100)
    )
    assert {one.consumer: one.skew for one in view.per_consumer} == pytest.approx(in_all)
    assert (view.max_share, view.even_share) == pytest.approx((210 / 400, EVEN))
    assert view.skew == pytest.approx(in_all["a"])
    assert view.worst_window_skew == 2.0
    assert (view.consumers, view.traffic_moved, view.ceiling) == (4, 90 / 400, 4.0)
    # one change (c and d join at once) while there was traffic: each took a quarter
    assert view.changes == 1
    assert view.slots_moved == pytest.approx(0.5, abs=1e-3)
    assert {(one.before, one.after) for one in view.flows} <= {("a", "c"), ("b", "d"), ("a", "d"), ("b", "c")}
    assert sum(one.share for one in view.flows) == pytest.approx(view.slots_moved)
    # the busiest of each window, beside an even share of it
    assert [(one.consumer, one.messages, one.even) for one in view.load] == [("a", 60, 100 / 2), ("a", 150, 300 / 4)]


def test_the_window_with_the_busiest_consumer_represents_its_neighbours() -> None:
    extent = {"first": 0, "last": 2 * MAX_TIME_SLICES * SECOND - 1}
    rows = [{"scenario": "s", "level": "window", **given(0, "b", 9)} | {"window": i * SECOND} for i in range(3)]
    rows[1]["messages"] = 20
    plan = planned("pulsar.shared", [PlannedMember("b", 0, None)])
    (view,) = build_scenario_views(
        (plan,), replace(counted(plan), traffic=rows, extent=extent, width=SECOND, hottest=1)
    )
    assert [(one.start[17:19], one.messages) for one in view.load] == [("00", 20), ("02", 9)]


def test_an_idle_consumer_is_there_with_its_reason_and_so_are_unowned_messages() -> None:
    plan = planned("kafka.range", [PlannedMember(n, 0, None) for n in "abc"], 2, "kafka-4.0")
    rows = [
        {"scenario": "s", "level": "window", **given(0, "a", 10)},
        {"scenario": "s", "level": "window", **given(0, None, 5)},
    ]
    rows += [{"scenario": "s", "level": "consumer", **given(0, name, n)} for name, n in (("a", 10), (None, 5))]
    rows += [
        {"scenario": "s", "level": "move", "topic": T, "partition": 0, "epoch": 0, "consumer": None, "messages": 5}
    ]
    rows += [{"scenario": "s", "level": "scenario", "messages": 15, "keys": 1, "messages_moved": 0, "keys_moved": 0}]
    (view,) = build_scenario_views(
        (plan,), replace(counted(plan), traffic=rows, extent={"first": 0, "last": 10 * SECOND}, hottest=1)
    )
    assert {one.consumer: (one.messages, one.note) for one in view.per_consumer} == {
        "a": (10, ""),
        "b": (0, "its partitions had no messages"),
        "c": (0, "there were fewer partitions than consumers"),
    }
    assert (view.unowned, view.unowned_why) == (5, "5 while no consumer was connected")


@pytest.mark.parametrize(
    ("policy", "profile", "lacking", "assumed"),
    [
        ("pulsar.key_shared.auto_split", "pulsar-4.0", {Need.STICKY_KEYS}, True),
        ("pulsar.key_shared.auto_split", "pulsar-4.0", set(), False),
        ("pulsar.key_shared.auto_split", "pulsar-3.2", {Need.STICKY_KEYS}, False),  # all have one constant key
        ("pulsar.shared", "pulsar-4.0", {Need.STICKY_KEYS}, False),
    ],
)
def test_the_distribution_of_keyless_messages_is_shown_as_assumed_if_it_is_not_recorded(
    policy: str, profile: str, lacking: set[Need], assumed: bool
) -> None:
    plan = planned(policy, [PlannedMember("a", 0, None)], profile=profile)
    (view,) = build_scenario_views((plan,), counted(plan, lacking=frozenset(lacking)))
    assert ("the spread of messages without a key is assumed" in view.note) is assumed


def test_a_replayed_scenario_has_what_its_consumers_took() -> None:
    plan = planned(
        "pulsar.shared",
        [PlannedMember("a", 0, None), PlannedMember("b", 0, None), PlannedMember("c", 90 * SECOND, None)],
    )
    taken = [
        {"consumer": name, "window": window, "width": WIDTH, "messages": n, "bytes": n, "redelivered": 0,
         "busy_until": 0, "delivered_until": 80 * SECOND}
        for name, n in (("a", 300), ("b", 100)) for window in (None, 0)
    ]  # fmt: skip
    replay = DispatchFigures(
        plan,
        "1 s",
        None,
        (),
        last_published=10,
        end=200 * SECOND,
        steps=64,
        outcomes=(),
        latencies=(),
        taken=taken,
        pending=(),
        backlog=(),
        unacked=(),
        waits=(),
        hash_waits=(),
        drains=(),
    )
    rows = [
        {"scenario": "s", "level": "window", **given(0, "a", 200)},
        {"scenario": "s", "level": "window", **given(0, "b", 200)},
    ]
    rows += [{"scenario": "s", "level": "scenario", "messages": 400, "keys": 1, "messages_moved": 0, "keys_moved": 0}]
    (view,) = build_scenario_views((plan,), counted(plan, traffic=rows), (replay,))
    assert (view.replayed, view.max_share, view.consumers) == (True, 0.75, 3)
    assert {one.consumer: (one.messages, one.note) for one in view.per_consumer} == {
        "a": (300, ""), "b": (100, ""), "c": (0, "it joined after every message had been dispatched to other consumers")
    }  # fmt: skip


def test_without_members_there_is_no_map() -> None:
    assert epoch_views.build_range_maps(counted(planned("pulsar.key_shared.auto_split", []))) == ((), 0)


def test_joins_of_one_instant_are_one_epoch_of_the_map() -> None:
    (mapped,), _ = epoch_views.build_range_maps(counted(planned("pulsar.key_shared.auto_split", GROWING)))
    assert [view.cause for view in mapped.epochs] == [
        "epochs 1 to 2: a, b joined at 00:00:00.000000", "epochs 3 to 4: c, d joined at 00:01:00.000000"
    ]  # fmt: skip
    assert [len(view.members) for view in mapped.epochs] == [2, 4]
    assert {one.consumer: round(one.share, 2) for one in mapped.epochs[1].shares} == dict.fromkeys("abcd", 0.25)


def test_only_maps_that_are_shown_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: set[int] = set()
    table = Timeline.table

    def seen(self: Timeline, epoch: int) -> object:
        looked_at.add(self.scope.partition)
        return table(self, epoch)

    monkeypatch.setattr(Timeline, "table", seen)
    figures = counted(planned("pulsar.key_shared.consistent_hash", GROWING, 20))
    maps, left_out = epoch_views.build_range_maps(figures)
    assert (len(maps), left_out) == (epoch_views.MAX_SLOT_MAPS, 20 - epoch_views.MAX_SLOT_MAPS)
    assert looked_at == {0}  # all have the same timeline, whose map is built once
    assert (
        ownership_moves.select_shown_moves(figures)[1] == 20 * 4 - ownership_moves.MAX_MOVES
    )  # a and b gave to c and d, in each partition
    assert looked_at == {0}  # all have the same timeline, whose map is built once


@pytest.mark.long
def test_of_many_epochs_and_ranges_a_map_has_a_few_columns_and_shares() -> None:
    joins = [PlannedMember(f"c{i}", i * SECOND // 8, None) for i in range(2 * epoch_views.MAX_EPOCHS)]
    ((mapped,), _) = epoch_views.build_range_maps(counted(planned("pulsar.key_shared.consistent_hash", joins)))
    assert len(mapped.epochs) <= epoch_views.MAX_EPOCHS
    assert len(mapped.epochs) + mapped.epochs_left_out == len(joins)
    assert all(not view.bands and view.bands_left_out for view in mapped.epochs)
    last = mapped.epochs[-1]
    assert len(last.shares) == epoch_views.MAX_SHARES + 1
    assert sum(one.share for one in last.shares) == pytest.approx(1)
    assert [a.end_us for a in mapped.epochs[:-1]] == [b.start_us for b in mapped.epochs[1:]]


def test_names_that_only_the_deliveries_know_stand_beside_those_of_the_membership() -> None:
    plan = planned("pulsar.key_shared.auto_split", GROWING)
    figures = counted(plan, unknown_consumers=("c1", "c2"), members=("xc1",))
    (fact,) = [fact for fact in build_facts(plan.policy, figures, ()) if fact.label == "Names"]
    assert fact.note == ("the deliveries name consumers 'c1', 'c2', but the membership only contains consumer 'xc1'")
    assert not [fact for fact in build_facts(plan.policy, counted(plan), ()) if fact.label == "Names"]
