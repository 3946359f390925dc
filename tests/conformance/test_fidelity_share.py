"""``subreplay fidelity``: recordings of real share groups re-enacted, and compared with what the broker did."""

import json
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from subreplay.adapters.kafka_recording.share_recording import read_share_recording
from subreplay.adapters.kafka_recording.share_rows import ShareScenario
from subreplay.cli.main import main
from subreplay.conformance.fidelity_share import share_comparison, share_reenactment
from subreplay.conformance.fidelity_share.partition_requests import FetchAnswer, PartitionActions
from subreplay.conformance.fidelity_share.share_comparison import measure_share_agreement
from subreplay.conformance.fidelity_share.shared_log import SharedLog
from subreplay.conformance.fidelity_share.start_offsets import find_start
from subreplay.conformance.recordings import find_recordings, is_share_group
from subreplay.semantics.policies.kafka.assignor import TopicPartition
from subreplay.simulation.kafka.share import share_coordinator

RECORDINGS = Path(__file__).parents[1] / "data/kafka_share_recordings"
ALL = find_recordings([RECORDINGS])
HANG, BACK, COMMITTED, LOCKS, RENEW, LIMIT = ALL


@cache
def result(folder):
    return measure_share_agreement(folder)


@pytest.mark.parametrize("folder", ALL, ids=lambda f: f.name)
def test_every_record_is_acquired_by_the_recorded_member_with_the_recorded_delivery_count(folder):
    assert is_share_group(folder)
    assert result(folder).acquired.same
    assert result(folder).passed


@pytest.mark.parametrize("folder", ALL, ids=lambda f: f.name)
def test_every_state_change_start_offset_and_target_is_the_recorded_one(folder):
    agreement = result(folder)
    for counts in (agreement.released, agreement.archived, agreement.acknowledged, agreement.starts, agreement.targets):
        assert counts.same
    assert agreement.answers.same


def test_late_acknowledgements_are_refused_or_accepted_without_effect():
    assert result(HANG).released == (12, 12, 12)
    assert result(HANG).acknowledged == (900, 900, 900)
    assert result(LIMIT).released == (112, 112, 112)


def test_control_records_are_archived_and_aborted_records_leave_no_trace():
    assert result(COMMITTED).archived == (114, 114, 114)
    assert result(COMMITTED).acknowledged == (506, 506, 506)


def test_targets_with_two_member_ids_in_one_bucket_follow_the_order_of_the_coordinators_own_map():
    assert result(BACK).targets == (11, 11, 11)


def test_a_write_that_is_only_visible_as_a_snapshot_is_not_counted_as_missing(monkeypatch):
    """The coordinator replaces every 500th write by a snapshot; here it is every 25th."""

    def read(folder):
        recording, states, rows, writes = read_share_recording(folder), {}, [], 0
        for record in recording.share_state:
            value = record.decoded_value
            if record.type == "ShareUpdate":
                writes += 1
                for batch in value["stateBatches"]:
                    for offset in range(batch["firstOffset"], batch["lastOffset"] + 1):
                        states[offset] = batch["deliveryState"], batch["deliveryCount"]
                if writes % 25 == 0:
                    start = value["startOffset"]
                    while states.get(start, (0, 0))[0] >= 2:
                        start += 1
                    batches = [
                        {"firstOffset": o, "lastOffset": o, "deliveryState": state, "deliveryCount": count}
                        for o, (state, count) in sorted(states.items())
                        if o >= start
                    ]
                    value = value | {"startOffset": start, "stateBatches": batches}
                    record = record.model_copy(update={"type": "ShareSnapshot", "decoded_value": value})
            rows.append(record)
        return replace(recording, share_state=tuple(rows))

    monkeypatch.setattr(share_comparison, "read_share_recording", read)
    agreement = measure_share_agreement(LIMIT)
    assert agreement.released.same
    assert agreement.acknowledged.same
    assert 450 < agreement.acknowledged.recorded < 500


@pytest.mark.parametrize(
    ("reset", "start", "is_right"),
    [("earliest", 0, True), ("latest", 7, True), ("by_duration:PT2S", 5, True), ("by_duration:PT1S", 5, False)],
)
def test_a_partition_begins_where_its_reset_says(reset, start, is_right):
    """Offsets 0 to 9 are a second apart; the first fetch comes 7 s after the first record."""
    seconds = 10**9 * np.arange(1, 11)
    log = SharedLog(np.arange(1, 11), seconds, np.zeros(10, bool), seconds, seconds)
    scenario = ShareScenario.model_validate(
        json.loads((LIMIT / "scenario.json").read_text()) | {"group_config": {"share.auto.offset.reset": reset}}
    )
    at = 7 * 10**9 + 5 * 10**8
    answer = FetchAnswer(at, at, 0, (50,), False, 50, ((start, 9, 1),))
    name = TopicPartition("orders", 0)
    assert find_start(scenario, name, log, PartitionActions([answer], (at, at))) == (start, is_right)


def test_decisions_differ_if_locks_expire_much_later(monkeypatch):
    monkeypatch.setattr(share_reenactment, "EARLY", -30_000_000_000)
    monkeypatch.setattr(share_reenactment, "LATE", 30_000_000_000)
    agreement = measure_share_agreement(HANG)
    assert agreement.acquired.both < agreement.acquired.recorded
    assert not agreement.passed


def test_targets_differ_if_every_heartbeat_computes_one(monkeypatch):
    monkeypatch.setattr(share_coordinator.ShareCoordinator, "is_due", lambda self, now: self.target_epoch < self.epoch)
    assert not measure_share_agreement(HANG).targets.same


def test_the_command_prints_a_line_for_each_kind_of_decision_and_figures(capsys):
    assert main(["fidelity", str(HANG)]) == 0
    text = capsys.readouterr().out
    assert "100.00 % of 912 records" in text
    assert "released: 12 of 12 recorded" in text
    assert main(["fidelity", str(HANG), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert "same_acquisitions_percent" in json.dumps(figures)


def test_a_missing_file_is_named(tmp_path, capsys):
    folder = tmp_path / "s06_hang"
    shutil.copytree(HANG, folder)
    (folder / "batches.jsonl.gz").unlink()
    assert main(["fidelity", str(folder)]) != 0
    assert "batches.jsonl" in capsys.readouterr().err
