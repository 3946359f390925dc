"""The dispatch replay of scenarios whose producers choose other partitions than the recorded ones did."""

from collections import Counter

import polars as pl
import pytest

from subreplay.cli.main import main
from subreplay.config import run as config
from subreplay.engine.local.engine import LocalEngine
from subreplay.pipeline import story
from tests.support.recordings import ROOT
from tests.support.tables import table_of

MEMBERS = [{"consumer": name} for name in "abc"]
ROUTINGS = {"six": {"partitions": 6}, "murmur": {"hashing": "Murmur3_32Hash"}, "recorded ones": {}}


def build(policy, profile):
    """Each routing once with a replay and once without one."""
    common = {"policy": policy, "profile": profile, "members": MEMBERS}
    return [
        scenario
        for name, routing in ROUTINGS.items()
        for scenario in (
            {"name": name, **common, **routing, "dispatch": {}},
            {"name": f"owners of {name}", **common, **routing},
        )
    ]


@pytest.fixture(scope="module", params=[("pulsar.failover", "pulsar-4.0"), ("kafka.range", "kafka-4.0")])
def replayed(request, tmp_path_factory):
    """The report, and the predicted deliveries."""
    out = tmp_path_factory.mktemp("rerouted")
    assert main(["ingest", str(ROOT / "4.0.8/s5_failover_partitioned"), "--to", str(out / "in")]) == 0
    run = {
        "traffic": {"path": str(out / "in")},
        "scenarios": build(*request.param),
        "output": {"tables": f"{out}/tables", "report": f"{out}/report"},
    }
    with LocalEngine() as engine:
        report = story.whatif(engine, config.parse(run, "test")).report
    rows = table_of(out, "whatif_predicted").filter((pl.col("kind") == 0) & (pl.col("outcome") == "acked"))
    return report, rows


def test_every_message_is_delivered_in_a_partition_of_the_scenario(replayed):
    _, rows = replayed
    for name, partitions in (("six", 6), ("murmur", 4)):
        mine = rows.filter(pl.col("scenario") == name)
        assert mine.height == mine.select("partition", "ledger", "entry").n_unique() == 4000
        assert set(mine["partition"]) == set(range(partitions))
        for (_,), of_partition in mine.sort("partition", "entry").group_by(["partition"], maintain_order=True):
            assert of_partition["entry"].to_list() == [*range(of_partition.height)]
            assert of_partition["at"].is_sorted()


def test_messages_go_to_the_consumers_that_own_them_without_a_replay(replayed):
    report, rows = replayed
    for name in ROUTINGS:
        (owners,) = [view for view in report.scenarios if view.name == f"owners of {name}"]
        owned = {each.consumer: each.messages for each in owners.per_consumer if each.messages}
        assert Counter(rows.filter(pl.col("scenario") == name)["consumer"].to_list()) == owned


def test_no_rule_finds_a_violation_in_what_is_predicted(replayed):
    report, _ = replayed
    for view in report.dispatch:
        assert [code.code for code in view.codes if code.status == "violated"] == []
