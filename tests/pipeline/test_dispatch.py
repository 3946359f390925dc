"""The dispatch replay: every message of the log ends once, and the report tells who waits for whom."""

import polars as pl
import pytest

from subreplay.cli.main import main
from subreplay.config import run as config
from subreplay.engine.local.engine import LocalEngine
from subreplay.pipeline import story
from tests.support.recordings import ROOT
from tests.support.tables import table_of

SELECTOR = "pulsar.key_shared.consistent_hash"


@pytest.fixture(scope="module")
def replayed(tmp_path_factory):
    out = tmp_path_factory.mktemp("dispatch")
    assert main(["ingest", str(ROOT / "4.0.8/s1b_key_shared_stuck"), "--to", str(out / "in")]) == 0
    slow = {"consumers": {"service": {"model": "fixed", "time": "5ms"}, "receiver_queue_size": 50}}
    stuck = slow | {"others": {"c2": {"stuck": {"start": "1s", "end": "5s"}}}}
    cumulative = {"consumers": slow["consumers"] | {"cumulative": True}}
    scenarios = [
        {"name": "stuck on 4.0", "policy": SELECTOR, "profile": "pulsar-4.0", "dispatch": stuck},
        {"name": "stuck on 3.2", "policy": SELECTOR, "profile": "pulsar-3.2", "dispatch": stuck},
        {"name": "only owners", "policy": "pulsar.shared", "profile": "pulsar-4.0"},
        {"name": "cumulative", "policy": SELECTOR, "profile": "pulsar-4.0", "dispatch": cumulative},
    ]
    run = {
        "traffic": {"path": str(out / "in")},
        "scenarios": scenarios,
        "output": {"tables": f"{out}/tables", "report": f"{out}/report"},
    }
    with LocalEngine() as engine:
        result = story.whatif(engine, config.parse(run, "test"))
    assert all(table.name.startswith("whatif_") for table in (out / "tables").iterdir())  # an audit's are left alone
    return result.report, table_of(out, "whatif_predicted")


def test_only_the_scenarios_that_ask_for_it_are_replayed(replayed):
    report, _ = replayed
    assert [view.name for view in report.dispatch] == ["stuck on 4.0", "stuck on 3.2", "cumulative"]


def test_every_message_is_accounted_for(replayed):
    report, rows = replayed
    for view in report.dispatch[:2]:
        assert view.outcomes.published == 2500
        assert view.outcomes.acked + view.outcomes.pending == 2500
    at_an_end = pl.col("settled") | (pl.col("outcome") == "pending")
    ended = rows.filter(pl.col("scenario").str.starts_with("stuck") & (pl.col("kind") == 0) & at_an_end)
    assert ended.height == ended.select("scenario", "ledger", "entry", "batch_index").n_unique() == 5000


def test_the_other_consumers_wait_for_the_stuck_one(replayed):
    report, _ = replayed
    for view in report.dispatch[:2]:
        assert view.blocked_ns > 0
        assert {row.holder for row in view.blocked_consumers} == {"c2"}


def test_the_rules_judge_what_is_predicted_and_find_no_broken_promise(replayed):
    report, _ = replayed
    for view in report.dispatch[:2]:
        assert {code.source for code in view.codes} == {"predicted"}
        assert [code.code for code in view.codes if code.status == "violated"] == []
        assert max(point.waiting + point.unacked for point in view.backlog) > 0


@pytest.mark.row("D-ACK-1")
def test_d_ack_1_an_application_that_would_acknowledge_cumulatively_misuses_key_shared(replayed):
    report, _ = replayed
    assert "CUM_ACK_MISUSE" in [code.code for code in report.dispatch[2].codes if code.status == "violated"]
