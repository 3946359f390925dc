"""Queries on pages and in dashboards run over the tables of real runs and find what these contain."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from subreplay.cli.main import main
from subreplay.reports.open_metrics import GAUGES
from tests.docs.pages import DOCS, blocks

PAGE = (DOCS / "guides/queries.md").read_text(encoding="utf-8")
QUERIES = [block.text for block in blocks(PAGE) if block.language == "sql"]
(SCRIPT,) = (block.text for block in blocks(PAGE) if block.language == "python")
GRAFANA = json.loads((DOCS / "assets/grafana-dashboard.json").read_text(encoding="utf-8"))
DATABRICKS = json.loads((DOCS / "assets/databricks-dashboard.lvdash.json").read_text(encoding="utf-8"))
DATASETS = {each["name"]: "".join(each["queryLines"]) for each in DATABRICKS["datasets"]}
INCIDENTS = ("hung-consumer", "offset-reset")


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demos")
    with redirect_stdout(StringIO()):
        for incident in INCIDENTS:
            assert main(["demo", incident, "--out", str(folder / "build/demo")]) == 1
    return folder


@pytest.fixture(scope="module")
def tables(demos: Path) -> dict[str, pl.DataFrame]:
    """The tables of both incidents together, as one output folder would have them."""
    found: dict[str, list[pl.DataFrame]] = {}
    for incident in INCIDENTS:
        for path in (demos / "build/demo" / incident / "tables").iterdir():
            found.setdefault(path.name, []).append(pl.read_delta(str(path), use_pyarrow=True))
    return {name: pl.concat(parts, how="diagonal_relaxed") for name, parts in found.items()}


# SQL recipes


def test_there_are_ten_recipes_and_each_answers_the_question_above_it() -> None:
    assert len(QUERIES) >= 10
    assert len(re.findall(r"^## \d+\. .*\?$", PAGE, re.MULTILINE)) == len(QUERIES)


@pytest.mark.long
@pytest.mark.parametrize("number", range(len(QUERIES)))
def test_a_recipe_runs_in_polars(tables: dict[str, pl.DataFrame], number: int) -> None:
    pl.SQLContext(tables).execute(QUERIES[number]).collect()


@pytest.mark.long
def test_recipes_find_what_the_incidents_contain(tables: dict[str, pl.DataFrame]) -> None:
    last, still, new, late, worst, lost, days, _, doing, doubts, durations = (
        pl.SQLContext(tables).execute(query).collect() for query in QUERIES
    )
    assert last["verdict"].to_list() == ["invalid"] * 2
    assert still["attribution"].to_list() == ["consumer application"]
    assert new["subscription"].to_list() == ["sub"]
    assert late["consumer"].to_list() == ["b", "a"]
    assert worst["findings"].to_list() == [240, 240, 100, 1]
    assert lost.is_empty()
    assert days["findings"].sum() == worst["findings"].sum()
    assert doing["incidents"].sum() == 2
    assert doubts.is_empty()
    assert (durations["seconds"] > 0).all()


@pytest.mark.long
def test_the_script_of_the_page_prints_the_incidents(
    demos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(demos)
    exec(SCRIPT, {})  # noqa: S102
    assert "shape: (1, 2)" in capsys.readouterr().out


# Dashboards


def list_panels() -> Iterator[tuple[str, str]]:
    for panel in GRAFANA["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def test_each_query_in_grafana_reads_a_gauge_that_the_program_writes() -> None:
    read = set()
    for title, query in list_panels():
        names = re.findall(r"subreplay_\w+", query)
        assert names, title
        read |= {name.removeprefix("subreplay_") for name in names}
    assert read == GAUGES.keys()
    for variable in GRAFANA["templating"]["list"]:
        assert {
            name.removeprefix("subreplay_") for name in re.findall(r"subreplay_\w+", str(variable))
        } <= GAUGES.keys()


def test_panels_in_grafana_have_unique_ids_and_do_not_overlap() -> None:
    ids = [panel["id"] for panel in GRAFANA["panels"]]
    assert len({*ids}) == len(ids)
    cells: set[tuple[int, int]] = set()
    for panel in GRAFANA["panels"]:
        at = panel["gridPos"]
        mine = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not mine & cells, panel["title"]
        assert all(x < 24 for x, _ in mine), panel["title"]
        cells |= mine
        assert [target["refId"] for target in panel["targets"]] == sorted({t["refId"] for t in panel["targets"]})


def list_widgets() -> list[dict[str, Any]]:
    return [placed["widget"] for page in DATABRICKS["pages"] for placed in page["layout"]]


def test_widgets_in_databricks_have_unique_names_and_show_fields_of_their_query() -> None:
    names = [widget["name"] for widget in list_widgets()]
    assert len({*names}) == len(names)
    for widget in list_widgets():
        query = widget["queries"][0]["query"]
        fields = {field["name"] for field in query["fields"]}
        shown = {*re.findall(r"'fieldName': '(\w+)'", str(widget["spec"]["encodings"]))}
        assert shown == fields, widget["name"]
        assert query["datasetName"] in DATASETS
    assert {widget["queries"][0]["query"]["datasetName"] for widget in list_widgets()} == DATASETS.keys()


@pytest.mark.spark
@pytest.mark.long
def test_recipes_and_datasets_of_databricks_run_on_spark(spark: Any, demos: Path) -> None:
    from subreplay.config.run import Schema
    from subreplay.engine.spark import frame_tables

    spark.sql("CREATE SCHEMA spark_catalog.of_dashboards")
    try:
        schema = Schema(schema="spark_catalog.of_dashboards")
        for incident in INCIDENTS:
            for path in (demos / "build/demo" / incident / "tables").iterdir():
                rows = spark.read.format("delta").load(os.fspath(path))
                rows.write.option("mergeSchema", "true").mode("append").saveAsTable(f"of_dashboards.{path.name}")
        frame_tables.make_view(spark, schema, "violations", "runs", "attempt")
        frame_tables.make_run_views(spark, schema)
        spark.catalog.setCurrentDatabase("of_dashboards")
        for query in QUERIES:
            spark.sql(query).collect()
        found = {name: spark.sql(text.replace("main.subreplay.", "")) for name, text in DATASETS.items()}
        for widget in list_widgets():
            query = widget["queries"][0]["query"]
            assert {field["name"] for field in query["fields"]} <= {*found[query["datasetName"]].columns}
        assert found["figures"].collect()[0].asDict() == {"invalid": 2, "unknown": 0, "subscriptions": 2}
        assert [row.attribution for row in found["open"].collect()] == ["consumer application"]
    finally:
        spark.catalog.setCurrentDatabase("default")
        spark.sql("DROP SCHEMA spark_catalog.of_dashboards CASCADE")
