"""The records of share groups, decoded as Kafka's own classes decode them."""

import base64
import gzip
import json
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from subreplay.adapters.format_detection import detect_adapter
from subreplay.adapters.kafka_group.group_records import decode_record
from subreplay.adapters.kafka_group.protocol_bytes import MalformedBytes
from subreplay.adapters.kafka_group.share_state import RECORD_STATES, decode_share_state
from subreplay.cli.main import main
from tests.support.share_groups import RECORDED, folder_of, read

TABLES = {
    "ShareGroupMemberMetadata": "share_members",
    "ShareGroupMetadata": "share_epochs",
    "ShareGroupTargetAssignmentMetadata": "share_target_epochs",
    "ShareGroupTargetAssignmentMember": "share_targets",
    "ShareGroupCurrentMemberAssignment": "share_assignments",
    "ShareGroupStatePartitionMetadata": "share_partitions",
}


def records(folder: Path, name: str):
    """The key, the value and the row of each record."""
    for line in gzip.decompress((folder / f"{name}.jsonl.gz").read_bytes()).splitlines():
        row = json.loads(line)
        yield base64.b64decode(row["key"]), None if row["value"] is None else base64.b64decode(row["value"]), row


def of_ids(topics):
    return [{"topic_id": t["topicId"], "partition": p} for t in topics for p in t["partitions"]]


def named(topics):
    return [
        {"topic_id": t["topicId"], "topic": t["topicName"], "partition": p} for t in topics for p in t["partitions"]
    ]


def expected(kind, value):
    """The columns of a value, as Kafka's classes decode it."""
    if kind == "ShareGroupMemberMetadata":
        names = {
            "rackId": "rack",
            "clientId": "client_id",
            "clientHost": "client_host",
            "subscribedTopicNames": "topics",
        }
        return {ours: value[theirs] for theirs, ours in names.items()}
    if kind == "ShareGroupMetadata":
        return {"epoch": value["epoch"], "metadata_hash": value["metadataHash"]}
    if kind == "ShareGroupTargetAssignmentMetadata":
        at = value.get("assignmentTimestamp")
        return {"epoch": value["assignmentEpoch"], "computed_at": at * 1_000 if at else None}
    if kind == "ShareGroupTargetAssignmentMember":
        return {"assignment": of_ids(value["topicPartitions"])}
    if kind == "ShareGroupCurrentMemberAssignment":
        epochs = {"epoch": value["memberEpoch"], "previous_epoch": value["previousMemberEpoch"]}
        return epochs | {"state": "stable", "assigned": of_ids(value["assignedPartitions"])}
    return {"initializing": named(value["initializingTopics"]), "initialized": named(value["initializedTopics"])}


@pytest.mark.parametrize("folder", RECORDED, ids=lambda folder: folder.name)
def test_every_group_record_is_decoded_as_kafka_decodes_it(folder):
    seen = Counter()
    for key, value, row in records(folder, "consumer_offsets"):
        if row["type"] not in TABLES:
            continue
        table, decoded = decode_record(key, value)
        assert (table, decoded["group"]) == (TABLES[row["type"]], row["decoded_key"]["groupId"])
        wanted = {} if value is None else expected(row["type"], row["decoded_value"])
        assert {name: decoded[name] for name in wanted} == wanted
        seen[table] += 1
    assert seen.keys() == set(TABLES.values())


@pytest.mark.parametrize("folder", RECORDED, ids=lambda folder: folder.name)
def test_every_state_of_a_share_partition_is_decoded_as_kafka_decodes_it(folder):
    for key, value, row in records(folder, "share_group_state"):
        decoded, wanted = decode_share_state(key, value), row["decoded_value"] or {}
        assert decoded["snapshot"] == (row["type"] == "ShareSnapshot")
        assert [decoded[name] for name in ("group", "topic_id", "partition")] == [*row["decoded_key"].values()]
        assert (decoded["start_offset"] is None) == (wanted.get("startOffset", -1) < 0)
        assert decoded["complete"] == wanted.get("deliveryCompleteCount") or decoded["complete"] is None
        assert [[*batch.values()] for batch in decoded["batches"]] == [
            [b["firstOffset"], b["lastOffset"], RECORD_STATES[b["deliveryState"]], b["deliveryCount"]]
            for b in wanted.get("stateBatches", ())
        ]


def test_damaged_states_name_the_rule_that_they_break():
    key, value, _ = next(records(folder_of("s06"), "share_group_state"))
    for data, rule in (((b"\0\7" + key[2:], value), "key version 7"), ((key, b"\0\1" + value[2:]), "value version 1")):
        with pytest.raises(MalformedBytes, match=rule):
            decode_share_state(*data)
    with pytest.raises(MalformedBytes, match="must not end early"):
        decode_share_state(key, value[:-4])


def test_copies_of_consumer_offsets_give_the_members_of_a_share_group(tmp_path):
    folder = tmp_path / "copies"
    folder.mkdir()
    name = "consumer_offsets.jsonl.gz"
    (folder / name).write_bytes((folder_of("s38") / name).read_bytes())

    assert (
        main(["ingest", str(folder), "--from", "kafka-group", "--to", str(tmp_path / "to"), "--format", "parquet"]) == 0
    )
    rows = pq.read_table(tmp_path / "to" / "membership").to_pylist()
    assert Counter(row["event"] for row in rows) == {"join": 4, "leave": 4}
    assert {row["type"] for row in rows} == {"share"}
    assert "policy: kafka.share" in (tmp_path / "to" / "audit.yaml").read_text()


def copies_of(folder: Path):
    """Both topics in one copy, as Spark's Kafka source reads them."""
    for topic, name in (("__consumer_offsets", "consumer_offsets"), ("__share_group_state", "share_group_state")):
        for key, value, row in records(folder, name):
            at = datetime.fromtimestamp(row["timestamp"] / 1_000, timezone.utc)
            yield {"key": key, "value": value, "topic": topic, "partition": 0, "offset": row["offset"], "timestamp": at}


def test_copies_of_the_states_give_the_start_offsets_of_a_share_group(tmp_path):
    folder = tmp_path / "copies"
    folder.mkdir()
    rows = [*copies_of(folder_of("s38"))]
    pq.write_table(pa.Table.from_pylist([*rows, rows[-1]]), folder / "part.parquet")  # the last one twice

    assert detect_adapter(folder) == "kafka-group"
    assert (
        main(["ingest", str(folder), "--from", "kafka-group", "--to", str(tmp_path / "to"), "--format", "parquet"]) == 0
    )
    found = pq.read_table(tmp_path / "to" / "deliveries").to_pylist()
    wanted = [row for row in read("s38").tables["deliveries"].to_pylist() if row["ack_type"] == "Commit"]
    names = ("topic", "partition", "entry", "acked_at", "consumer", "ack_type")
    assert len(found) == len(wanted) > 600
    assert {tuple(row[name] for name in names) for row in found} == {
        tuple(row[name] for name in names) for row in wanted
    }


def test_a_state_that_cannot_be_decoded_is_quarantined(tmp_path, capsys):
    folder = tmp_path / "copies"
    folder.mkdir()
    rows = [*copies_of(folder_of("s06"))]
    pq.write_table(pa.Table.from_pylist([*rows[:-1], rows[-1] | {"value": b"\0\5"}]), folder / "part.parquet")
    assert (
        main(["ingest", str(folder), "--from", "kafka-group", "--to", str(tmp_path / "to"), "--format", "parquet"]) == 0
    )
    assert "part.parquet, row 139: value = 0:95: value version 5 must be 0" in capsys.readouterr().err
