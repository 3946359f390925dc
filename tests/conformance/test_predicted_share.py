"""``subreplay fidelity --predict``: share groups predicted from their plans, beside what real brokers did."""

import json
from functools import cache
from pathlib import Path

import pytest

from subreplay.cli.main import main
from subreplay.conformance.fidelity_share.share_prediction import predict_share_group

RECORDINGS = Path(__file__).parents[1] / "data/kafka_share_recordings"


@cache
def prediction(name):
    return predict_share_group(RECORDINGS / name)


@pytest.mark.parametrize("name", ["s06_hang", "s16_leave_and_back", "s20_tx_committed", "s36_hang_limit"])
def test_the_load_of_each_consumer_is_within_five_points_or_within_what_runs_differ(name):
    it = prediction(name)
    assert it.figures.load_error <= max(5.0, it.spread)
    assert it.recorded.undelivered == it.predicted.undelivered


def test_every_record_that_a_transaction_aborted_is_never_delivered():
    it = prediction("s20_tx_committed")
    assert it.recorded.undelivered == it.predicted.undelivered == 294


def test_records_of_hanging_consumers_are_redelivered_as_often_as_recorded():
    it = prediction("s36_hang_limit")
    assert it.recorded.redelivered == it.predicted.redelivered == 60


def test_a_backlog_drains_within_a_tenth_of_the_recorded_time():
    figures = prediction("s24_few_locks").figures
    assert figures.predicted.drained == pytest.approx(figures.recorded.drained, rel=0.1)


def test_the_command_prints_a_table_of_share_groups(capsys):
    assert main(["fidelity", "--predict", str(RECORDINGS / "s30_renew"), "--json"]) == 0
    assert "load error (difference between runs)" in json.dumps(json.loads(capsys.readouterr().out))
