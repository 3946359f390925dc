"""What an adapter reads is written as canonical tables."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from subreplay.adapters import Options
from subreplay.engine.local.engine import LocalEngine
from subreplay.pipeline import adapter_sources, ingest
from subreplay.rows.model.tables import INPUTS, QUARANTINE
from tests.adapters.test_sources import KEYS, captures
from tests.support.source_reading import read_at_once


def kept(engine: LocalEngine, root: str, form: str, name: str, schema: pa.Schema) -> pa.Table:
    found = engine.open_tables(root, format=form).find(name)
    assert found is not None
    schema = pa.schema([field.with_nullable(True) for field in schema])
    return pa.Table.from_pylist(found.to_table().to_pylist(), schema)


@pytest.mark.parametrize("form", ["delta", "parquet"])
@pytest.mark.parametrize("most", [1, ingest.TOPICS])
def test_a_second_ingest_replaces_the_rows_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, form: str
) -> None:
    monkeypatch.setattr(ingest, "TOPICS", most)
    path, root = captures(tmp_path / "given"), str(tmp_path / "tables")
    read = read_at_once("capture", path)
    with LocalEngine(1) as engine:
        for _ in range(2):
            ingest.write(engine, adapter_sources.read(engine, "capture", path, Options()), root, form, str(path))
        for name, table in read.tables.items():
            order = [(key, "ascending") for key in KEYS[name]]
            found = kept(engine, root, form, name, table.schema).sort_by(order)
            assert found.to_pylist() == table.sort_by(order).to_pylist()
        quarantined = kept(engine, root, form, "quarantine", QUARANTINE.append(pa.field("source", pa.string())))
    assert pc.unique(quarantined["source"]).to_pylist() == [str(path)]
    assert len(quarantined) == len(read.rejected)
    assert len(pc.unique(read.tables["deliveries"]["topic"])) == 2


@pytest.mark.parametrize("form", ["delta", "parquet"])
def test_a_table_that_the_source_has_nothing_of_is_made_once(tmp_path: Path, form: str) -> None:
    spans, root = Path(__file__).parents[1] / "data/otlp", str(tmp_path / "tables")
    with LocalEngine(1) as engine:
        for _ in range(2):
            read = adapter_sources.read(engine, "otlp-spans", spans, Options(subscription="otel4"))
            ingest.write(engine, read, root, form, str(spans))
        for name in ("messages", "membership"):
            assert not len(kept(engine, root, form, name, INPUTS[name]))
        assert len(kept(engine, root, form, "deliveries", INPUTS["deliveries"])) == read.summary.rows["deliveries"]
