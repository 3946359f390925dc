"""The published table of predictions is what the program measures, and what-ifs quote it."""

from pathlib import Path

import pytest

from subreplay.conformance.prediction_table import PredictedRun, find_errors, read_predicted_runs
from subreplay.conformance.recordings import predict_recording
from subreplay.conformance.run_figures import Receipt, find_kind, measure_run
from subreplay.reports.assemble.prediction_errors import describe_prediction_errors
from subreplay.semantics.policies import REGISTRY
from tests.reports.made_reports import scenario

DATA = Path(__file__).parents[1] / "data"
HANG, SLOW = DATA / "recordings/4.0.8/s1b_key_shared_stuck", DATA / "kafka_recordings/k16_slow"


@pytest.mark.long
@pytest.mark.parametrize("folder", [HANG, SLOW], ids=lambda folder: folder.name)
def test_a_published_row_is_what_the_program_measures(folder):
    run = predict_recording(folder).run

    assert run in read_predicted_runs()


@pytest.mark.long
def test_a_consumer_that_holds_its_acknowledgements_is_predicted():
    run = predict_recording(HANG).run
    recorded, predicted = run.p99_ms

    assert recorded > 5_000
    assert predicted == pytest.approx(recorded, rel=0.02)
    assert run.load_error < 0.2


def run(load, recorded, predicted, kind="shared", complete=True):
    return PredictedRun(
        "r", "Pulsar 4.0.8", kind, complete, load, (0, 0, 0), (1, 1), (recorded, predicted), (1, 1), None
    )


def test_nine_of_ten_complete_runs_of_a_kind_are_within_the_quoted_errors():
    runs = [run(n, 1_000, 1_000 + 110 * n) for n in range(10)]
    others = [run(50, 1, 999, complete=False), run(60, 1, 999, kind="failover")]

    errors = find_errors("shared", [*runs, *others])

    assert errors is not None
    assert (errors.runs, errors.within, errors.load, errors.p99_percent) == (10, 9, 8, 88.0)
    assert find_errors("exclusive", runs) is None


def test_what_networks_take_is_no_error_of_a_percentile():
    errors = find_errors("shared", [run(0, 20, 1), run(0, 900, 999)])

    assert errors is not None
    assert errors.p99_percent == 0


def test_a_message_is_done_when_it_is_done_first_and_a_key_moves_if_two_consumers_had_it():
    figures = measure_run(
        [
            Receipt("m1", b"k", 0, "a", None),
            Receipt("m1", b"k", 0, "b", 50),
            Receipt("m1", b"k", 0, "a", 70),
            Receipt("m2", None, 20, "a", 30),
        ],
        [4, 8],
    )

    assert figures.loads == {"a": 0.75, "b": 0.25}
    assert figures.moved == {b"k"}
    assert figures.latency[0] == 30
    assert (figures.drained, figures.pause) == (50, 6)


def test_every_policy_of_a_broker_has_a_kind_with_a_name():
    unpublished = {"filtered", "key failover", "polled", "acquired", "entry buckets"}

    assert {find_kind(policy) for policy in REGISTRY.values()} - unpublished <= {
        run.kind for run in read_predicted_runs()
    }


def test_a_what_if_says_how_close_predictions_of_its_kinds_came():
    views = [scenario(name, "pulsar.key_shared.auto_split", "pulsar-4.0", [0.5, 0.5]) for name in "ab"]
    first, *others = describe_prediction_errors(views, True, {"rolling": 3.2, "steady": 0.1})

    assert first.startswith("Key_Shared: predictions came within ")
    assert "of the 99th percentile of latency" in first
    assert [text.partition(".")[0] for text in others] == [
        "rolling: a consumer's share varies by up to 3 percentage points, depending on member ids"
    ]
    assert "latency" not in describe_prediction_errors(views, False, {})[0]
