"""What no adapter reads is named for what it is, with what to export instead; what is read is not taken for it."""

import json
from pathlib import Path

import pytest

from subreplay.adapters.format_detection import (
    detect_adapter,
    detect_file_format,
    explain_unsupported_file,
    select_files,
)
from subreplay.adapters.unsupported_exports import CLIENT_LOGS, UNSUPPORTED
from subreplay.errors import InputError

DATA = Path(__file__).parents[1] / "data"
CLIENT = "2024-03-12T09:15:04,413+0000 [io-1] INFO  org.apache.pulsar.client.impl.ConsumerImpl - [t][s] Subscribed"
INTERNAL = {"entriesAddedCounter": 20, "lastConfirmedEntry": "4:7", "cursors": {"billing": {"active": True}}}
EXPORTS = {
    "pulsar-client-consume": [
        f"{CLIENT}\n----- got message -----\npublishTime:[17], eventTime:[0], key:[a], properties:[], content:x",
        "----- got message -----\nkey:[a], properties:[], content:x",
        "publishTime:[1710234905123], eventTime:[0], key:[null], properties:[], content:x",
    ],
    "pulsar-peek-messages": ["Message ID: 12:0\nPublish time: 17\n", "Batch Message ID: 12:0:0\nEvent time: 0\n"],
    "pulsar-stats-internal": [json.dumps(INTERNAL, indent=2), json.dumps(INTERNAL)],
    "prometheus": [
        '# TYPE pulsar_back_log gauge\npulsar_back_log{topic="t"} 13.0',
        "# HELP kafka_lag lag\n# TYPE kafka_lag gauge\nkafka_lag 7",
        'pulsar_unacked{topic="persistent://a/b/c",subscription="s"} 1.3E4',
        'pulsar_unacked{topic="t"} NaN 1795311529891',
        '{"status":"success","data":{"resultType":"matrix","result":[]}}',
    ],
    "loki-answer": ['{"status":"success","data":{"resultType":"streams","result":[]}}'],
    "kafka-consumer-groups": [
        "\nGROUP TOPIC PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  CONSUMER-ID  HOST  CLIENT-ID\ng t 0 1 1 0 - - -",
        "TOPIC   PARTITION  CURRENT-OFFSET\nt 0 1",
        "GROUP           CONSUMER-ID     HOST   CLIENT-ID  #PARTITIONS",
        "GROUP   COORDINATOR (ID)  ASSIGNMENT-STRATEGY  STATE  #MEMBERS",
        "GROUP TOPIC PARTITION NEW-OFFSET\ng t 0 7",
        "GROUP        billing\nCOORDINATOR  0\nSTATE        Stable\n",
        "Consumer group 'g' has no active members.\n\nGROUP  TOPIC  PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG",
    ],
    "kafka-topics": [
        "Topic: orders\tTopicId: aBc-1\tPartitionCount: 3\tReplicationFactor: 1\tConfigs: ",
        "Topic:orders\tPartitionCount:3\tReplicationFactor:1",
        "Metadata for all topics (from broker 1: b:9092/1):\n 1 brokers:",
    ],
    "pulsar-perf": [
        "12:00:00.000 [main] INFO  o.a.p.testclient.PerformanceConsumer - Throughput received: 7 msg --- 1 msg/s"
    ],
    "kafka-get-offsets": ["orders:0:12\norders:1:17\n"],
    "kafka-printed-offsets": ["[g,orders,0]::OffsetAndMetadata(offset=7, leaderEpoch=Optional.empty)"],
    "kafka-console-consumer": ["CreateTime:1584680012228\tk\tv", "Partition:0\tk\tv", "NO_TIMESTAMP\tk\tv"],
    "kcat-text": ["Topic orders [0] at offset 7: key k: v", "orders [0] at offset 7"],
    "pulsar-client-log": [CLIENT],
    "kafka-client-log": [
        "[2026-11-20 10:00:00,123] INFO [Consumer clientId=c, groupId=g] Seeking "
        "(org.apache.kafka.clients.consumer.internals.SubscriptionState)",
    ],
}


def test_every_export_is_here():
    assert EXPORTS.keys() == {*UNSUPPORTED, *CLIENT_LOGS}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in EXPORTS.items() for text in texts])
def test_an_export_is_named_with_what_to_export_instead(tmp_path, name, text):
    path = tmp_path / "x.txt"
    path.write_text(text)
    assert detect_file_format(path) == name
    assert detect_adapter(path) is None
    export = (UNSUPPORTED | CLIENT_LOGS)[name]
    assert explain_unsupported_file(path) == f"this is {export.title}. {export.remedy}"
    with pytest.raises(InputError, match=r"adapter pulsar-stats cannot read x\.txt, because it is "):
        select_files(path, "pulsar-stats")


@pytest.mark.parametrize(
    "text",
    [
        "", "one,two\n1,2\n", '{"topic": "t", "note": "# TYPE x"}\n', "orders:0:12\nno offset\n",
        "a text about a TOPIC\n",
        '{"key": "GROUP", "value": "lastConfirmedEntry"}\n',
    ],
)  # fmt: skip
def test_other_files_are_none_of_these(tmp_path, text):
    (tmp_path / "x.txt").write_text(text)
    assert explain_unsupported_file(tmp_path / "x.txt") is None


@pytest.mark.parametrize("path", sorted(DATA.rglob("*.gz")), ids=lambda path: path.name)
def test_recorded_files_are_none_of_these(path):
    assert explain_unsupported_file(path) is None


def test_the_verbose_form_of_kcat_is_named_with_the_command_that_writes_json(tmp_path):
    path = tmp_path / "orders.txt"
    path.write_text("\nKey (2 bytes): k1\nValue (3 bytes): abc\nTimestamp: 1\tPartition: 0\tOffset: 4\n--\n")
    assert "kcat -C -e -J" in explain_unsupported_file(path)
