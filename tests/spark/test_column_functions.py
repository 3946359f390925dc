"""Column functions equal the pure functions that they lift, in frames and in SQL."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pyspark.sql.functions as F
import pytest
from chispa import assert_df_equality
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from subreplay.api import functions
from subreplay.errors import ConfigError, InputError
from subreplay.hashing.murmur2 import choose_kafka_partition
from subreplay.hashing.murmur3 import murmur3_32
from subreplay.hashing.slots import RING_SLOTS, make_range_rule
from subreplay.semantics.policies import make_policy
from subreplay.semantics.timelines.membership import build_dispatcher_events
from subreplay.whatif.message_assignment import find_slot_and_owner
from subreplay.whatif.scenario import build_plan
from tests.support.history import START, STEP, TOPIC, history, key_of

pytestmark = pytest.mark.spark

KEYS = [b"", b"a", b"Order-3459134", b"user-563222", "\u00fcn\u00ef".encode(), b"\xff\x00\xfe", bytes(range(256)), None]
AUTO_SPLIT = "pulsar.key_shared.auto_split"
STORY = "+C1 ~20 +C2 ~20 +C3 ~20 -C1 ~20 -C2 -C3"


@pytest.fixture(scope="module")
def keys(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(key,) for key in KEYS], "key binary").coalesce(1)


def expected(spark: SparkSession, kind: str, found: list[Any]) -> DataFrame:
    return spark.createDataFrame(
        [(key, value) for key, value in zip(KEYS, found, strict=True)], f"key binary, f {kind}"
    )


def of_keys(function: Any) -> list[Any]:
    return [None if key is None else function(key) for key in KEYS]


def test_murmur3_is_the_unsigned_hash(spark: SparkSession, keys: DataFrame) -> None:
    wanted = expected(spark, "long", of_keys(murmur3_32))
    assert_df_equality(keys.select("key", functions.murmur3("key").alias("f")), wanted)


def test_text_is_hashed_as_its_bytes(spark: SparkSession) -> None:
    row = spark.range(1).select(functions.murmur3(F.lit("Order-3459134")).alias("f")).first()
    assert row is not None
    assert row.f == murmur3_32(b"Order-3459134")


@pytest.mark.parametrize("profile", ["documented", "pulsar-3.2", "pulsar-4.0", "pulsar-4.2"])
def test_slots_are_those_of_the_profile(spark: SparkSession, keys: DataFrame, profile: str) -> None:
    ring = of_keys(lambda key: RING_SLOTS[profile].compute_slot(murmur3_32(key)))
    assert_df_equality(keys.select("key", functions.slot("key", profile).alias("f")), expected(spark, "long", ring))
    split = of_keys(lambda key: make_range_rule(profile, 1024).compute_slot(murmur3_32(key)))
    found = keys.select("key", functions.slot("key", profile, AUTO_SPLIT, range_size=1024).alias("f"))
    assert_df_equality(found, expected(spark, "long", split))


@pytest.mark.parametrize("n", [1, 7, 100_000])
def test_a_partition_is_the_one_that_kafka_picks(spark: SparkSession, keys: DataFrame, n: int) -> None:
    wanted = expected(spark, "int", of_keys(lambda key: choose_kafka_partition(key, n)))
    assert_df_equality(keys.select("key", functions.kafka_partition("key", n).alias("f")), wanted)
    assert_df_equality(keys.select("key", functions.kafka_partition("key", F.lit(n)).alias("f")), wanted)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (
            lambda: functions.slot("key", "pulsar-9"),
            "has no profile 'pulsar-9'. Valid profiles: documented, pulsar-2.10",
        ),
        (
            lambda: functions.slot("key", "pulsar-4.0", "pulsar.failover"),
            "pulsar.failover has no slots, because it routes by",
        ),
        (
            lambda: functions.slot("key", "pulsar-4.0", range=3),
            "has no option 'range'. Valid options: allow_out_of_order",
        ),
        (lambda: functions.kafka_partition("key", 0), "a topic has at least one partition, not 0"),
    ],
)
def test_wrong_arguments_are_reported_before_anything_runs(spark: SparkSession, wrong: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        wrong()


def test_a_column_of_partitions_below_one_fails(keys: DataFrame) -> None:
    with pytest.raises(PySparkException, match="a topic has at least one partition, not -1"):
        keys.select(functions.kafka_partition("key", F.lit(-1))).collect()


@pytest.fixture(scope="module")
def members(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(history("a1", STORY)["membership"])


def instants() -> list[datetime]:
    """Around each event of the story, and before and after all."""
    start = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=START)
    return [start + timedelta(microseconds=step * STEP + off) for step in range(95, 190, 5) for off in (-1, 0, 1)]


@pytest.mark.parametrize(
    ("policy", "profile"),
    [
        (AUTO_SPLIT, "pulsar-4.0"),
        ("pulsar.key_shared.consistent_hash", "pulsar-3.2"),  # where consumers share points of the ring
        ("pulsar.failover", "pulsar-4.0"),
    ],
)
def test_the_owner_is_that_of_the_folded_policy(
    spark: SparkSession, members: DataFrame, policy: str, profile: str
) -> None:
    events = build_dispatcher_events(history("a1", STORY)["membership"].to_pylist(), [(TOPIC, -1)])
    (timeline,) = build_plan("pure", make_policy(policy, profile), events).timelines.values()
    requested = [(key_of(letter), at) for letter in "anbo" for at in instants()]
    nanos = [round(at.timestamp() * 1_000_000) * 1_000 for _, at in requested]
    pure = [
        find_slot_and_owner(timeline, murmur3_32(key), at + 1)[1] for (key, _), at in zip(requested, nanos, strict=True)
    ]
    assert {None, "C1", "C2", "C3"} >= set(pure) > {None, "C1"}
    rows = spark.createDataFrame(
        [(*row, name) for row, name in zip(requested, pure, strict=True)], "key binary, at timestamp, f string"
    )
    owners = functions.owners(members, policy=policy, profile=profile)
    assert_df_equality(rows.select("key", "at", functions.owner("key", "at", owners).alias("f")), rows)


def test_each_partition_has_its_own_owners(spark: SparkSession) -> None:
    everywhere = F.lit(None).cast("int")
    membership = spark.createDataFrame(history("a1", "+C1 +C2")["membership"]).withColumn("partition", everywhere)
    assert functions.owners(membership, policy="pulsar.failover").partitions == (-1,)
    owners = functions.owners(membership, policy="pulsar.failover", partitions=3)
    assert owners.partitions == (0, 1, 2)
    late = F.lit(instants()[-1])
    rows = spark.range(-1, 3).select(F.col("id").cast("int").alias("p")).coalesce(1)
    found = rows.select("p", functions.owner(F.lit("a"), late, owners, "p").alias("f"))
    wanted = spark.createDataFrame([(-1, None), (0, "C1"), (1, "C2"), (2, "C1")], "p int, f string")
    assert_df_equality(found, wanted, ignore_nullable=True)
    with pytest.raises(ConfigError, match=r"there are 3 partitions\. Pass one: partition="):
        functions.owner("key", late, owners)


def test_what_nobody_can_know_is_null(spark: SparkSession, members: DataFrame) -> None:
    owners = functions.owners(members, policy=AUTO_SPLIT)
    at = instants()[-30]
    rows = spark.createDataFrame([(b"a", None), (None, at)], "key binary, at timestamp")
    assert [row.f for row in rows.select(functions.owner("key", "at", owners).alias("f")).collect()] == [None, None]


def test_a_membership_of_several_needs_a_name(spark: SparkSession, members: DataFrame) -> None:
    other = members.withColumn("subscription", F.lit("other"))
    with pytest.raises(InputError, match=r"membership has subscriptions 'other', 'sub'. Pass the one .*subscription="):
        functions.owners(members.unionByName(other), policy=AUTO_SPLIT)
    assert functions.owners(members.unionByName(other), policy=AUTO_SPLIT, subscription="sub").partitions == (-1,)
    with pytest.raises(InputError, match="membership has no subscription"):
        functions.owners(members.limit(0), policy=AUTO_SPLIT)
    with pytest.raises(InputError, match="membership: event went: "):
        functions.owners(members.withColumn("event", F.lit("went")), policy=AUTO_SPLIT)
    with pytest.raises(ConfigError, match=r"pulsar\.shared: under this policy any consumer may get any message"):
        functions.owners(members, policy="pulsar.shared")


def test_sql_knows_them_too(spark: SparkSession, keys: DataFrame, members: DataFrame) -> None:
    owners = functions.owners(members, policy=AUTO_SPLIT)
    functions.register(spark, owners)
    at = instants()[-30]
    found = keys.selectExpr(
        "key", "murmur3(key) AS m", "slot(key, 'pulsar-3.2') AS s", f"slot(key, 'pulsar-4.0', '{AUTO_SPLIT}') AS a",
        "kafka_partition(key, 7) AS p", f"owner(key, timestamp_micros({round(at.timestamp() * 1_000_000)})) AS o",
    )  # fmt: skip
    wanted = keys.select(
        "key",
        functions.murmur3("key").alias("m"),
        functions.slot("key", "pulsar-3.2").alias("s"),
        functions.slot("key", "pulsar-4.0", AUTO_SPLIT).alias("a"),
        functions.kafka_partition("key", 7).alias("p"),
        functions.owner("key", F.lit(at), owners).alias("o"),
    )
    assert_df_equality(found, wanted)


def test_time_without_end_has_an_owner_too(members: DataFrame) -> None:
    owners = functions.owners(members, policy=AUTO_SPLIT)
    ends = pa.array(np.array([-(2**63), 2**63 - 1]), pa.timestamp("us", tz="UTC"))
    assert owners.names(pa.array([b"a", b"a"]), ends).to_pylist() == [None, None]
    with pytest.raises(InputError, match=r"owner: the time has type int64\. Pass a timestamp"):
        owners.names(pa.array([b"a"]), pa.array([1]))
