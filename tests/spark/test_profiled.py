"""A stored profile: written once a day, read again, and the mistakes; scenarios evaluated in Spark's tasks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from subreplay.config import run as config
from subreplay.engine.spark import collect, lake, profiled
from subreplay.errors import ConfigError, InputError
from subreplay.rows.model.columns import DAY
from subreplay.rows.model.partitioners import SIGHTINGS, merged, sightings
from subreplay.semantics.policies import make
from subreplay.whatif.assign import Assigner
from subreplay.whatif.scenario import plan
from subreplay.whatif.traffic.evaluation import Extent
from tests.support.published import MESSAGES, SCOPES, members

pytestmark = pytest.mark.spark
TOPIC = SCOPES[0].topic
N = 3_000


def messages(days: int) -> pa.Table:
    """A thousand messages a day of forty keys, some of them without."""
    n = N * days // 3
    columns = {
        "topic": [TOPIC] * n,
        "partition": np.arange(n) % 2,
        "entry": np.arange(n),
        "batch_index": np.full(n, -1),
        "at": np.arange(n) * (DAY // 1000),
        "key": [None if i % 9 == 0 else f"key {i % 40}".encode() for i in range(n)],
        "producer": ["p"] * n,
        "sequence_id": np.arange(n),
        "size": np.full(n, 10),
    }
    given = [pa.array(columns[f.name], f.type) if f.name in columns else pa.nulls(n, f.type) for f in MESSAGES]
    return pa.table(given, schema=MESSAGES)


def test_a_profile_is_stored_by_day_and_evaluated_alike_wherever_it_is(
    spark: SparkSession, tmp_path: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = messages(3)
    log = lake.of_arrow(spark, table)

    def run(**more: object) -> config.RunConfig:
        return config.parse({"traffic": {"profile": str(tmp_path)}, **more}, "run.yaml")

    assert profiled.stored(spark, run(), TOPIC, log, N) is None  # nobody has written it
    assert [row["messages"] for row in profiled.write(spark, run(), TOPIC, log)] == [1_000] * 3
    second = log.where(f"at >= {DAY} and at < {2 * DAY}")
    (again,) = profiled.write(spark, run(date="1970-01-02"), TOPIC, second)  # a day once more, in its place
    assert again["messages"] == 1_000

    policies = [make("pulsar.key_shared.auto_split", "pulsar-4.0"), make("pulsar.shared", "pulsar-3.2")]
    events = members(["+a +b", "+a +c -a"], 1)
    plans = tuple(plan(policy.name, policy, events) for policy in policies)
    assigner = Assigner(plans, Extent(0, 3 * DAY, DAY), moves_of=plans[0].name)
    found = profiled.stored(spark, run(), TOPIC, log, N)
    assert found is not None
    here = found.assigned(assigner, 5)
    assert sum(row["messages"] for row in here.rows if row["level"] == "scenario") == N * len(plans)
    made = profiled.Profiled(profiled.blocks(log, run().keys.words, TOPIC), N)
    assert made.assigned(assigner, 5) == here

    monkeypatch.setattr(profiled, "IN_PROCESS", 0)
    monkeypatch.setattr(profiled, "_PART", 1_000)
    elsewhere = profiled.Profiled(found.blocks, N).assigned(assigner, 5)
    assert sorted(map(str, elsewhere.rows)) == sorted(map(str, here.rows))
    assert elsewhere.hottest == here.hottest
    assert len(here.hottest) == 5

    with pytest.raises(InputError, match="has no message of other on 1970-01-09; run subreplay profile of them"):
        profiled.stored(spark, run(date="1970-01-09"), "other", log, N)
    with pytest.raises(InputError, match=r"has 3,000 messages .* and there are 2,000: they differ on 1970-01-03; run"):
        profiled.stored(spark, run(), TOPIC, log.where(f"at < {2 * DAY}"), 2_000)
    with pytest.raises(
        ConfigError, match=r"was written under another keys\.secret; use that one, or run subreplay pro"
    ):
        profiled.stored(spark, run(keys={"secret": "another"}), TOPIC, log, N)


def test_where_producers_put_keys_is_counted_alike_by_sparks_tasks_and_by_the_driver(spark: SparkSession) -> None:
    table = messages(3).select(["key", "producer", "partition", "at"])
    frame = lake.of_arrow(spark, table).repartition(5)
    by_tasks = merged([collect.rows_of(collect.mapped(frame, sightings, SIGHTINGS, here=False))])
    assert by_tasks == merged([pa.Table.from_batches(sightings(table.to_batches()), SIGHTINGS)])
    assert by_tasks["messages"].to_numpy().sum() == table["key"].drop_null().length()
