"""The questions of frames: what they answer equals what the commands answer, and nothing is left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import as_file, files
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pyspark.sql.functions as F
import pytest
from chispa import assert_df_equality
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import subreplay
from subreplay.adapters import ADAPTERS
from subreplay.cli.main import main
from subreplay.engine.spark import frame_tables
from subreplay.engine.spark.datasets import make_nullable
from subreplay.engine.spark.session import FrameCache, fit_batches
from subreplay.errors import ConfigError, InputError
from subreplay.pipeline.attempts import ATTEMPT
from subreplay.reports.json_report import to_json
from subreplay.rows.model.rows import Verdict
from tests.support.history import TOPIC, history
from tests.support.tables import OF_ONE_ENGINE, OF_ONE_RUN

AUTO_SPLIT = {"policy": "pulsar.key_shared.auto_split", "profile": "pulsar-4.0"}
TWO = {"name": "two", "policy": "pulsar.key_shared.auto_split", "members": [{"consumer": "a"}, {"consumer": "b"}]}
STORY = "+C1 +C2 a1>C2 a1! a2>C1 a2! n1>C1 n1!"  # a2 goes to the wrong one
BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"


class Bundled(NamedTuple):
    """The bundled recording, audited by the command and by the function."""

    code: int
    tables: str
    report: str
    result: Any
    left: list[str]  # in the working directory, which was empty
    batch: tuple[str, str]  # a setting of the session, before and after


@pytest.fixture(scope="module")
def bundled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bundled]:
    out, empty = tmp_path_factory.mktemp("command"), tmp_path_factory.mktemp("empty")
    with as_file(files("subreplay.demo") / "recording") as recording:
        assert main(["ingest", str(recording), "--to", f"{out}/in", "--quiet"]) == 0
        ingested = ADAPTERS["pulsar-recording"](recording)
    code = main(["audit", "--config", f"{out}/in/audit.yaml", "--out", str(out), "--quiet"])
    frames = {name: spark.createDataFrame(rows) for name, rows in ingested.tables.items()}
    spark.conf.set(BATCH_ROWS, "777")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(empty)
        result = subreplay.audit(**frames, **ingested.run)
        assert result.violations.count() >= 0
    batch = "777", str(spark.conf.get(BATCH_ROWS))
    spark.conf.unset(BATCH_ROWS)
    report = (out / "report/report.json").read_text()
    yield Bundled(code, f"{out}/tables", report, result, os.listdir(empty), batch)
    result.close()


@pytest.fixture(scope="module")
def frames(spark: SparkSession) -> dict[str, DataFrame]:
    return {name: spark.createDataFrame(rows) for name, rows in history("a1 a2 n1", STORY).items()}


@pytest.mark.spark
def test_the_verdict_and_the_report_are_those_of_the_command(bundled: Bundled) -> None:
    assert bundled.code == 0
    assert bundled.result.verdict is Verdict.VALID
    of_api, of_command = json.loads(to_json(bundled.result.report)), json.loads(bundled.report)
    assert (of_api["run"].pop("engine")["name"], of_command["run"].pop("engine")["name"]) == ("spark", "local")
    assert of_api == of_command
    assert repr(bundled.result) == f"valid: {bundled.result.report.headline}"


@pytest.mark.spark
def test_every_result_table_is_that_of_the_command(spark: SparkSession, bundled: Bundled) -> None:
    written = sorted(path.name for path in Path(bundled.tables).iterdir())
    assert sorted(bundled.result.tables) == written
    for name in written:
        frame, table = getattr(bundled.result, name), frame_tables.read_table(spark, bundled.tables, name, "delta")
        assert sorted(frame.dtypes) == sorted(table.drop(ATTEMPT).dtypes)
        of_frame, of_table = make_nullable(frame).toArrow(), DeltaTable(f"{bundled.tables}/{name}").to_pyarrow_table()
        if name == "runs":  # which names the engine
            of_frame, of_table = (rows.drop_columns([*OF_ONE_ENGINE]) for rows in (of_frame, of_table))
        columns = sorted({*of_table.column_names} - OF_ONE_RUN)
        one, other = (sorted(map(repr, rows.select(columns).to_pylist())) for rows in (of_frame, of_table))
        assert one == other
    assert set(written) < set(dir(bundled.result))
    with pytest.raises(AttributeError, match="choose one of audited, loads, violations, "):
        bundled.result.violation  # noqa: B018


@pytest.mark.spark
def test_nothing_is_written_and_the_session_stays_as_it_was(bundled: Bundled) -> None:
    assert bundled.left == []
    assert bundled.batch == ("777", "777")


@pytest.mark.spark
def test_a_notebook_shows_the_page_in_a_frame_of_its_own(bundled: Bundled) -> None:
    shown = bundled.result._repr_html_()
    assert shown.startswith('<iframe sandbox="allow-scripts" title="Subscription audit"')
    assert shown.count("<") == 2  # the frame's own tags: all of the page is quoted
    assert bundled.result.page.startswith("<!doctype html>")


@pytest.mark.spark
def test_a_key_is_explained_with_the_findings_of_the_audit(bundled: Bundled) -> None:
    reported = bundled.result.explain(key="Order-1466420", last=3)
    assert "  epoch 4: c4 joined at 03:24:59.423714: c4  <- moved from c1" in reported.lines
    assert "judged by the audit that wrote these frames" in reported.lines
    assert reported._repr_html_() == f"<pre>{str(reported).replace('<', '&lt;').replace('>', '&gt;')}</pre>"
    unknown = bundled.result.explain(key="never seen")
    assert unknown.lines[-1] == "no message of this key in messages, membership, deliveries"


@pytest.mark.spark
def test_results_go_to_a_folder_where_one_is_named(
    spark: SparkSession, frames: dict[str, DataFrame], tmp_path: Path
) -> None:
    result = subreplay.audit(**frames, **AUTO_SPLIT, out=tmp_path)
    assert result.verdict is Verdict.INVALID
    assert sorted(path.name for path in (tmp_path / "report").iterdir()) == [
        "report.html", "report.json", "report.txt"
    ]  # fmt: skip
    assert [row.code for row in result.violations.collect()] == ["WRONG_OWNER"]
    assert_df_equality(result.violations, frame_tables.read_table(spark, f"{tmp_path}/tables", "violations", "delta"))
    reported = result.explain(message=f"{TOPIC}:1:1").lines
    assert f"judged by the audit that wrote {tmp_path}/tables" in reported
    assert any("WRONG_OWNER (invalid): 1:1 " in line for line in reported)


@pytest.mark.spark
def test_without_a_membership_every_consumer_with_a_delivery_counts_as_connected(frames: dict[str, DataFrame]) -> None:
    reported = {name: frame for name, frame in frames.items() if name != "membership"}
    with subreplay.audit(**reported, **AUTO_SPLIT) as result:
        assert result.verdict is Verdict.UNKNOWN
        assert {code.code: code.status for code in result.report.codes}["WRONG_OWNER"] == "unknown"


@pytest.mark.spark
def test_a_what_if_takes_messages_in_any_columns(spark: SparkSession, here: Path) -> None:
    rows = [(f"order {i % 5}", 1_700_000_000_000 + i, i) for i in range(100)]
    theirs = spark.createDataFrame(rows, "id string, sent long, nr long")
    columns = {
        "key": {"column": "id", "as": "utf8"},
        "publish_time": {"column": "sent", "as": "epoch_ms"},
        "offset": "nr",
    }
    values = {"topic": "orders", "partition": -1}
    result = subreplay.whatif(theirs, scenarios=[TWO], columns=columns, values=values)
    consumers = result.report.scenarios[0].per_consumer
    assert sum(consumer.messages for consumer in consumers) == 100
    assert [row["name"] for row in result.scenarios.collect()] == ["two"]
    by_table = subreplay.whatif(theirs, scenarios=[TWO], columns={"messages": columns}, values={"messages": values})
    assert by_table.report == result.report
    assert os.listdir(here) == []


@pytest.mark.spark
@pytest.mark.parametrize(
    ("function", "arguments", "error", "why"),
    [
        ("audit", {"polcy": "pulsar.shared"}, ConfigError, "audit: unknown key polcy; did you mean 'policy'?"),
        ("audit", {"policy": "pulsar.share"}, ConfigError, "audit: subscription: unknown policy"),
        ("audit", {"profile": "9"}, ConfigError, "audit: subscription: pulsar.key_shared.consistent_hash has"),
        ("audit", {"windows": {"widht": "1s"}}, ConfigError, "unknown key windows.widht; did you mean 'width'?"),
        ("audit", {"date": "today"}, ConfigError, "subreplay.audit: date: not a day; write YYYY-MM-DD"),
        ("audit", {"subscription": 7}, ConfigError, "audit: subscription: a mapping of keys is needed, not int"),
        ("audit", {"messages": "a path"}, ConfigError, "messages is of type str; pass a pyspark DataFrame"),
        ("audit", {"deliveries": None}, InputError, "deliveries: this DataFrame is missing"),
        ("audit", {"columns": {"messages": {"kee": "k"}}}, ConfigError, "messages.columns: name 'kee' is unknown"),
        ("audit", {"columns": {"key": "nothing"}}, InputError, "messages: .*nothing"),
        ("audit", {"columns": ["key"]}, ConfigError, "columns: a mapping of names is needed, not list"),
        ("whatif", {"scenarios": []}, ConfigError, "whatif: scenarios is empty; a what-if needs at least one"),
        ("whatif", {"scenarios": [TWO], "values": {"deliveries": {"seq": 0}}, "deliveries": None}, ConfigError,
         "values has an entry deliveries, but that table is missing; pass deliveries"),
        ("explain", {}, ConfigError, "subreplay.explain: pass either key or message"),
        ("explain", {"message": "t:1"}, ConfigError, "message t:1: write TOPIC:LEDGER:ENTRY"),
        ("explain", {"message": "t:1:2", "deliveries": None}, ConfigError, "message needs messages and deliveries"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_reported_like_those_of_a_run_file(
    frames: dict[str, DataFrame], function: str, arguments: dict[str, Any], error: type[Exception], why: str
) -> None:
    with pytest.raises(error, match=why):
        getattr(subreplay, function)(**frames | arguments)


@pytest.mark.spark
def test_a_missing_column_is_named(frames: dict[str, DataFrame]) -> None:
    lacking = frames | {"messages": frames["messages"].drop("entry")}
    with pytest.raises(InputError, match="messages: missing columns: entry; map or cast them before the run"):
        subreplay.audit(**lacking)


@pytest.mark.spark
def test_a_stream_is_refused(spark: SparkSession, frames: dict[str, DataFrame]) -> None:
    stream = spark.readStream.format("rate").load()
    with pytest.raises(ConfigError, match=r"messages is a stream, which never ends; pass a table \(spark.read\)"):
        subreplay.audit(**frames | {"messages": stream})


@pytest.mark.spark
def test_frames_that_no_platform_keeps_are_computed_again(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> DataFrame:
        raise PySparkException("[NOT_SUPPORTED_WITH_SERVERLESS] PERSIST TABLE is not supported")

    rows = spark.range(3)
    monkeypatch.setattr(type(rows), "persist", refused)
    kept = FrameCache()
    assert [row.id for row in kept.keep(rows).collect()] == [0, 1, 2]
    kept.release()


@pytest.mark.spark
def test_a_closed_result_keeps_nothing(spark: SparkSession) -> None:
    kept = FrameCache()
    found = kept.keep(spark.range(3).withColumn("n", F.lit(1)))
    assert found.storageLevel.useMemory
    kept.release()
    assert not found.storageLevel.useMemory
    assert found.count() == 3


def test_a_setting_that_a_platform_refuses_stays_as_it_is() -> None:
    def refused(*_: object) -> None:
        raise PySparkException("[CONFIG_NOT_AVAILABLE] Configuration is not available")

    fit_batches(SimpleNamespace(conf=SimpleNamespace(set=refused)))  # type: ignore[arg-type]


def test_members_that_nobody_recorded_need_no_table() -> None:
    reported = subreplay.explain(key="Order-3459134", scenarios=[TWO])
    assert "murmur3 3112179635 (32 bits, seed 0); 964695987 (31 bits, as Pulsar keeps it)" in reported.lines
    assert "two: pulsar.key_shared.auto_split under pulsar-4.0" in str(reported)


NAMES = """
import sys
import subreplay
import subreplay.capture
assert not {"pyspark", "numba", "pandas"} & set(sys.modules), "import subreplay is light"
from subreplay.audit.codes import Code          # a package of the same name is there
import subreplay.whatif.scenario
assert callable(subreplay.audit) and callable(subreplay.whatif) and callable(subreplay.explain)
import inspect
assert list(inspect.signature(subreplay.audit).parameters)[:3] == ["messages", "deliveries", "membership"]
import pickle
assert subreplay.audit.codes.Code is pickle.loads(pickle.dumps(Code))
from subreplay.api import functions
assert subreplay.api.functions.murmur3 is functions.murmur3
assert not hasattr(subreplay, "no_such_name")
"""


@pytest.mark.long
def test_the_names_are_there_and_cost_nothing_until_they_are_used() -> None:
    ran = subprocess.run([sys.executable, "-c", NAMES], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


CONNECT = """
import sys
from pyspark.sql import SparkSession
import subreplay
from subreplay.api import functions
from tests.support.connect import free_port
from tests.support.history import history

builder = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "2")
spark = builder.config("spark.connect.grpc.binding.port", free_port()).getOrCreate()
assert "connect" in type(spark).__module__, type(spark)
frames = {name: spark.createDataFrame(rows) for name, rows in history("a1 a2 n1", sys.argv[1]).items()}
policy = {"policy": "pulsar.key_shared.auto_split", "profile": "pulsar-4.0"}
result = subreplay.audit(**frames, **policy)
assert [row.code for row in result.violations.collect()] == ["WRONG_OWNER"], result
owners = functions.owners(frames["membership"], **policy)
functions.register(spark, owners)
row = spark.sql("SELECT murmur3('a'), slot('a', 'pulsar-4.0'), kafka_partition('a', 7), owner('a', now())").first()
assert tuple(row) == (1009084850, 42456, 5, "C2"), row
result.close()
del result, owners, frames, row  # what is left at the end pyspark frees by a thread, which then waits for ever
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.slow
def test_questions_are_answered_under_spark_connect(here: Path) -> None:
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": f"{root / 'src'}:{root}"}
    command = [sys.executable, "-c", CONNECT, STORY]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert os.listdir(here) == []
