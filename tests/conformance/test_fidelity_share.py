"""``subreplay fidelity``: recordings of real share groups re-enacted, and compared with what the broker did."""

import json
import shutil
from functools import cache
from pathlib import Path

import pytest

from subreplay.cli.main import main
from subreplay.conformance.fidelity_share import share_reenactment
from subreplay.conformance.fidelity_share.share_comparison import measure_share_agreement
from subreplay.conformance.recordings import find_recordings, is_share_group
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
