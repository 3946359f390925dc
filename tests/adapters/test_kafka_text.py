"""Messages that Kafka's tools print, in the forms of their releases."""

import json
from datetime import datetime, timezone
from functools import partial

import pytest

from subreplay.adapters import ADAPTERS, Options
from subreplay.adapters.format_detection import detect_file_format
from subreplay.errors import InputError
from subreplay.rows.model.tables import MESSAGES
from tests.support.source_reading import read_at_once

AT = 1_584_680_012_228
read = partial(read_at_once, "kafka-text")
ORDERS = Options(topic="orders")


def written(folder, *lines, name="orders.txt"):
    (folder / name).write_text("".join(f"{line}\n" for line in lines))
    return folder / name


def rows(found):
    assert found.tables["messages"].schema == MESSAGES
    names = ("topic", "partition", "entry", "key", "size")
    return [tuple(row[name] for name in names) for row in found.tables["messages"].to_pylist()]


@pytest.mark.parametrize(
    ("line", "key", "size"),
    [
        ("CreateTime:{at}\tPartition:{p}\tOffset:{o}\tNO_HEADERS\tk{o}\tvalue", b"k{o}", 5),
        ("CreateTime:{at}\tPartition:{p}\tOffset:{o}\ttrace:7,tenant:a b\tk{o}\tvalue", b"k{o}", 5),
        ("CreateTime:{at}\tPartition:{p}\tOffset:{o}\tk{o}\tvalue", b"k{o}", 5),
        ("CreateTime:{at}\tPartition:{p}\tOffset:{o}\tnull\tvalue", None, 5),
        ("CreateTime:{at}\tPartition:{p}\tOffset:{o}\tvalue", None, 5),
        ("CreateTime:{at}\tPartition:{p}\tOffset:{o}\tk{o}\t", b"k{o}", 0),
        ("LogAppendTime:{at}\tPartition:{p}\tOffset:{o}\tNO_HEADERS\tk{o}\ta\tb", b"k{o}", 3),
        ("CreateTime:{at}|Partition:{p}|Offset:{o}|NO_HEADERS|k{o}|value", b"k{o}", 5),
        ("CreateTime:{at}\tPartition:{p}\tOffset:{o}\tDelivery:1\tEpoch:0\tNO_HEADERS\tk{o}\tvalue", b"k{o}", 5),
        ('CreateTime:{at}\tPartition:{p}\tOffset:{o}\tk{o}\t{{"a": [1, 2]}}', b"k{o}", 13),
    ],
)
def test_lines_of_the_console_consumer(tmp_path, line, key, size):
    path = written(tmp_path, *(line.format(at=AT + i, p=i % 2, o=7 + i) for i in range(4)))
    assert detect_file_format(path) == "kafka-text"
    found = read(path, ORDERS)
    keys = [key and key.replace(b"{o}", str(7 + i).encode()) for i in range(4)]
    assert rows(found) == [("orders", i % 2, 7 + i, keys[i], size) for i in range(4)]
    assert found.tables["messages"]["publish_time"][0].as_py() == datetime.fromtimestamp(AT / 1_000, timezone.utc)
    assert found.run["subscription"]["topic"] == "orders"


def test_lines_around_messages_are_passed_over_and_broken_ones_rejected(tmp_path):
    path = written(
        tmp_path, f"CreateTime:{AT}\tPartition:0\tOffset:1\tk\tfirst", "the value goes on", "",
        f"CreateTime:{AT}\tPartition:0\tOffset", "CreateTime:-1\tPartition:0\tOffset:2\tk\tv",
        "NO_TIMESTAMP\tPartition:0\tOffset:3\tk\tv", f"CreateTime:{AT}\tPartition:0\tOffset:99999999999999\tk\tv",
        "Processed a total of 3 messages",
    )  # fmt: skip
    found = read(path, ORDERS)
    assert rows(found) == [("orders", 0, 1, b"k", 5)]
    assert [(row.row, row.reasons[0].column) for row in found.rejected] == [
        (4, "line"), (5, "publish_time"), (6, "publish_time"), (7, "entry"),
    ]  # fmt: skip
    assert "first" not in str(found.rejected)
    (count,) = found.counts
    assert (count.rows_in, count.valid, count.quarantined, count.others) == (8, 1, 4, 3)


def test_the_topic_of_the_console_consumer_has_to_be_named(tmp_path):
    path = written(tmp_path, f"CreateTime:{AT}\tPartition:0\tOffset:1\tk\tv", name="shop.orders.txt")
    with pytest.raises(InputError, match="Name it with --topic"):
        read(path)
    assert ADAPTERS["kafka-text"].assume_options(path) == Options(topic="shop")


DUMP = "Dumping /var/lib/kafka/data/shop.orders-v1-{p}/00000000000000000000.log"
BATCH = (
    "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 "
    "isTransactional: false isControl: false position: 0 CreateTime: {at} size: 80 magic: 2 compresscodec: none"
)


@pytest.mark.parametrize(
    ("line", "key", "size"),
    [
        ("| offset: {o} CreateTime: {at} keySize: 2 valueSize: 5 sequence: -1 headerKeys: [] key: k{o} payload: value",
         b"k{o}", 5),
        ("| offset: {o} CreateTime: {at} keysize: 2 valuesize: 5 sequence: 3 headerKeys: [a,b] key: k{o} payload: v: x",
         b"k{o}", 5),
        ("| offset: {o} LogAppendTime: {at} keySize: -1 valueSize: 5 sequence: -1 headerKeys: [] payload: value",
         None, 5),
        ("| offset: {o} CreateTime: {at} keySize: 2 valueSize: -1 sequence: -1 headerKeys: [] key: k{o}", b"k{o}", 0),
        ("offset: {o} position: 0 CreateTime: {at} isvalid: true keysize: 2 valuesize: 5 magic: 2 compresscodec: NONE "
         "producerId: -1 producerEpoch: -1 sequence: -1 isTransactional: false headerKeys: [] key: k{o} payload: value",
         b"k{o}", 5),
    ],
)  # fmt: skip
def test_records_of_a_dumped_log(tmp_path, line, key, size):
    lines = []
    for p in (0, 3):
        lines += [DUMP.format(p=p), "Log starting offset: 7", BATCH.format(at=AT)]
        lines += [line.format(at=AT + i, o=7 + i) for i in range(2)]
    path = written(tmp_path, *lines)
    assert detect_file_format(path) == "kafka-text"
    found = read(path)
    keys = [key and key.replace(b"{o}", str(7 + i).encode()) for i in range(2)]
    assert rows(found) == [("shop.orders-v1", p, 7 + i, keys[i], size) for p in (0, 3) for i in range(2)]
    assert found.run["subscription"]["topic"] == "shop.orders-v1"
    assert found.rejected == ()


def test_markers_of_transactions_are_no_messages_and_records_without_a_file_are_rejected(tmp_path):
    record = f"| offset: 1 CreateTime: {AT} keySize: 1 valueSize: 1 sequence: -1 headerKeys: [] key: k payload: v"
    marker = (f"| offset: 2 CreateTime: {AT} keySize: 4 valueSize: 6 sequence: -1 headerKeys: [] endTxnMarker: ABORT "
              "coordinatorEpoch: 0")  # fmt: skip
    found = read(written(tmp_path, record, DUMP.format(p=0), record, marker))
    assert rows(found) == [("shop.orders-v1", 0, 1, b"k", 1)]
    assert [(row.row, row.reasons[0].column) for row in found.rejected] == [(1, "topic")]


def test_one_topic_of_several_dumps_may_be_chosen(tmp_path):
    record = f"| offset: 1 CreateTime: {AT} keySize: 1 valueSize: 1 sequence: -1 headerKeys: [] key: k payload: v"
    path = written(tmp_path, DUMP.format(p=0), record, DUMP.format(p=0).replace("orders", "bills"), record)
    assert {row[0] for row in rows(read(path))} == {"shop.orders-v1", "shop.bills-v1"}
    found = read(path, Options(topic="shop.bills-v1"))
    assert {row[0] for row in rows(found)} == {"shop.bills-v1"}
    assert found.rejected == ()
    with pytest.raises(InputError, match="no message of topic 'other'"):
        read(path, Options(topic="other"))


def test_files_of_json_are_none_of_these(tmp_path):
    path = written(tmp_path, json.dumps({"topic": "t", "partition": 0, "offset": 1, "key": f"CreateTime:{AT}"}))
    assert detect_file_format(path) is None
