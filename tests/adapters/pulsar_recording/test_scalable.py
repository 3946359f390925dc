"""Recordings of scalable topics: the rows of a client of version 5, segments as partitions, and what an audit says."""

import gzip
import json
import shutil
from pathlib import Path

import pytest

from subreplay.adapters import ADAPTERS
from subreplay.adapters.broker_log.broker_logs import NAME
from subreplay.adapters.pulsar_recording.scalable_topics import read_segments
from subreplay.cli.main import main
from subreplay.conformance.fidelity.fidelity_measure import measure_fidelity
from subreplay.rows.model.segments import Segment
from tests.support.source_reading import read_at_once

ROOT = Path(__file__).parents[2] / "data" / "recordings-scalable" / "5.0.1"
JOINS, SPLIT = ROOT / "sca", ROOT / "scsplit"


def audited(folder, tmp_path):
    """The exit code of an audit, and its counts by rule."""
    ingest = ["ingest", str(folder), "--to", str(tmp_path / "in"), "--quiet"]
    assert main(ingest) == 0
    code = main(["audit", "--config", str(tmp_path / "in/audit.yaml"), "--out", str(tmp_path / "out"), "--quiet"])
    report = json.loads((tmp_path / "out/report/report.json").read_text())
    return code, {rule["code"]: rule["count"] for rule in report["codes"] if rule["count"]}


def changed(folder, tmp_path, table, change):
    """A copy of a recording with changed rows of one file."""
    copy = tmp_path / "changed"
    shutil.copytree(folder, copy)
    with gzip.open(folder / f"{table}.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    change(rows)
    with gzip.open(copy / f"{table}.jsonl.gz", "wt", encoding="utf-8") as lines:
        lines.writelines(f"{json.dumps(row)}\n" for row in rows)
    return copy


def test_the_layouts_give_the_segments_of_a_split():
    created, at = 1795892779858 * 10**6, 1795892791120 * 10**6
    assert read_segments(SPLIT) == (
        Segment(0, 0, 65535, 4, (), created, at),
        Segment(1, 0, 32767, 2, (0,), at),
        Segment(2, 32768, 65535, 2, (0,), at),
    )


def test_segments_are_partitions_and_consumers_have_the_names_of_their_applications():
    found = ADAPTERS["pulsar-recording"](SPLIT)
    assert found.rejected == ()
    deliveries = found.tables["deliveries"]
    assert set(zip(deliveries["topic"].to_pylist(), deliveries["partition"].to_pylist(), strict=True)) == {
        ("topic://public/default/sc-split", segment) for segment in range(3)
    }
    assert set(deliveries["consumer"].to_pylist()) == {"s1", "s2", "s3"}
    assert set(found.tables["membership"]["event"].to_pylist()) == {"join", "leave", "rejected"}
    assert found.run["subscription"]["policy"] == "pulsar.scalable.stream"
    assert found.run["subscription"]["profile"] == "pulsar-5.0"
    assert [segment["buckets"] for segment in found.run["topic"]["segments"]] == [4, 2, 2]


@pytest.mark.parametrize(("folder", "dispatches"), [(JOINS, 674), (SPLIT, 624)])
def test_every_dispatch_goes_to_the_owner_of_its_bucket(folder, dispatches):
    result = measure_fidelity(folder)
    assert (result.compared, result.same_consumer, result.exempt) == (dispatches, 100, 0)
    assert result.same_count == 100


@pytest.mark.parametrize("folder", [JOINS, SPLIT])
def test_an_audit_finds_every_guarantee_kept(folder, tmp_path):
    assert audited(folder, tmp_path) == (0, {})


def test_a_message_at_the_owner_of_another_bucket_is_found(tmp_path):
    def change(events):
        for event in [e for e in events if e["ev"] == "dispatch" and e["consumer"] == "w2-seg-0"][100:110]:
            other = next(e for e in events if e["ev"] == "dispatch" and e["consumer"] == "w1-seg-0")
            event.update({name: other[name] for name in ("consumer", "cnx", "consumer_id") if name in other})

    code, counts = audited(changed(JOINS, tmp_path, "broker_events", change), tmp_path)
    assert code == 1
    assert counts["WRONG_OWNER"] >= 10


def test_a_child_that_is_served_before_its_parent_has_drained_breaks_the_order_of_keys(tmp_path):
    def change(events):
        last = [event for event in events if event["ev"] == "ack" and event["topic"].endswith("-0")][-1]
        last |= {name: max(event[name] for event in events) + 1 for name in ("t_ns", "seq")}

    code, counts = audited(changed(SPLIT, tmp_path, "broker_events", change), tmp_path)
    assert (code, counts["KEY_ORDER"]) == (1, 2)


def test_the_log_gives_the_deliveries_of_the_recording():
    found = read_at_once(NAME, SPLIT / "broker.log.gz")
    columns = ["partition", "ledger", "entry", "batch_index", "consumer", "redelivery_count", "ack_type"]
    logged, recorded = (
        sorted(map(tuple, (row.values() for row in table.select(columns).to_pylist())))
        for table in (found.tables["deliveries"], ADAPTERS["pulsar-recording"](SPLIT).tables["deliveries"])
    )
    assert logged == recorded
    assert found.run["subscription"]["policy"] == "pulsar.scalable.stream"
