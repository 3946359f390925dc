"""Tables of this machine, read without Spark: whatever is asked of them, Spark's own scan answers the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import date as Date
from datetime import timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark.sql.functions as F
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from subreplay.config import run as config
from subreplay.engine.spark import collect, profiled
from subreplay.engine.spark.audit.passes import _blocks
from subreplay.engine.spark.collect import of_rows
from subreplay.engine.spark.read import checkpoint, direct, input_statistics
from subreplay.engine.spark.read.direct import Reading
from subreplay.engine.spark.read.few import brought
from subreplay.engine.spark.read.inputs import Inputs, read_inputs
from subreplay.engine.spark.read.log import as_log
from subreplay.engine.spark.read.source import read as source_of
from subreplay.engine.spark.sink import Kept
from subreplay.rows.model.tables import INPUTS, LOG
from subreplay.rows.model.words import IN_THE_CLEAR
from subreplay.rows.scan import selection
from subreplay.rows.scan.files import Files, opened
from subreplay.rows.sorted_blocks import BY_POSITION, external_merge, shuffle_blocks, unpacked
from subreplay.whatif.traffic.measuring import OF_TOPIC, PLAIN, Profiler
from subreplay.whatif.traffic.profile import joined
from subreplay.whatif.traffic.storage import profiles_of
from tests.support.drawn import DAY, drawn

pytestmark = pytest.mark.spark
TABLES = ("messages", "membership", "deliveries")
Write = Callable[[pa.Table, Path], None]


def as_parquet(rows: pa.Table, path: Path) -> None:
    path.mkdir(parents=True)
    half = len(rows) // 2
    for number, part in enumerate((rows.slice(0, half), rows.slice(half))):
        pq.write_table(part, path / f"{number}.parquet", row_group_size=17)


def as_delta(rows: pa.Table, path: Path) -> None:
    write_deltalake(str(path), rows, partition_by=["topic", "date"])


FORMS: dict[str, Write] = {"parquet": as_parquet, "delta": as_delta}


@pytest.fixture(params=[("parquet", None), ("delta", DAY)], ids=["all of Parquet", "a day of Delta"])
def read(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Inputs:
    form, day = request.param
    draws = random.Random(f"{form}")
    for name in TABLES:
        FORMS[form](drawn(name, draws, 200), tmp_path / name)
    asked = {"traffic": {"path": str(tmp_path), "format": form}, "subscription": {"topic": "t"}}
    return read_inputs(spark, config.parse(asked | ({} if day is None else {"date": day}), "run.yaml"))


def test_counts_rows_and_members_are_those_that_spark_reads(read: Inputs) -> None:
    assert set(read.direct) == set(TABLES)
    theirs = {"messages": input_statistics._stored, "deliveries": input_statistics._served}
    for name, asked in theirs.items():
        found, expected = read.direct[name].counts(), collect.rows(asked(read.checked[name]))
        assert len(expected) > 3
        for row in (*found, *expected):  # nobody asks for the lowest position of what may be none
            row["lowest"] = row["valid"] and row["lowest"]
        assert _in_order(found) == _in_order(expected)
    for name in TABLES:
        expected = collect.rows(read.checked[name].groupBy("valid").count())
        assert _in_order(read.direct[name].count()) == _in_order(expected)
        rows = read.direct[name].rows().to_pylist()
        assert _in_order(rows) == _in_order(collect.rows_of(read.valid[name]).to_pylist())
        assert _in_order(rows) == _in_order(collect.rows_of(read.direct[name].frame()).to_pylist())
    order = itemgetter("at", "seq", "consumer", "event")
    expected = collect.rows(input_statistics._in_nanos(read.membership))
    members = read.direct["membership"].members()
    assert members == sorted(members, key=order)
    assert _in_order(members) == _in_order(expected)


def test_the_log_is_the_one_that_spark_makes(read: Inputs) -> None:
    log = as_log(read)
    for name, part in {"messages": log.messages, "deliveries": log.deliveries}.items():
        expected = collect.rows_of(part)
        found = pa.concat_tables(map(_table, read.direct[name].log_rows()), promote_options="default")
        columns = [column for column in expected.column_names if column != "content"]
        there = [column for column in columns if column in found.column_names]
        assert _in_order(found.select(there).to_pylist()) == _in_order(expected.select(there).to_pylist())
        assert all(expected[column].null_count == len(expected) for column in set(columns) - set(there))
        if name == "messages":
            assert _alike(found) == _alike(expected)


@pytest.mark.parametrize("day", [DAY - timedelta(days=1), DAY + timedelta(days=1)], ids=["early", "earlier"])
def test_rows_of_other_days_are_those_that_spark_reads(
    read: Inputs, day: Date, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of them as if a clock may be ahead by half a day and a microsecond."""
    monkeypatch.setattr(checkpoint, "AHEAD", 43_200_000_001_000)
    run = config.parse({"subscription": {"name": "sub", "topic": "t"}, "date": day}, "run.yaml")
    here, by_spark = (checkpoint.local_near(run, inputs, None, 0).near for inputs in (read, read.by_spark()))
    assert here is not None
    assert by_spark is not None
    for name in ("messages", "deliveries"):
        expected = collect.rows_of(by_spark[name]).to_pylist()
        assert expected or (name, day < DAY) == ("deliveries", True)
        assert _in_order(collect.rows_of(here[name]).to_pylist()) == _in_order(expected)


@pytest.mark.parametrize("day", [None, DAY + timedelta(days=1)], ids=str)
def test_few_rows_of_spark_s_tables_are_read_like_those_of_files(
    spark: SparkSession, read: Inputs, day: Date | None
) -> None:
    """With those of other days, and where a group has topics beside this one."""
    run = config.parse(
        {"subscription": {"name": "sub", "topic": "t", "policy": "kafka.range", "profile": "kafka-4.0"}, "date": day},
        "run.yaml",
    )
    frames = {name: read.tables[name] for name in TABLES}
    theirs = read_inputs(spark, run, frames)
    with closing(theirs.reads):
        assert not theirs.direct
        found = brought(theirs, run, None)
        expected = read.by_spark().having_brought(run, read.files)
        expected = replace(expected, direct={**expected.direct, "group": _group(run, read)})
        assert found.direct.keys() == {*TABLES, "group"} == expected.direct.keys()
        for name, reading in expected.direct.items():
            assert _in_order(found.direct[name].rows().to_pylist()) == _in_order(reading.rows().to_pylist())
            assert found.direct[name].count() == reading.count() != []
        for name in ("messages", "deliveries"):
            assert _in_order(found.direct[name].counts()) == _in_order(expected.direct[name].counts())
        if day is not None:
            near, wanted = (checkpoint.local_near(run, inputs, None, 0).near for inputs in (found, expected))
            for name in ("messages", "deliveries"):
                assert _in_order(_rows(near, name)) == _in_order(_rows(wanted, name))


@pytest.mark.parametrize(
    ("most", "left"),
    [
        ({"MOST_ROWS": 249}, {*TABLES}),
        ({"MOST_ROWS": 499}, {"messages", "deliveries"}),
        ({"MOST_ROWS": 500}, set()),
        ({"MOST_BYTES": 500}, {"messages", "deliveries"}),
    ],
)
def test_many_rows_of_spark_s_tables_stay_there(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: dict[str, int], left: set[str]
) -> None:
    """More than the driver takes, messages and deliveries together, or with keys that are too long."""
    run = config.parse({"subscription": {"name": "sub", "topic": "t"}}, "run.yaml")
    frames = {name: of_rows(spark, drawn(name, random.Random(1), 200), INPUTS[name]) for name in TABLES}
    same = {"topic": F.lit("t"), "subscription": F.lit("sub")}
    frames = {n: rows.withColumns({c: v for c, v in same.items() if c in rows.columns}) for n, rows in frames.items()}
    for name, number in most.items():
        monkeypatch.setattr(collect, name, number)
    theirs = read_inputs(spark, run, frames)
    with closing(theirs.reads):
        assert {*TABLES} - {*brought(theirs, run, None).direct} == left


def test_tasks_read_nothing_that_came_to_the_driver(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where rows turn out to be many, as with those of other days."""
    monkeypatch.setattr(checkpoint, "local_near", lambda _, inputs, *__: inputs)
    run = config.parse({"subscription": {"name": "sub", "topic": "t"}, "date": DAY}, "run.yaml")
    frames = {name: of_rows(spark, drawn(name, random.Random(1), 200), INPUTS[name]) for name in TABLES}
    source = source_of(spark, run, Kept(lambda: spark), frames)
    with closing(source.inputs.reads):
        assert not source.few
        assert not source.inputs.direct
        assert not source.log.direct


def test_tasks_read_what_the_driver_reads(read: Inputs, monkeypatch: pytest.MonkeyPatch) -> None:
    here = {name: read.direct[name] for name in ("messages", "deliveries")}
    for small in here.values():
        expected = small.counts()
        ordered = _merged(shuffle_blocks(small.log_rows(), BY_POSITION))
        monkeypatch.setattr(direct, "IN_PROCESS", 0)
        monkeypatch.setattr("subreplay.rows.scan.files.PIECE", 30)
        large = Reading(small.spark, small.files)
        assert not large.small
        assert len([*large.files.pieces()]) > 1
        assert _in_order(large.counts()) == _in_order(expected)
        blocks = unpacked(collect.rows_of(_blocks(large)).to_batches())
        assert _merged(blocks) == ordered
        monkeypatch.undo()


def test_a_profile_is_made_of_the_columns_that_it_needs(read: Inputs, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = as_log(read).messages.select(*PLAIN)
    monkeypatch.setattr(direct, "IN_PROCESS", 0)
    large = Reading(read.direct["messages"].spark, read.direct["messages"].files)
    schema = pa.schema([LOG.field(name) for name in PLAIN])

    def same(rows: Any) -> Any:
        return (batch.select(list(PLAIN)) for batch in rows)

    found = collect.rows_of(large.of_messages(same, schema, PLAIN)).to_pylist()
    assert _in_order(found) == _in_order(collect.rows_of(expected).to_pylist())
    here = [row for batch in same(read.direct["messages"].messages(PLAIN)) for row in batch.to_pylist()]
    assert _in_order(here) == _in_order(found)


@pytest.mark.parametrize(("more", "is_read"), [({}, True), ({"options": {"mergeSchema": "true"}}, False)])
def test_a_table_that_is_named_is_read_alike_where_it_is_as_plain(
    spark: SparkSession, tmp_path: Path, more: dict[str, Any], is_read: bool
) -> None:
    as_parquet(drawn("messages", random.Random(1), 200), tmp_path / "of_ours")
    given = {"path": str(tmp_path / "of_ours"), "format": "parquet"} | more
    asked = {"traffic": {"messages": given}, "subscription": {"topic": "t"}}
    found = read_inputs(spark, config.parse(asked, "run.yaml"), messages_only=True)
    assert ("messages" in found.direct) is is_read
    if is_read:
        rows = found.direct["messages"].rows().to_pylist()
        assert len(rows) > 10
        assert _in_order(rows) == _in_order(collect.rows_of(found.messages).to_pylist())


@pytest.mark.parametrize("log_waits", [True, False])
def test_a_profile_made_while_messages_are_counted_is_theirs(
    read: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_waits: bool
) -> None:
    small = read.direct["messages"]
    profiler = Profiler(IN_THE_CLEAR, read.topic)
    expected = profiler.profile(pa.Table.from_batches(small.messages(OF_TOPIC)))
    monkeypatch.setattr(direct, "IN_PROCESS", 0)
    monkeypatch.setattr("subreplay.rows.scan.files.PIECE", 30)
    large = Reading(small.spark, small.files, folder=str(tmp_path), log_waits=log_waits, profiler=profiler)
    assert large.counts() == small.counts()
    assert len(large.profiles) > 1
    assert (tmp_path / "messages-0").exists() == log_waits
    for most in (len(expected), len(expected) - 1):
        monkeypatch.setattr(profiled, "IN_PROCESS", most)
        left = profiled.left(large.spark, large.profiles, len(expected))
        assert isinstance(left, pa.Table) == (most == len(expected))
        blocks = left if isinstance(left, pa.Table) else collect.rows_of(left)
        found = joined([*profiles_of(blocks.to_batches())])
        assert len(found) == len(expected) > 0
        assert found.extent == expected.extent
        assert found.hottest(1_000) == expected.hottest(1_000)
        of_each, wanted = (sorted(zip(p.at, p.entry, p.size, strict=True)) for p in (found, expected))
        assert of_each == wanted


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.set_column(0, "date", rows["date"].cast(pa.timestamp("us"))),
        lambda rows: rows.drop_columns(["publish_time"]),
        lambda rows: rows.set_column(2, "partition", rows["partition"].cast(pa.int64())),
    ],
    ids=["another type", "without a column", "wider numbers"],
)
def test_what_is_not_as_plain_is_left_to_spark(tmp_path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    rows = drawn("messages", random.Random(1), 20)
    as_parquet(rows, tmp_path / "plain")
    as_parquet(change(rows), tmp_path / "other")
    assert isinstance(opened(str(tmp_path / "plain"), "parquet", "messages"), Files)
    assert opened(str(tmp_path / "other"), "parquet", "messages") is None
    assert opened(str(tmp_path / "nowhere"), "parquet", "messages") is None


def _group(run: config.RunConfig, read: Inputs) -> Reading:
    members = selection.of_members("sub", "t", run.date, since=True, others=True)
    return Reading(read.ingest.spark, read.files["membership"].where(members.expression))


def _rows(near: Any, name: str) -> list[dict[str, Any]]:
    return collect.rows_of(near[name]).to_pylist() if near else []


def _in_order(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


def _table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


def _merged(blocks: Any) -> list[dict[str, Any]]:
    ordered = sorted(blocks, key=lambda block: (block.scope, block.first_key))
    rows = [row for batch in external_merge(ordered, BY_POSITION) for row in batch.to_pylist()]
    return sorted(rows, key=repr)


def _alike(rows: pa.Table) -> set[frozenset[int]]:
    """Rows of one position, by number in order of all they have, that have one content."""
    position = ("topic", "partition", "ledger", "entry", "batch_index")
    others = [name for name in rows.column_names if name != "content"]
    of: dict[Any, set[str]] = {}
    for row in rows.to_pylist():
        key = (tuple(row[name] for name in position), row["content"])
        of.setdefault(key, set()).add(repr([row[name] for name in sorted(others) if row[name] is not None]))
    return {frozenset(map(hash, each)) for each in of.values()}
