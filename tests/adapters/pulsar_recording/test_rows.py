"""Messages: batches, keys, partitions, times."""

import pytest

from subreplay.adapters.canonical import split_topic
from subreplay.rows.model.tables import INPUTS
from tests.adapters.pulsar_recording.recording import Recording, rows


@pytest.mark.parametrize(
    ("name", "topic", "partition"),
    [
        ("persistent://t/ns/orders", "persistent://t/ns/orders", -1),
        ("persistent://t/ns/orders-partition-0", "persistent://t/ns/orders", 0),
        ("persistent://t/ns/orders-partition-12", "persistent://t/ns/orders", 12),
        ("persistent://t/ns/a-partition-1-partition-2", "persistent://t/ns/a-partition-1", 2),
        ("persistent://t/ns/orders-partition-", "persistent://t/ns/orders-partition-", -1),
        ("persistent://t/ns/orders-partition-1x", "persistent://t/ns/orders-partition-1x", -1),
        ("persistent://t/ns/orders-1", "persistent://t/ns/orders-1", -1),
    ],
)
def test_a_partition_is_the_suffix_of_the_topic_name(name, topic, partition):
    assert split_topic(name) == (topic, partition)


def test_every_table_of_a_partition_names_topic_and_number(tmp_path):
    recording = Recording(topic="persistent://t/ns/orders-partition-3").join("c1").publish(0, "a").dispatch(0, "c1")
    made = recording.read(tmp_path)
    for table in INPUTS:
        assert set(rows(made, table, "topic", "partition")) == {("persistent://t/ns/orders", 3)}


def test_tables_have_the_canonical_columns_even_when_empty(tmp_path):
    made = Recording().join("c1").read(tmp_path)
    assert {name: table.schema for name, table in made.tables.items()} == INPUTS
    assert made.tables["messages"].num_rows == 0


def test_a_batch_carries_the_keys_of_its_first_message(tmp_path):
    made = Recording().publish(0, "a", "b", None, ordering_key="o").read(tmp_path)
    columns = ("batch_index", "key", "batch_key", "batch_ordering_key", "batch_sequence_id", "batch_size")
    assert rows(made, "messages", *columns) == [
        (0, b"a", b"a", b"o", 0, 3),
        (1, b"b", b"a", b"o", 0, 3),
        (2, None, b"a", b"o", 0, 3),
    ]


def test_a_batch_that_begins_without_a_key_has_none(tmp_path):
    made = Recording().publish(0, None, "b").read(tmp_path)
    assert rows(made, "messages", "key", "batch_key") == [(None, None), (b"b", None)]


def test_the_order_of_the_file_does_not_matter(tmp_path):
    recording = Recording().publish(0, "a", "b").publish(1, "c", "d")
    recording.files["messages"].reverse()
    made = recording.read(tmp_path)
    assert rows(made, "messages", "entry", "key", "batch_key") == [
        (0, b"a", b"a"), (0, b"b", b"a"), (1, b"c", b"c"), (1, b"d", b"c"),
    ]  # fmt: skip


def test_a_message_outside_a_batch_has_no_batch_columns(tmp_path):
    made = Recording().publish(0, "a").read(tmp_path)
    columns = ("batch_index", "batch_key", "batch_ordering_key", "batch_sequence_id", "batch_size")
    assert rows(made, "messages", *columns) == [(-1, None, None, None, None)]


@pytest.mark.parametrize("key", ["", "ключ", "日本語", "🔑 and spaces", "a\x00b", "line\nbreak", '"quoted"'])
def test_keys_are_kept_byte_for_byte(tmp_path, key):
    made = Recording().publish(0, key, ordering_key=key).read(tmp_path)
    assert rows(made, "messages", "key", "ordering_key") == [(key.encode(), key.encode())]


def test_no_key_is_not_the_empty_key(tmp_path):
    assert rows(Recording().publish(0, None).publish(1, "").read(tmp_path), "messages", "key") == [None, b""]


def test_times_and_sizes_are_taken_over(tmp_path):
    recording = Recording().publish(0, "a", publish_time_ms=1_700_000_000_123, deliver_at_ms=1_700_000_005_000)
    made = recording.publish(1, "a", payload_size=0).read(tmp_path)
    assert rows(made, "messages", "publish_time", "deliver_at", "size") == [(123, 5000, 7), (2, None, 0)]
    assert [str(day) for day in rows(made, "messages", "date")] == ["2023-11-14", "2023-11-14"]


def test_the_date_is_the_utc_day(tmp_path):
    last, first = 1_700_006_399_999, 1_700_006_400_000
    made = Recording().publish(0, "a", publish_time_ms=last).publish(1, "a", publish_time_ms=first).read(tmp_path)
    assert [str(day) for day in rows(made, "messages", "date")] == ["2023-11-14", "2023-11-15"]
