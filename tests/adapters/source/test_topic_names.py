from __future__ import annotations

import pyarrow as pa
import pytest

from subreplay.adapters.source.topic_names import PATH_CONVERSIONS, parse_pulsar_topics


def topic_partition(conversion: str, path: str, prefix: str = "") -> tuple[str | None, int | None]:
    found = PATH_CONVERSIONS[conversion](pa.array([path]), prefix).values.to_pylist()[0]
    return found["topic"], found["partition"]


@pytest.mark.parametrize(
    ("conversion", "path", "prefix", "expected"),
    [
        ("confluent_path", "topics/a.b-c/partition=12/a.b-c+12+0000000042.snappy.parquet", "", ("a.b-c", 12)),
        ("confluent_path", "s3a://bucket/topics/o/year=2026/hour=01/o+3+0000000042.avro", "", ("o", 3)),
        ("aiven_path", "my-orders-3-000042.gz", "", ("my-orders", 3)),
        ("aiven_path", "s3://bucket/day/prod-my-orders-3-42", "prod-", ("my-orders", 3)),
        ("aiven_path", "s3://bucket/day/my-orders-3-42", "day/", ("my-orders", 3)),
        ("pulsar_path", "t/n/o-partition-12/2026-11-20/1.2.-1.json", "", ("persistent://t/n/o", 12)),
        ("pulsar_path", "s3a://bucket/in/t/n/o-partition-0/1.2.-1.json", "", ("persistent://t/n/o", 0)),
        ("pulsar_path", "s3a://bucket/in/t/n/o/1.2.-1.json", "in/", ("persistent://t/n/o", -1)),
        ("pulsar_path", "t/n/o-partition-012/1.json", "", ("persistent://t/n/o-partition-012", -1)),
    ],
)
def test_a_path_may_contain_topic_and_partition(
    conversion: str, path: str, prefix: str, expected: tuple[str, int]
) -> None:
    assert topic_partition(conversion, path, prefix) == expected


@pytest.mark.parametrize(
    ("conversion", "path", "prefix"),
    [
        ("confluent_path", "topics/o/partition=1/part-0000.parquet", ""),
        ("aiven_path", "orders-3", ""),
        ("aiven_path", "dev-orders-3-42", "prod-"),
        ("pulsar_path", "s3a://bucket/t/n/o/1.json", ""),
        ("pulsar_path", "", ""),
    ],
)
def test_a_path_without_topic_and_partition_is_rejected(conversion: str, path: str, prefix: str) -> None:
    outcome = PATH_CONVERSIONS[conversion](pa.array([path]), prefix)
    assert topic_partition(conversion, path, prefix) == (None, None)
    assert outcome.broken[0].rows.tolist() == [True]


def test_a_topic_and_its_partitions_are_one_topic() -> None:
    names = ["persistent://t/n/o-partition-3", "persistent://t/n/o", None, "o-partition-03"]
    found = parse_pulsar_topics(pa.array(names)).values
    assert found.field("topic").to_pylist() == ["persistent://t/n/o", "persistent://t/n/o", None, "o-partition-03"]
    assert found.field("partition").to_pylist() == [3, -1, None, -1]
