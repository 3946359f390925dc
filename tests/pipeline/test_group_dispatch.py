"""The example of a consumer group's dispatch replay, run: every record ends once, rebalances say whom they paused."""

from pathlib import Path

import polars as pl
import pytest

from subreplay.cli.main import main
from subreplay.pipeline import story
from subreplay.reports.text import to_text
from tests.support.recordings import ROOT
from tests.support.tables import table_of

EXAMPLE = Path(__file__).parents[2] / "conf/examples/kafka_dispatch.yaml"


@pytest.fixture(scope="module")
def replayed(tmp_path_factory):
    """The report of the command, and its table of what is predicted."""
    out, results, whatif = tmp_path_factory.mktemp("kafka"), [], story.whatif
    assert main(["ingest", str(ROOT / "4.0.8/s5_failover_partitioned"), "--to", str(out / "in")]) == 0

    def kept(*given):
        results.append(whatif(*given))
        return results[0]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(story, "whatif", kept)
        assert main(["whatif", "--config", str(EXAMPLE), "--tables", str(out / "in"), "--out", str(out)]) == 0
    assert all(table.name.startswith("whatif_") for table in (out / "tables").iterdir())  # an audit's are left alone
    return results[0].report, table_of(out, "whatif_predicted")


def test_every_record_is_accounted_for(replayed):
    report, rows = replayed
    for view in report.dispatch:
        assert view.outcomes.published == view.outcomes.acked + view.outcomes.pending == 4000
        assert max(point.waiting + point.unacked for point in view.backlog) > 0
    ended = rows.filter((pl.col("kind") == 0) & (pl.col("settled") | (pl.col("outcome") == "pending")))
    positions = ended.select("scenario", "partition", "ledger", "entry", "batch_index")
    assert ended.height == positions.n_unique() == 4 * 4000


def test_duplicates_come_from_the_crash_and_the_rules_allow_them(replayed):
    report, _ = replayed
    for view in report.dispatch:
        assert {d.cause for d in view.duplicates} == {"a crash before the commit"}
        found = {code.code: code.count for code in view.codes if code.count}
        assert found["REDELIVERED"] == view.redeliveries > 0
        assert [code.code for code in view.codes if code.status == "violated"] == []


def test_pauses_are_listed_by_partition_and_rebalance(replayed):
    report, _ = replayed
    eager, *_, static = report.dispatch
    assert all(row.place.startswith("partition ") for view in report.dispatch for row in view.blocked_hashes)
    assert {row.why.split()[0] for row in eager.blocked_hashes} == {"rebalance"}
    assert {row.why for row in static.blocked_hashes} == {"a restart"}
    assert "d" in {row.holder for row in eager.blocked_consumers}
    assert "blocked partitions" in to_text(report)
