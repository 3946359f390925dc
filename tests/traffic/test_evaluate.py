"""The pass over a traffic profile, held to its slow definition; and profiles in parts, which add up to the whole."""

from functools import reduce
from operator import add

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.rows.model.key_masking import KeyMasking
from subreplay.semantics.policies import make_policy
from subreplay.semantics.timelines.membership import build_dispatcher_events
from subreplay.whatif.scenario import build_plan, build_recorded_events
from subreplay.whatif.traffic.evaluation_counts import Evaluation, Extent
from subreplay.whatif.traffic.plan_evaluator import PlanEvaluator
from subreplay.whatif.traffic.profile_builder import COLUMNS, ProfileBuilder
from subreplay.whatif.traffic.traffic_profile import join_profiles
from tests.support import assigned
from tests.support.every_policy import EVERY
from tests.support.properties import examples
from tests.support.published import MESSAGES, SCOPES, logs, members, reported, together
from tests.support.recordings import ROOT, ingested

PROFILER = ProfileBuilder(KeyMasking.from_secret(False, "a secret"))
KAFKA = [pytest.param(make_policy(name, "kafka-4.0"), id=name) for name in ("kafka.range", "kafka.cooperative_sticky")]
WIDTH = 30
SECOND = 10**9
SOME = ("3.2.3/s1f_key_shared_default_batching", "4.0.8/s1d_key_shared_ordering_nokey", "4.0.8/s5_failover_partitioned")


COUNTS = ("messages", "bytes", "keys", "messages_moved", "keys_moved")
DIMENSIONS = {
    "window": ("window", "consumer"),
    "consumer": ("consumer",),
    "scenario": (),
    "move": ("topic", "partition", "epoch", "before", "consumer"),
}


def levels(found: Evaluation) -> dict[str, assigned.Sums]:
    """The rows of an evaluation as ``assigned`` states them."""
    reported = {level: {} for level in DIMENSIONS}
    for row in found.rows("s"):
        counts = COUNTS[: 3 if row["level"] == "move" else 5]
        reported[row["level"]][tuple(row[d] for d in DIMENSIONS[row["level"]])] = tuple(row[c] for c in counts)
    return reported


@pytest.mark.parametrize("policy", [*EVERY, *KAFKA])
@examples(8)
@given(log=logs, reported=reported, together=together, blocks=st.sampled_from([100, 7]))
def test_an_evaluation_is_the_sum_over_messages_one_by_one(policy, log, reported, together, blocks):
    timelines = build_plan("s", policy, members(reported, together)).timelines
    profile = join_profiles(list(PROFILER.build_profiles(log.to_batches(), blocks)))
    expected = assigned.assigned(log, policy, timelines, profile.extent[0])
    evaluator = PlanEvaluator(profile, Extent(*profile.extent, WIDTH))
    for every in (False, True):
        found = evaluator.evaluate(policy, timelines, moves=every)
        assert levels(found) == assigned.summed(expected, WIDTH) | {"move": assigned.moves(expected, every)}


def test_messages_without_key_and_owner_are_reported():
    rows = [{"topic": SCOPES[0].topic, "partition": 1, "entry": i, "batch_index": -1, "at": 10 * i, "producer": "p",
             "sequence_id": i, "size": 7} for i in range(9)]  # fmt: skip
    log, policy = pa.Table.from_pylist(rows, MESSAGES), make_policy("pulsar.key_shared.auto_split", "pulsar-4.0")
    timelines = build_plan("s", policy, members(["", ""], 1)).timelines
    found = PlanEvaluator(PROFILER.build_profile(log), Extent(0, 130, WIDTH)).evaluate(policy, timelines)
    assert levels(found)["move"] == {(SCOPES[1].topic, 1, 0, None, None): (9, 63, 1)}


@pytest.mark.parametrize("recording", SOME)
def test_an_evaluation_matches_the_sum_on_recorded_traffic(recording):
    log, membership = recorded_log(recording)
    profile = join_profiles(list(PROFILER.build_profiles(log.to_batches(), 700)))
    events = build_dispatcher_events(membership, [(scope.topic, scope.partition) for scope in profile.scopes])
    first, last = profile.extent
    evaluator = PlanEvaluator(profile, Extent(first, last, SECOND))
    for name in ("key_shared.auto_split", "key_shared.consistent_hash", "failover", "shared"):
        policy = make_policy(f"pulsar.{name}", "pulsar-3.2" if recording.startswith("3") else "pulsar-4.0")
        timelines = build_plan(
            "s", policy, {scope: build_recorded_events(mine) for scope, mine in events.items()}
        ).timelines
        expected = assigned.assigned(log, policy, timelines, first)
        found = evaluator.evaluate(policy, timelines, moves=True)
        assert levels(found) == assigned.summed(expected, SECOND) | {"move": assigned.moves(expected, True)}


def recorded_log(recording):
    """The messages of a recording as ``LOG`` has them, and its membership, times in ns."""
    tables = ingested(ROOT / recording).tables
    rows = tables["messages"]
    columns = {name: rows[name] for name in COLUMNS if name != "at"}
    columns["at"] = pc.multiply(rows["publish_time"].cast(pa.int64()), 1000)
    columns["sequence_id"] = pc.coalesce(rows["batch_sequence_id"], rows["sequence_id"])
    members = tables["membership"].to_pylist()
    for row in members:
        row |= {name: round(row[name].timestamp() * 1e6) * 1000 for name in ("at", "since") if row[name] is not None}
    return pa.table([columns[field.name].cast(field.type) for field in MESSAGES], schema=MESSAGES), members


@pytest.mark.parametrize("policy", EVERY[:2])
@examples(12)
@given(log=logs, reported=reported, parts=st.integers(1, 4))
def test_parts_without_a_common_key_add_up(policy, log, reported, parts):
    timelines = build_plan("s", policy, members(reported, 1)).timelines
    profile, extent = PROFILER.build_profile(log), Extent(0, 130, WIDTH)
    found = [
        PlanEvaluator(part, extent).evaluate(policy, timelines, moves=True) for part in profile.split_by_key(parts)
    ]
    whole = PlanEvaluator(profile, extent).evaluate(policy, timelines, moves=True)
    assert levels(reduce(add, found)) == levels(whole)
