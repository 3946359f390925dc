"""Recordings of a real group against the prediction of their plans, and rebalance by rebalance."""

from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path

import pytest

from subreplay.adapters.kafka_recording.kafka_recording_adapter import read_recording
from subreplay.cli.main import main
from subreplay.conformance.fidelity_groups.derived_instants import derive_instants, find_median_error
from subreplay.conformance.fidelity_groups.group_comparison import list_recorded_decisions
from subreplay.conformance.fidelity_groups.group_prediction import compare_prediction, play_plan
from subreplay.conformance.fidelity_groups.partition_owners import (
    FetchInterval,
    build_recorded_intervals,
    list_pauses,
    measure_agreement_time,
    measure_possible_owners,
)
from subreplay.conformance.fidelity_groups.planned_group import list_runs, plan_group
from subreplay.conformance.fidelity_groups.run_agreement import compare_runs, measure_distance, measure_variation
from subreplay.conformance.fidelity_groups.service_times import build_service, generate_java_doubles
from subreplay.semantics.policies.kafka.assignor import TopicPartition

RECORDINGS = Path(__file__).parents[1] / "data/kafka_recordings"
COOPERATIVE, SLOW, STATIC = (RECORDINGS / n for n in ("k02_cooperative", "k16_slow", "k32_modern_static"))
ALL = (COOPERATIVE, SLOW, STATIC)
INTERVAL = RECORDINGS / "y02_uniform_3_to_5"
MS = 1_000_000
P = TopicPartition("t", 0)


@cache
def read(folder):
    return read_recording(folder)


@cache
def predicted(folder, starts=True):
    return compare_prediction(read(folder), play_plan(read(folder), plan_group(read(folder), starts=starts)))


@pytest.mark.parametrize("folder", ALL, ids=lambda f: f.name)
def test_a_plan_alone_predicts_generations_with_members_and_assignment(folder):
    found = predicted(folder, starts=False)

    assert found.right == found.recorded == found.predicted
    assert found.agreeing > 95
    assert found.at_owner > 0.97 * found.polls


@pytest.mark.parametrize("folder", [COOPERATIVE, SLOW], ids=lambda f: f.name)
def test_the_first_generation_of_a_plan_is_there_within_200_ms(folder):
    assert abs(predicted(folder, starts=False).delays[0]) < 200 * MS


def test_a_partition_that_moves_cooperatively_pauses_for_one_heartbeat_interval_on_both_sides():
    for side in predicted(COOPERATIVE).pauses:
        long = [pause for pause in side if pause > 1_000 * MS]
        assert all(2_900 * MS < pause < 3_200 * MS for pause in long)
        assert long


def test_redeliveries_after_max_poll_interval_are_predicted():
    recorded, again, both = predicted(SLOW).redelivered

    assert recorded == 50
    assert both >= 45
    assert again <= 55


def test_nothing_is_left_unseen():
    assert {predicted(folder).undelivered for folder in ALL} == {(0, 0, 0)}


@pytest.mark.parametrize("folder", ALL, ids=lambda f: f.name)
def test_the_coordinators_of_the_recordings_decided_as_they_must(folder):
    assert not any(one.differences for one in list_recorded_decisions(read(folder)))
    assert predicted(folder).differing == 0


def test_a_wrong_plan_is_reported():
    it = read(SLOW)
    first, *others = it.scenario.consumers
    wrong = it.scenario.model_copy(update={"consumers": (first, *others[1:])})

    assert compare_prediction(it, play_plan(it, plan_group(replace(it, scenario=wrong)))).agreeing < 80


def test_rebalances_are_derived_from_what_was_before_them():
    found = [one for folder in (COOPERATIVE, SLOW) for one in derive_instants(read(folder))]

    assert find_median_error(found, "told") < 10
    assert find_median_error(found, "joined") < 20
    assert find_median_error(found, "complete") < 25
    assert find_median_error(found, "assigned") < 25
    assert {one.what for one in found} == {"told", "joined", "complete", "assigned"}


def test_under_the_consumer_protocol_it_is_derived_when_members_give_up_and_take():
    found = derive_instants(read(STATIC))

    assert find_median_error(found, "revoked") < 100
    assert find_median_error(found, "assigned") < 150


def test_a_rebalance_that_members_learn_one_heartbeat_later_is_off_by_as_much():
    it = read(SLOW)
    later = tuple(
        row.model_copy(
            update={"received_at": row.received_at + 1_000 * MS, "answered_at": row.answered_at + 1_000 * MS}
        )
        if (row.api == "heartbeat" and row.error == 27) or row.response.get("generationId", 0) > 1
        else row
        for row in it.requests
    )

    assert find_median_error(derive_instants(replace(it, requests=later)), "told") > 900


def test_a_plan_contains_the_service_time_of_each_record():
    one = read(SLOW).scenario.consumers[0]
    work = build_service(one.service_us, one.seed, 3).times_ns
    polls = [row for row in read(SLOW).polls if row.consumer == "c1"][:3]
    begins = [polls[0].polled_at, *(row.processed_at for row in polls[:-1])]
    did = [row.processed_at - begin for row, begin in zip(polls, begins, strict=True)]

    assert all(abs(mine - other) < 2 * MS for mine, other in zip(work, did, strict=True))
    assert list(islice(generate_java_doubles(42), 2)) == [
        0.7275636800328681,
        0.6832234717598454,
    ]  # as a JVM prints them


@pytest.mark.long
def test_predictions_are_tabulated_for_each_system(capsys):
    assert main(["fidelity", "--predict", str(SLOW)]) == 0
    printed = capsys.readouterr().out.splitlines()
    row = next(line for line in printed if line.startswith("| k16_slow | range"))
    page = (Path(__file__).parents[2] / "docs/explanation/predictions.md").read_text(encoding="utf-8")

    assert "4 of 4" in row
    assert row in page  # made by this command


def test_a_stuck_member_owns_its_partitions_by_its_callbacks_until_it_polls_again():
    it = read(SLOW)
    intervals = build_recorded_intervals(it.client_events, True, max(row.at for row in it.client_events))
    stuck = next(one for one in intervals[TopicPartition("orders", 2)] if one.consumer == "c2")
    other = next(one for one in intervals[TopicPartition("orders", 2)] if one.consumer == "c1")

    assert stuck.end > other.start + 4_000 * MS


@pytest.mark.parametrize(
    ("recorded", "predicted_", "right"),
    [
        ([FetchInterval(0, 10, "a")], [FetchInterval(0, 10, "a")], 10),
        ([FetchInterval(0, 10, "a")], [FetchInterval(0, 4, "a"), FetchInterval(4, 10, "b")], 4),
        ([FetchInterval(0, 4, "a")], [], 6),
        (
            [FetchInterval(0, 8, "a"), FetchInterval(4, 10, "b")],
            [FetchInterval(0, 5, "a"), FetchInterval(5, 10, "b")],
            10,
        ),
    ],
)
def test_owners_agree_where_the_predicted_one_is_one_of_the_recorded(recorded, predicted_, right):
    assert measure_agreement_time({P: recorded}, {P: predicted_}, 0, 10) == (right, 10)


def test_the_typical_run_agrees_best_with_the_others_and_chance_allows_what_they_agree_in():
    usual, late, other = ({P: [FetchInterval(start, 10, name)]} for start, name in ((0, "a"), (1, "a"), (0, "b")))

    assert compare_runs([other, late, usual], 0, 10) == (1, 0.0, 90.0)
    assert compare_runs([late, usual, other], 0, 10).typical == compare_runs([usual, late, other], 0, 10).typical == 0
    assert compare_runs([usual], 0, 10) == (0, 100.0, 100.0)


def test_a_recorded_owner_is_compared_with_those_of_every_run():
    early, late = ({P: [FetchInterval(0, end, "a"), FetchInterval(end, 10, "b")]} for end in (4, 6))
    recorded = {P: [FetchInterval(0, 7, "a"), FetchInterval(7, 9, "b")]}

    # a owns it at 6 in no run, and nobody does at 9; between 4 and 6 there are two possible owners
    assert measure_possible_owners(recorded, [early, late], 0, 10) == (80.0, 1.2)


def test_a_recorded_load_is_compared_with_the_nearest_run():
    runs = [{"a": 0.5, "b": 0.5}, {"a": 0.7, "b": 0.3}]

    assert measure_distance({"a": 0.6, "b": 0.4}, runs) == 0
    assert measure_distance({"a": 0.75, "b": 0.2, "c": 0.05}, runs) == pytest.approx(10)
    assert measure_variation([{"a": 1.0}] * 10 + [{"b": 1.0}] * 10) == 100


def test_runs_with_other_ids_differ_in_who_gets_which_partition():
    runs = [play_plan(read(INTERVAL), plan) for plan in list_runs(read(INTERVAL), 3, draws="ids")]
    joins = [[process.joined_at for process in run.plan.replay.members.processes] for run in runs]

    assert joins[0] == joins[1] == joins[2]
    assert runs[0].owners != runs[1].owners != runs[2].owners


def test_consumers_of_one_process_join_in_turn_however_long_each_takes_to_start():
    it = read(STATIC)

    for plan in list_runs(it, 5):
        c1, c2, c3 = (process.joined_at for process in play_plan(it, plan).plan.replay.members.processes[:3])
        assert min(c2 - c1, c3 - c2) >= 50 * MS


def test_a_pause_is_between_two_owners():
    assert list_pauses({P: [FetchInterval(0, 3, "a"), FetchInterval(5, 6, "b"), FetchInterval(6, 9, "a")]}) == [2]
