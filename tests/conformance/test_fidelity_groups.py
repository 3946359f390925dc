"""``subreplay fidelity``: recordings of real Kafka groups re-enacted, and compared with what the groups did."""

import gzip
import json
import shutil
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from subreplay.adapters.kafka_recording.kafka_recording_adapter import read_recording
from subreplay.cli.main import main
from subreplay.conformance.fidelity_groups.group_comparison import (
    compare_group,
    find_recorded_causes,
    measure_agreement,
)
from subreplay.conformance.fidelity_groups.group_reenactment import reenact_group
from subreplay.conformance.fidelity_groups.planned_group import ASSIGNMENT_INTERVAL, build_policy
from subreplay.conformance.recordings import find_recordings

RECORDINGS = Path(__file__).parents[1] / "data/kafka_recordings"
ALL = find_recordings([RECORDINGS])
COOPERATIVE, SLOW, STATIC, LATEST, INTERVAL = ALL


@cache
def read(folder):
    return read_recording(folder)


@cache
def result(folder):
    return compare_group(read(folder), reenact_group(read(folder)))


def changed(folder, **files):
    """The figures of a recording of which the rows of some files are changed."""
    it = read(folder)
    it = replace(it, **{name: tuple(change(row) for row in getattr(it, name)) for name, change in files.items()})
    return compare_group(it, reenact_group(it))


@pytest.mark.parametrize("folder", ALL, ids=lambda f: f.name)
def test_generations_members_and_assignments_are_the_recorded_ones(folder):
    assert result(folder).generations.same
    assert result(folder).generations.recorded > 1


@pytest.mark.parametrize("folder", ALL, ids=lambda f: f.name)
def test_records_go_to_the_consumers_they_went_to_and_commits_end_as_they_did(folder):
    assert result(folder).records.same
    assert result(folder).commits.same
    assert result(folder).passed


def test_redeliveries_have_their_recorded_cause():
    assert result(COOPERATIVE).redelivered == (6, 6, 6)
    assert Counter(cause for *_, cause in find_recorded_causes(read(COOPERATIVE))) == {"revoked": 6}
    assert result(SLOW).redelivered == (50, 50, 50)
    assert Counter(cause for *_, cause in find_recorded_causes(read(SLOW))) == {"lost": 50}


def test_records_before_a_group_with_reset_latest_owned_the_partition_are_never_delivered():
    assert result(LATEST).undelivered == (62, 62, 62)


def test_targets_of_4_4_wait_for_the_assignment_interval():
    generations = [one.number for one in reenact_group(read(INTERVAL)).coordinator.generations if one.members]

    assert generations == [2, 4, 5, 6, 7]  # epochs 3 and 8 to 11 have no target of their own


def test_a_setting_of_the_group_precedes_that_of_the_broker():
    scenario = read(INTERVAL).scenario.model_copy(
        update={"group_config": {"consumer.assignment.interval.ms": 250}, "broker": {ASSIGNMENT_INTERVAL: 500}}
    )

    assert build_policy(read(INTERVAL)).assignment_interval == 1_000_000_000
    assert build_policy(replace(read(INTERVAL), scenario=scenario)).assignment_interval == 250_000_000


def test_where_a_request_may_be_handled_within_the_assignment_interval_or_after_it_its_answer_tells():
    coordinator = reenact_group(read(INTERVAL)).coordinator
    coordinator.target_at, coordinator.target_answered_at = 0, 60_000_000  # computed at 0 to 60 ms

    def may_compute(arrives_ms, is_assigned):
        coordinator.begin_request((arrives_ms + 5) * 1_000_000, coordinator.highest_epoch, is_assigned)
        return coordinator._may_compute(arrives_ms * 1_000_000)

    assert [may_compute(at, is_assigned=False) for at in (990, 1_030, 1_060)] == [False, False, True]
    assert [may_compute(at, is_assigned=True) for at in (990, 1_030, 1_060)] == [False, True, True]


def test_a_member_whose_join_was_handled_late_is_not_the_first_one():
    """The join of c1 arrives first, and its answer has the second epoch: it then gets what c2 does not have."""
    it = read(STATIC)
    late, early = (
        next(row for row in it.requests if row.consumer == name and row.request.get("memberEpoch") == 0)
        for name in ("c1", "c2")
    )

    def swap(row):
        answer = {id(late): early, id(early): late}.get(id(row), row).response["memberEpoch"]
        return row.model_copy(update={"response": row.response | {"memberEpoch": answer}} if row.error == 0 else {})

    requests = tuple(swap(row) if row in (late, early) else row for row in it.requests)
    first = reenact_group(replace(it, requests=requests)).coordinator.generations[0]

    assert first.members == (0,)
    assert reenact_group(replace(it, requests=requests)).members.processes[0].event.consumer == "c2"


def test_each_assignment_has_its_instant_and_each_consumer_its_pause():
    assert result(COOPERATIVE).find_time_error(0.5) < 50
    assert all(abs(mine - other) < 100_000_000 for mine, other in result(COOPERATIVE).pauses.values())


def test_a_member_that_leaves_earlier_has_other_generations():
    def earlier(row):
        moved = {"received_at": row.received_at - 9_000_000_000, "answered_at": row.answered_at - 9_000_000_000}
        return row.model_copy(update=moved if row.api == "leave_group" else {})

    assert not changed(SLOW, requests=earlier).passed


def test_commits_that_did_not_happen_bring_records_again():
    found = changed(COOPERATIVE, commits=lambda row: row.model_copy(update={"offset": 0}))

    assert found.redelivered.replayed > 500
    assert not found.passed


def test_a_poll_of_a_partition_that_is_not_the_members_brings_nothing():
    found = changed(SLOW, polls=lambda row: row.model_copy(update={"consumer": "c1"}))

    assert found.records.both < 0.6 * found.records.recorded
    assert not found.passed


@pytest.mark.long
def test_the_command_prints_each_recording_and_leaves_with_0(capsys):
    assert main(["fidelity", str(SLOW), str(LATEST)]) == 0
    reported = capsys.readouterr().out

    assert "k16_slow (kafka.range): generations with the same members and assignment: 4 of 4 recorded" in reported
    assert "same consumer 100.00 % of 2,550 records, same outcome of 2,086 of 2,086 commits" in reported
    assert "redelivered, with consumer and cause: 50 of 50 recorded" in reported
    assert "never delivered: 62 of 62 recorded" in reported


@pytest.mark.long
def test_the_command_exits_with_1_if_the_prediction_names_other_consumers(tmp_path):
    shutil.copytree(SLOW, tmp_path / "r")
    path = tmp_path / "r/polls.jsonl.gz"
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    with gzip.open(path, "wt") as file:
        file.writelines(json.dumps(row | {"consumer": "c1"}) + "\n" for row in rows)

    assert not measure_agreement(tmp_path / "r").passed
    assert main(["fidelity", str(tmp_path)]) == 1


def test_a_group_has_the_release_that_it_has():
    assert main(["fidelity", "--profile", "pulsar-4.2", str(SLOW)]) == 2
