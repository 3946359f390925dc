"""The example of a share group's dispatch replay, run: nobody is idle, and every record ends once."""

from pathlib import Path

import polars as pl
import pytest

from subreplay.cli.main import main
from subreplay.pipeline import story
from tests.support.recordings import ROOT
from tests.support.tables import table_of

EXAMPLE = Path(__file__).parents[2] / "conf/examples/share_group.yaml"


@pytest.fixture(scope="module")
def replayed(tmp_path_factory):
    """The report of the command, and its table of what is predicted."""
    out, results, whatif = tmp_path_factory.mktemp("share"), [], story.whatif
    assert main(["ingest", str(ROOT / "4.0.8/s5_failover_partitioned"), "--to", str(out / "in")]) == 0

    def kept(*given):
        results.append(whatif(*given))
        return results[0]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(story, "whatif", kept)
        assert main(["whatif", "--config", str(EXAMPLE), "--tables", str(out / "in"), "--out", str(out)]) == 0
    return results[0].report, table_of(out, "whatif_predicted")


def test_every_record_is_accounted_for(replayed):
    report, rows = replayed
    for view in report.dispatch:
        ends = view.outcomes
        assert ends.published == ends.acked + ends.dropped + ends.pending == 4000
    ended = rows.filter((pl.col("kind") == 0) & (pl.col("settled") | (pl.col("outcome") == "pending")))
    assert ended.height == ended.select("scenario", "partition", "entry", "ledger").n_unique() == 3 * 4000


def test_no_member_of_a_share_group_is_idle_and_the_backlog_is_smaller(replayed):
    report, rows = replayed
    group, share, _ = report.dispatch
    assert share.backlog_max < group.backlog_max
    taken = rows.filter((pl.col("kind") == 0) & pl.col("consumer").is_not_null())
    by_scenario = taken.group_by("scenario").agg(pl.col("consumer").n_unique())
    consumers = dict(by_scenario.iter_rows())
    assert consumers["share group"] == 6
    assert consumers["consumer group"] < 6


def test_released_and_rejected_records_have_their_own_words(replayed):
    report, _ = replayed
    *_, mixed = report.dispatch
    assert mixed.outcomes.dropped > 0
    assert "a release" in {one.cause for one in mixed.duplicates}
    settings = dict(mixed.settings)
    assert settings["lock duration"] == "5 s"
    assert settings["delivery limit"] == "3"


def test_predicted_deliveries_keep_the_guarantees_of_a_share_group(replayed):
    report, _ = replayed
    for view in report.dispatch[1:]:
        assert [code.code for code in view.codes if code.count and code.status == "violated"] == []
