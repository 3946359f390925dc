"""What an audit has written is found by runs of the same configuration, also where an older release wrote it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from subreplay.audit.passes.loads import ALL_TIME, LOADS_OF_RUN
from subreplay.config import run as config_run
from subreplay.config.run import Keys, RunConfig
from subreplay.config.secrets import PLAIN, Kept
from subreplay.engine.interface import Tables
from subreplay.engine.local.engine import LocalEngine
from subreplay.errors import ConfigError
from subreplay.pipeline import known_secret
from subreplay.pipeline.written_audit import find_deliveries
from subreplay.rows.model.tables import LOAD

WHERE = {"subscription": "sub", "topic": "t", "date": "2026-11-20"}


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    raw = {"subscription": {"name": "sub", "policy": "pulsar.shared"}, "date": WHERE["date"],
           "traffic": {"path": "in"}, "output": {"tables": str(tmp_path / "out")}}  # fmt: skip
    return config_run.parse(raw, "audit.yaml")


@pytest.fixture
def tables(config: RunConfig) -> Iterator[Tables]:
    with LocalEngine(cores=1) as engine:
        yield engine.tables(str(config.output.tables))


def load(deliveries: int) -> dict[str, Any]:
    zeros = {field.name: 0 for field in LOADS_OF_RUN if field.type == pa.int64()}
    given = {"width": ALL_TIME.width, "slide": ALL_TIME.slide, "consumer": "c", "messages": deliveries}
    return zeros | given | {"lag": None, "selector": None}


def write_runs(tables: Tables, config: RunConfig) -> None:
    runs = pa.table({"kind": ["audit"], "run_id": [config.run_id]})
    tables.put("runs", known_secret.noted(runs, config), WHERE)


OUT = "the folder"
DELIVERIES = pa.table({"codes": [0, 1], "commit": [0, 0]})
BY_THIS = "this command: "


def test_deliveries_are_those_that_the_same_run_wrote(tables: Tables, config: RunConfig) -> None:
    assert find_deliveries(tables, None, config, WHERE) == (None, "this command")
    assert find_deliveries(tables, OUT, config, WHERE) == (
        None,
        f"{BY_THIS}no audit has written {OUT} (name its folder with --out)",
    )
    write_runs(tables, config)
    no_such = f"{BY_THIS}no audit of this policy and topic has written {OUT} as this run file asks"
    assert find_deliveries(tables, OUT, config, WHERE) == (None, no_such)
    tables.put("audited", DELIVERIES, WHERE)
    tables.put("loads", pa.Table.from_pylist([load(1), load(1), load(9) | {"width": 60}], LOADS_OF_RUN), WHERE)
    found, whose = find_deliveries(tables, OUT, config, WHERE)
    assert found is not None
    assert found.table().select(DELIVERIES.column_names) == DELIVERIES
    assert whose == f"the audit that wrote {OUT}"
    tables.put("audited", DELIVERIES.slice(1), WHERE)
    few = f"{BY_THIS}{OUT} has deliveries with findings only"
    assert find_deliveries(tables, OUT, config, WHERE) == (None, few)
    other = config.model_copy(update={"keys": Keys(secret=Kept(PLAIN, "another"))})
    with pytest.raises(ConfigError, match=r"^keys\.secret or keys.show is not that of the audit that wrote "):
        find_deliveries(tables, OUT, other, WHERE)
    policy = config.subscription.model_copy(update={"policy": "pulsar.exclusive"})
    assert find_deliveries(tables, OUT, config.model_copy(update={"subscription": policy}), WHERE) == (None, no_such)


def test_outputs_of_releases_with_state_and_loads_in_table_audited_are_read(tables: Tables, config: RunConfig) -> None:
    write_runs(tables, config)
    rows = [{"codes": 0, "commit": 0}, {"codes": 1, "commit": 0}, {"codes": 0, "commit": 0, "load": load(2)},
            {"codes": 0, "commit": 0, "checkpoint": {"name": "open"}}]  # fmt: skip
    nullable = pa.struct([field.with_nullable(True) for field in LOAD])
    schema = pa.schema([*DELIVERIES.schema, ("load", nullable), ("checkpoint", pa.struct([("name", pa.string())]))])
    tables.put("audited", pa.Table.from_pylist(rows, schema), WHERE)
    found, _ = find_deliveries(tables, OUT, config, WHERE)
    assert found is not None
    assert found.schema.names == [*DELIVERIES.column_names, *WHERE]
    assert found.table().select(DELIVERIES.column_names) == DELIVERIES
