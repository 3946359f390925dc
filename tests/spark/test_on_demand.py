"""What the driver can do by itself starts no Spark; whatever needs it gets the session at its first question."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest

from subreplay.cli import runs
from subreplay.config import run as config
from subreplay.config.run import Spark
from subreplay.engine.spark import lake
from subreplay.engine.spark.lazy_session import can_wait, on_demand
from subreplay.engine.spark.local_delta import is_here
from subreplay.engine.spark.session import fit_batches
from subreplay.rows.model.tables import INPUTS
from tests.support.recordings import ROOT

ELSEWHERE = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT",
             "DATABRICKS_RUNTIME_VERSION")  # fmt: skip
OF_HADOOP = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
COMMANDS = """
import sys
from pathlib import Path
from subreplay.cli.main import main
from subreplay.engine.spark import session

def refused(options):
    raise AssertionError("Spark is not needed")

session.open_session = refused
recording, to = sys.argv[1:]
code = main(["ingest", recording, "--to", to])
assert code == 0, code
config = ["--config", f"{to}/audit.yaml", "--out", f"{to}/out"]
Path(to, "parquet/messages").mkdir(parents=True)  # no table of Delta
two = Path(to, "two.yaml")
two.write_text(Path(to, "audit.yaml").read_text() + '''
scenarios:
  - {name: recorded, policy: pulsar.key_shared.auto_split, profile: pulsar-4.0, members: recorded}
  - {name: two, policy: pulsar.failover, profile: pulsar-4.0, members: [{consumer: a}, {consumer: b}]}
''')
for command, codes in (
    (["audit", *config], (0, 1)),
    (["audit", *config, "--tables", f"{to}/nowhere"], (2,)),
    (["audit", *config, "--tables", f"{to}/parquet"], (2,)),
    (["audit", "--config", str(two), "--out", f"{to}/two"], (0, 1)),
    (["whatif", "--config", str(two), "--out", f"{to}/two"], (0,)),
    (["plan", "ranges", *config, "--consumers", "3"], (0,)),
    (["explain", "--key", "any", *config, "--last", "3"], (0,)),
    (["explain", "--message", "orders:1:2", *config], (2,)),  # there is no such message
    (["report", f"{to}/out/report/report.json", "--out", f"{to}/again"], (0,)),
):
    code = main(command)
    assert code in codes, (command, code)
"""


class Conf(dict[str, str]):
    set = dict.__setitem__


def session(**settings: str) -> Any:
    jobs: dict[str, Any] = {"interruptAll": lambda: ["job"], "sql": lambda text: f"of {text}"}
    return SimpleNamespace(conf=Conf(settings), version="9", **jobs)


@pytest.fixture(autouse=True)
def nothing_is_decided_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ELSEWHERE + OF_HADOOP:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.long
def test_of_few_rows_in_files_of_this_machine_no_command_needs_spark(tmp_path: Path) -> None:
    """In a process that has no session: Spark's functions would not work, either."""
    command = [sys.executable, "-c", COMMANDS, str(ROOT / "4.0.8/s1f_key_shared_default_batching"), str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_it_starts_once_however_many_ask_at_once() -> None:
    started, ready = [], Barrier(8)

    def start() -> Any:
        started.append(session())
        return started[-1]

    spark = on_demand(Spark(), start)
    assert started == []

    def ask(number: int) -> object:
        ready.wait()
        return spark.sql(str(number))

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(ask, range(8))) == [f"of {number}" for number in range(8)]
    assert len(started) == 1


def test_what_it_was_told_before_it_was_there_holds_then() -> None:
    real = session()
    spark = on_demand(Spark(), lambda: real)
    fit_batches(spark, 1_000_000)
    assert real.conf == {}
    assert spark.conf.get("spark.sql.parquet.columnarReaderBatchSize") == "33"
    spark.sql("")
    assert real.conf["spark.sql.parquet.columnarReaderBatchSize"] == "33"
    fit_batches(spark, 0)
    assert real.conf["spark.sql.parquet.columnarReaderBatchSize"] == "128"


def test_of_what_nobody_has_set_spark_alone_knows_its_own_value() -> None:
    spark = on_demand(Spark(conf={"a": "1"}), lambda: session(b="2"))
    assert (spark.conf.get("a"), spark.conf.get("b", None)) == ("1", None)
    assert spark.conf.get("b") == "2"  # asks the session


def test_without_a_session_there_is_nothing_to_break_off() -> None:
    spark = on_demand(Spark(), session)
    assert (spark.version, spark.interruptAll()) == (pyspark.__version__, [])
    spark.sql("")
    assert (spark.version, spark.interruptAll()) == ("9", ["job"])


@pytest.mark.parametrize(
    ("options", "here"),
    [
        (Spark(), True),
        (Spark(conf={"spark.hadoop.fs.defaultFS": "hdfs://name:9000"}), False),
        (Spark(conf={"fs.defaultFS": "hdfs://name:9000"}), False),
    ],
)
def test_files_are_of_this_machine_where_the_run_file_says_nothing_else(options: Spark, here: bool) -> None:
    def start() -> Any:
        raise AssertionError("this is known without Spark")

    assert is_here(on_demand(options, start), "build/tables") is here


@pytest.mark.parametrize(
    ("path", "form", "why"),
    [
        ("nowhere", "parquet", "PATH_NOT_FOUND"),
        ("plain", "parquet", None),
        ("plain", "delta", "DELTA_TABLE_NOT_FOUND"),
        ("table", "delta", None),
        ("table/date=2026-11-28", "delta", None),
        ("table@v3", "delta", None),  # the table as it was
        ("table@20261128000000000", "delta", None),
        ("db.table", "iceberg", None),  # a name
        ("t?ble", "csv", None),
    ],
)
def test_what_is_no_table_is_told_without_spark_and_what_may_be_one_is_not(
    here: Path, path: str, form: str, why: str | None
) -> None:
    for folder in ("plain", "table/_delta_log", "table/date=2026-11-28"):
        (here / folder).mkdir(parents=True)
    assert lake.missing(session(**{"spark.master": "local[2]"}), path, form) == why


@pytest.mark.parametrize("name", ["SPARK_HOME", "SPARK_CONF_DIR", *OF_HADOOP])
def test_settings_of_hadoop_may_put_a_path_without_scheme_into_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = tmp_path / "conf"
    folder.mkdir()
    monkeypatch.setenv(name, str(tmp_path if name == "SPARK_HOME" else folder))
    assert is_here(session(**{"spark.master": "local[2]"}), "build/tables")
    (folder / "core-site.xml").write_text("<configuration/>")
    assert not is_here(session(**{"spark.master": "local[2]"}), "build/tables")


def test_on_databricks_one_machine_is_not_where_paths_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    assert not is_here(session(**{"spark.master": "local[*, 4]"}), "/mnt/tables")


@pytest.mark.parametrize("options", [Spark(master="spark://name:7077"), Spark(remote="sc://name")])
def test_a_cluster_is_asked_at_once(options: Spark) -> None:
    assert can_wait(Spark())
    assert not can_wait(options)


def test_tables_of_many_bytes_will_need_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in INPUTS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "part.parquet").write_bytes(b"x" * 100)
    run = config.parse({"traffic": {"path": str(tmp_path)}}, "run.yaml")
    monkeypatch.setattr(runs, "_LARGE", 300)
    assert not runs.needs_spark(run)
    monkeypatch.setattr(runs, "_LARGE", 299)
    assert runs.needs_spark(run)
    one = {"path": f"{tmp_path}/messages/part.parquet", "format": "parquet"}
    elsewhere = {"path": f"{tmp_path}/nowhere", "messages": one}
    assert not runs.needs_spark(config.parse({"traffic": elsewhere}, "run.yaml"))


@pytest.mark.parametrize("name", ELSEWHERE)
def test_settings_of_the_environment_are_asked_of_spark_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "x")
    assert not can_wait(Spark())
