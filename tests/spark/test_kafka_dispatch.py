"""The example of a consumer group's dispatch replay, run: every record ends once, rebalances say whom they paused."""

from pathlib import Path

import pytest

from subreplay import pipeline
from subreplay.cli import main
from subreplay.config import run as config
from subreplay.config.run import Output, Traffic
from subreplay.reports.text import to_text
from subreplay.spark import lake
from tests.support.recordings import ROOT

pytestmark = pytest.mark.spark

EXAMPLE = Path(__file__).parents[2] / "conf/examples/kafka_dispatch.yaml"


@pytest.fixture(scope="module")
def replayed(spark, tmp_path_factory):
    out = tmp_path_factory.mktemp("kafka")
    assert main(["ingest", str(ROOT / "4.0.8/s5_failover_partitioned"), "--to", str(out / "in")]) == 0
    locations = {"traffic": Traffic(path=f"{out}/in"), "output": Output(tables=f"{out}/tables", report=f"{out}/report")}
    result = pipeline.whatif(spark, config.load(EXAMPLE).model_copy(update=locations))
    assert all(table.name.startswith("whatif_") for table in (out / "tables").iterdir())  # an audit's are left alone
    return result.report, lake.read(spark, f"{out}/tables", "whatif_predicted", "delta")


def test_every_record_is_accounted_for(replayed):
    report, rows = replayed
    for view in report.dispatch:
        assert view.outcomes.published == view.outcomes.acked + view.outcomes.pending == 4000
        assert max(point.waiting + point.unacked for point in view.backlog) > 0
    ended = rows.where("kind = 0 AND (settled OR outcome = 'pending')")
    positions = ended.select("scenario", "partition", "ledger", "entry", "batch_index")
    assert ended.count() == positions.distinct().count() == 4 * 4000


def test_duplicates_come_from_the_crash_and_the_rules_allow_them(replayed):
    report, _ = replayed
    for view in report.dispatch:
        assert {d.cause for d in view.duplicates} == {"a crash before the commit"}
        found = {code.code: code.count for code in view.codes if code.count}
        assert found["REDELIVERED"] == view.redeliveries > 0
        assert [code.code for code in view.codes if code.status == "violated"] == []


def test_pauses_are_told_by_partition_and_rebalance(replayed):
    report, _ = replayed
    eager, *_, static = report.dispatch
    assert all(row.place.startswith("partition ") for view in report.dispatch for row in view.blocked_hashes)
    assert {row.why.split()[0] for row in eager.blocked_hashes} == {"rebalance"}
    assert {row.why for row in static.blocked_hashes} == {"a restart"}
    assert "d" in {row.holder for row in eager.blocked_consumers}
    assert "blocked partitions" in to_text(report)
