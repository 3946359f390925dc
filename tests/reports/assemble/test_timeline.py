"""The timeline of a run: points by hand, what waits at the end, and lanes of few and of many consumers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from subreplay.audit import sums
from subreplay.audit.codes import Code
from subreplay.audit.passes.loads import REPEATED, LoadCollector, Span
from subreplay.reports.assemble.timeline import (
    MAX_EVENTS,
    MAX_LANES,
    MAX_POINTS,
    build_points,
    build_timeline,
    group_lanes,
    merge_intervals,
)
from subreplay.reports.figures import Figures
from subreplay.reports.timeline_data import LaneEvent, LaneStretch, TimelinePoint
from subreplay.rows.model.columns import UNKNOWN
from subreplay.rows.model.rows import Instant, MembershipEvent, Scope
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.kafka.assignor import Partitions
from subreplay.semantics.timelines.group_timeline import GroupTimeline
from subreplay.semantics.timelines.timeline import Timeline
from subreplay.whatif.message_assignment import ScenarioPlan
from tests.reports.made_reports import incidents

T = Scope("persistent://public/default/t")
MS, SECOND = 10**6, 10**9
NEVER_DELIVERED = None
Row = tuple[int, int | None, int]
"""When a message was published, when it was delivered, and which delivery of the message that is (0: the first)."""


def facts(rows: list[Row], delivered: bool) -> pa.Table:
    """What a collector reads of ``FACTS``."""
    n = len(rows)
    at = [0 if row[1] is None else row[1] for row in rows]
    never = dict.fromkeys(("in_transition", "by_receipt"), [False] * n) | dict.fromkeys(REPEATED, [0] * n)
    unknown = dict.fromkeys(("received", "acked"), [UNKNOWN] * n) | {"batch_index": [-1] * n, "size": [1] * n}
    reported = {"delivered": [delivered] * n, "at": at, "due": at, "published": [row[0] for row in rows]}
    given = {"nth": [row[2] for row in rows], "consumer": ["c1"] * n, "key": pa.nulls(n, pa.string())}
    return pa.table(reported | given | never | unknown)


def collected(rows: Iterable[Row], width: int, code: int = Code.UNSEEN.bit) -> tuple[pa.Table, Figures]:
    """The sums of deliveries and of messages that wait, and the figures of a run without members."""
    adding, plan = (
        LoadCollector((Span(width, width),), SECOND),
        ScenarioPlan("", make_policy("pulsar.shared", "pulsar-4.0"), {}),
    )
    rows = [*rows]
    served, open_ = [row for row in rows if row[1] is not None], [row for row in rows if row[1] is None]
    for some, delivered in ((sorted(served, key=lambda row: row[1] or 0), True), (open_, False)):
        if some:
            codes = np.full(len(some), 0 if delivered else code)
            adding.add(facts(some, delivered), codes, np.ones(len(some), np.int64))
    found, span = adding.compute_sum(), Span(width, width)
    times = [row[0] for row in rows if row[0] != UNKNOWN] or [0]
    extent = {"first": min(times), "last": max(times), "messages": len(rows)}
    figures = Figures("t", (), extent, width, plan, ())
    load = sums.sum_loads(found, span).to_pylist()
    return found, replace(figures, load=load, published=sums.sum_published(found, span))


TEN_ROWS: list[Row] = [
    (1, 2, 0), (3, 4, 0), (5, 12, 0), (7, NEVER_DELIVERED, 0),
    (11, 13, 0), (1, 14, 1),  # the second delivery of the first message
    (12, NEVER_DELIVERED, 0), (19, 31, 0),
    (UNKNOWN, 33, 0),  # its publication is not recorded
    (34, 35, 0),
]  # fmt: skip


def test_ten_rows_make_the_points_that_one_counts_by_hand() -> None:
    _, figures = collected([(p if p == UNKNOWN else p * MS, d and d * MS, n) for p, d, n in TEN_ROWS], 10 * MS)
    assert [(row["window"] // MS, row["messages"]) for row in figures.published] == [(0, 4), (10, 3), (30, 2)]
    assert build_points(figures) == (
        TimelinePoint(0, 10_000, published=4, delivered=2, redelivered=0, waiting=2),
        TimelinePoint(10_000, 20_000, published=3, delivered=2, redelivered=1, waiting=3),
        TimelinePoint(20_000, 30_000, published=0, delivered=0, redelivered=0, waiting=3),
        TimelinePoint(30_000, 40_000, published=2, delivered=3, redelivered=0, waiting=2),
    )


def test_published_messages_are_the_load_of_no_consumer() -> None:
    found, figures = collected([(1, 2, 0), (3, None, 0)], 10)
    assert [(row["consumer"], row["messages"]) for row in figures.load] == [("c1", 1)]
    assert [row["consumer"] for row in sums.sum_consumers(found)] == ["c1"]
    assert sums.sum_totals(found)["messages"] == 1


def test_lost_and_dropped_messages_do_not_wait() -> None:
    for code in (Code.LOST, Code.DROPPED):
        _, figures = collected([(1, 2, 0), (3, None, 0)], 10, code.bit)
        assert [point.waiting for point in build_points(figures)] == [0]


def test_messages_of_earlier_days_wait_from_the_start() -> None:
    _, figures = collected([(1, 32, 0), (2, None, 0), (31, 33, 0)], 10)
    today = replace(figures, extent={"first": 31, "last": 33, "messages": 1})
    assert [(point.published, point.waiting) for point in build_points(today)] == [(1, 1)]


MESSAGE = st.tuples(
    st.one_of(st.integers(0, 500), st.just(UNKNOWN)), st.one_of(st.none(), st.integers(0, 200)), st.integers(0, 2)
)


@given(st.lists(MESSAGE, min_size=1, max_size=60), st.sampled_from([1, 7, 100, 1_000]))
def test_the_messages_that_wait_at_the_end_are_those_never_delivered(
    messages: list[tuple[int, int | None, int]], width: int
) -> None:
    rows: list[Row] = []
    for published, delay, again in messages:
        if delay is None:
            rows.append((max(published, 0), None, 0))
        else:
            rows += [(published, max(published, 0) + delay + nth, nth) for nth in range(again + 1)]
    points = build_points(collected(rows, width)[1])
    assert points[-1].waiting == sum(delay is None for _, delay, _ in messages)
    assert sum(point.delivered for point in points) == sum(delay is not None for _, delay, _ in messages)
    assert sum(point.redelivered for point in points) == sum(nth for _, delay, nth in messages if delay is not None)
    assert len(points) <= MAX_POINTS
    assert min(point.waiting for point in points) >= 0


def test_neighbouring_windows_are_merged_if_there_are_too_many() -> None:
    _, figures = collected([(n, None, 0) for n in range(1_000)], 1)
    points = build_points(figures)
    assert len(points) == 200
    assert [point.waiting for point in points][-1] == sum(point.published for point in points) == 1_000


def test_without_traffic_there_are_no_points() -> None:
    assert build_points(Figures("t", (), {"first": 0, "last": 9}, 10, collected([], 10)[1].plan, ())) == ()


def event(kind: Any, consumer: str, seconds: float, **more: Any) -> MembershipEvent:
    at = Instant(round(seconds * SECOND))
    return MembershipEvent(T, kind, consumer, at, at, **more)


def timed(*timelines: Timeline, **more: Any) -> Figures:
    plan = ScenarioPlan("", timelines[0].policy, {replace(T, partition=i): of for i, of in enumerate(timelines)})
    return Figures("t", (), {"first": 0, "last": 100 * SECOND, "messages": 0}, SECOND, plan, (), **more)


def folded(events: Iterable[MembershipEvent], policy: str = "pulsar.key_shared.auto_split") -> Timeline:
    return Timeline.fold(make_policy(policy, "pulsar-4.0"), T, events)


def test_a_lane_has_the_connected_time_and_the_events_of_a_consumer() -> None:
    events = [event("join", "a", 1), event("join", "b", 2), event("crash", "a", 30), event("join", "a", 50)]
    found = build_timeline(timed(folded([*events, event("leave", "b", 70)])))
    assert [(lane.name, lane.connected) for lane in found.lanes] == [
        ("a", ((1_000_000, 30_000_000), (50_000_000, 100_000_000))), ("b", ((2_000_000, 70_000_000),))
    ]  # fmt: skip
    assert found.lanes[0].events == (
        LaneEvent(1_000_000, "join", "joined"), LaneEvent(30_000_000, "crash", "disconnected"),
        LaneEvent(50_000_000, "join", "joined"),
    )  # fmt: skip
    assert found.consumers == 2


def test_a_consumer_that_was_rejected_was_never_connected() -> None:
    found = build_timeline(timed(folded([event("join", "a", 1), event("join", "b", 2)], "pulsar.exclusive")))
    assert [lane.connected for lane in found.lanes] == [((1_000_000, 100_000_000),), ()]
    assert found.lanes[1].events == (LaneEvent(2_000_000, "rejected", "was rejected"),)


def test_a_consumer_is_connected_while_any_partition_has_it() -> None:
    partitions = [folded([event("join", "a", 1 + n / 100), event("leave", "a", 20 + 10 * n)]) for n in range(3)]
    (lane,) = build_timeline(timed(*partitions)).lanes
    assert lane.connected == ((1_000_000, 40_000_000),)
    assert [(one.kind, one.at_us) for one in lane.events] == [
        ("join", 1_000_000), ("leave", 20_000_000), ("leave", 30_000_000), ("leave", 40_000_000)
    ]  # fmt: skip


def test_an_epoch_that_only_changes_owners_is_a_rebalance() -> None:
    policy = make_policy("kafka.cooperative_sticky", "kafka-4.0")
    events = [event("join", "a", 1), event("join", "b", 10)]
    group = GroupTimeline.fold(policy, Partitions.from_counts({T.topic: 2}), events)
    timelines = group.timelines([replace(T, partition=n) for n in range(2)])
    lanes = {lane.name: [one.kind for one in lane.events] for lane in build_timeline(timed(*timelines.values())).lanes}
    assert lanes == {"a": ["join", "rebalance"], "b": ["join", "rebalance"]}


def test_a_lane_shows_the_incidents_that_name_its_consumer() -> None:
    found = build_timeline(timed(folded([event("join", f"c{n}", n) for n in range(1, 4)])), incidents())
    stuck = next(incident for incident in incidents() if incident.code == "STUCK")
    assert LaneStretch(stuck.start_us, stuck.end_us, stuck.number, True) in found.lanes[2].stretches
    assert [one.blocks for one in found.lanes[2].stretches].count(True) == 1


def test_a_consumer_without_membership_has_a_lane_without_connected_time() -> None:
    found = build_timeline(timed(folded([]), consumers=[{"consumer": "x"}]))
    assert [(lane.name, lane.connected, lane.events) for lane in found.lanes] == [("x", (), ())]


def test_many_consumers_share_lanes_but_those_of_incidents() -> None:
    names = [f"c{n}" for n in range(1, 201)]
    lanes = group_lanes(names, ["c77", "c78"])
    assert len(lanes) == MAX_LANES
    assert sorted(name for lane in lanes for name in lane) == sorted(names)
    assert {("c77",), ("c78",)} < set(lanes)
    assert {len(lane) for lane in lanes} == {1, 9}
    found = build_timeline(timed(folded([event("join", name, n / 10) for n, name in enumerate(names)])))
    assert (found.lanes[0].name, found.lanes[0].consumers) == ("c1 to 8", 8)
    assert found.lanes[0].connected == ((0, 100_000_000),)
    assert any(" consumers joined" in one.text for one in found.lanes[0].events)


def test_names_that_differ_in_more_than_their_number_do_not_share_a_lane() -> None:
    lanes = group_lanes([*(f"billing-{n}" for n in range(20)), *(f"mail-{n}" for n in range(20))], [], most=4)
    assert {tuple(sorted({name.split("-")[0] for name in lane})) for lane in lanes} == {("billing",), ("mail",)}
    assert len(group_lanes([f"{chr(97 + n)}{chr(98 + m)}" for n in range(9) for m in range(9)], [], most=4)) == 4


def test_events_and_intervals_of_a_lane_are_limited() -> None:
    flaps = [event(("leave", "join")[n % 2], "a", n / 2) for n in range(1, 180)]
    (lane,) = build_timeline(timed(folded([event("join", "b", 0), event("leave", "b", 0.1), *flaps]))).lanes[:1]
    assert len(lane.events) == MAX_EVENTS
    assert len(lane.events) + lane.events_left_out == 179
    assert merge_intervals([(0, 1), (2, 3), (9, 10), (10, 12)], 2) == [(0, 3), (9, 12)]
