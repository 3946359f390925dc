"""A stored profile: written once a day, read again, and the mistakes; scenarios evaluated in tasks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from subreplay.config import run as config
from subreplay.engine.interface import Dataset, Engine
from subreplay.errors import ConfigError, InputError
from subreplay.pipeline import profiled_traffic
from subreplay.rows.conditions import field
from subreplay.rows.model.columns import DAY
from subreplay.semantics.policies import make_policy
from subreplay.whatif.message_assignment import MessageAssigner
from subreplay.whatif.scenario import build_plan
from subreplay.whatif.traffic.evaluation_counts import Extent
from tests.support.published import MESSAGES, SCOPES, members

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


def blocks_of(engine: Engine, table: pa.Table, run: config.RunConfig) -> Dataset:
    how = profiled_traffic.build_profiling(run.keys.words, TOPIC)
    return engine.create_dataset(table.select(how.columns)).map(how.make, how.schema)


def canonical(table: pa.Table) -> pa.Table:
    """Their times as table ``messages`` has them."""
    return pa.table({"publish_time": pa.array(np.asarray(table["at"]) // 1_000, pa.timestamp("us", "UTC"))})


def test_a_profile_is_stored_by_day_and_evaluated_alike_wherever_it_is(
    engine: Engine, tmp_path: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = messages(3)
    log = engine.create_dataset(canonical(table))

    def run(**more: object) -> config.RunConfig:
        return config.parse({"traffic": {"profile": str(tmp_path)}, **more}, "run.yaml")

    assert profiled_traffic.read_profile_table(engine, run(), TOPIC, log, N) is None  # nobody has written it
    blocks = blocks_of(engine, table, run())
    assert [row["messages"] for row in profiled_traffic.write_profile_table(engine, run(), TOPIC, blocks)] == [
        1_000
    ] * 3
    second = blocks_of(
        engine, table.filter((field("at") >= DAY).expression & (field("at") < 2 * DAY).expression), run()
    )
    day = run(date="1970-01-02")
    (again,) = profiled_traffic.write_profile_table(engine, day, TOPIC, second)  # a day once more, in its place
    assert again["messages"] == 1_000

    policies = [make_policy("pulsar.key_shared.auto_split", "pulsar-4.0"), make_policy("pulsar.shared", "pulsar-3.2")]
    events = members(["+a +b", "+a +c -a"], 1)
    plans = tuple(build_plan(policy.name, policy, events) for policy in policies)
    assigner = MessageAssigner(plans, Extent(0, 3 * DAY, DAY), moves_plan=plans[0].name)
    found = profiled_traffic.read_profile_table(engine, run(), TOPIC, log, N)
    assert found is not None
    here = found.assign(assigner, 5)
    assert sum(row["messages"] for row in here.rows if row["level"] == "scenario") == N * len(plans)
    assert profiled_traffic.ProfiledTraffic(engine, blocks, N).assign(assigner, 5) == here

    monkeypatch.setattr(profiled_traffic, "MAX_LOCAL_MESSAGES", 0)
    monkeypatch.setattr(profiled_traffic, "_PART", 1_000)
    elsewhere = profiled_traffic.ProfiledTraffic(engine, found.blocks, N).assign(assigner, 5)
    assert sorted(map(str, elsewhere.rows)) == sorted(map(str, here.rows))
    assert elsewhere.hottest == here.hottest
    assert len(here.hottest) == 5

    with pytest.raises(InputError, match=r"has no message of other on 1970-01-09\. Run subreplay profile"):
        profiled_traffic.read_profile_table(engine, run(date="1970-01-09"), "other", log, N)
    fewer = engine.create_dataset(canonical(table.filter((field("at") < 2 * DAY).expression)))
    with pytest.raises(
        InputError, match=r"has 3,000 messages .* but the input has 2,000. The counts differ on 1970-01-03. Run"
    ):
        profiled_traffic.read_profile_table(engine, run(), TOPIC, fewer, 2_000)
    with pytest.raises(ConfigError, match=r"was written with another keys\.secret\. Use that secret"):
        profiled_traffic.read_profile_table(engine, run(keys={"secret": "another"}), TOPIC, log, N)
