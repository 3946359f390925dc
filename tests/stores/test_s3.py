"""Output tables in S3, where each commit takes 1.5 s and some answers are lost: of two runs at once no row is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyarrow import fs

from subreplay.engine.local.engine import LocalEngine
from subreplay.reports.report_folder import open_store
from tests.support import s3_server
from tests.support.commands import VERDICTS, read_run, start_audit, wait_for, whole_run, write_inputs
from tests.support.s3_server import BUCKET, STORES, server

pytestmark = [
    pytest.mark.stores,
    pytest.mark.skipif(s3_server.missing() is not None, reason=str(s3_server.missing())),
]
SECRETS = {"access.key": "somebody", "secret.key": "secret"}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server(tmp_path_factory.mktemp("s3")) as proxy:
        yield f"http://127.0.0.1:{proxy.server_port}"
        assert proxy.lost


def settings(address: str) -> dict[str, str]:
    """Settings of Spark that reach the server."""
    of_hadoop = {"endpoint": address, "endpoint.region": "us-east-1", "path.style.access": "true", **SECRETS}
    jars = ",".join(map(str, sorted((STORES / "s3").glob("*.jar"))))
    return {"spark.jars": jars} | {f"spark.hadoop.fs.s3a.{name}": value for name, value in of_hadoop.items()}


def prepare(folder: Path, address: str, place: str, *subscriptions: str) -> list[Path]:
    """Run files whose output is a place in the store."""
    output = {"tables": f"s3a://{BUCKET}/{place}", "report": f"{folder}/report"}
    spark = {"master": "local[1]", "driver_memory": "1g", "conf": settings(address)}
    return write_inputs(folder, *subscriptions, output=output, spark=spark)


def audit_alone(run_file: Path, out: Path) -> dict[str, list[str]]:
    """What the local engine writes into a folder."""
    assert wait_for(start_audit(run_file, f"--out={out}", "--engine=local"))[0] in VERDICTS
    with closing(LocalEngine(cores=1)) as engine:
        return read_run(engine, run_file, out)


def read_store(address: str, place: str, names: list[str], subscription: str) -> dict[str, list[str]]:
    """What a reader finds in the store: rows of attempts that table ``runs`` names."""
    access = {
        "AWS_ACCESS_KEY_ID": SECRETS["access.key"],
        "AWS_SECRET_ACCESS_KEY": SECRETS["secret.key"],
        "AWS_ENDPOINT_URL": address,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }

    def read(name: str) -> pa.Table:
        return DeltaTable(f"s3://{BUCKET}/{place}/{name}", storage_options=access).to_pyarrow_table()

    finished = pc.unique(read("runs")["attempt"])
    tables = {name: read(name) for name in names}
    seen = {name: rows.filter(pc.is_in(rows["attempt"], finished)) for name, rows in tables.items()}
    return whole_run(seen, subscription)


def test_runs_of_different_subscriptions_are_both_there(address: str, tmp_path: Path) -> None:
    run_files = prepare(tmp_path, address, "different", "one", "other")
    expected = [audit_alone(run_file, tmp_path / "alone") for run_file in run_files]
    for _ in range(2):  # into tables that are not there yet, and into those that are
        both = [start_audit(run_file, "--quiet") for run_file in run_files]
        for code, said in map(wait_for, both):
            assert code in VERDICTS, said
        names = [*expected[0]]
        assert [read_store(address, "different", names, name) for name in ("one", "other")] == expected


def test_of_runs_of_one_subscription_one_holds_whole(address: str, tmp_path: Path) -> None:
    (run_file,) = prepare(tmp_path, address, "same", "s")
    expected = audit_alone(run_file, tmp_path / "alone")
    for _ in range(2):
        ended = [wait_for(each) for each in [start_audit(run_file, "--quiet") for _ in range(2)]]
        assert min(ended)[0] in VERDICTS, ended
        for code, said in ended:
            assert code in VERDICTS or (code == 4 and "another run is writing the same" in said), said
        assert read_store(address, "same", [*expected], "s") == expected


def test_a_report_and_its_log_go_to_the_store(tmp_path: Path) -> None:
    """The server itself, because the proxy does not pass on what pyarrow uploads in chunks."""
    with server(tmp_path) as proxy:
        settings = {f"spark.hadoop.fs.s3a.{name}": value for name, value in SECRETS.items()}
        settings |= {"spark.hadoop.fs.s3a.endpoint": f"http://127.0.0.1:{proxy.behind}"}
        place, spark = f"s3a://{BUCKET}/reports/day", {"conf": settings}
        output = {"tables": f"{tmp_path}/out", "report": place}
        (run_file,) = write_inputs(tmp_path, "s", output=output, spark=spark)
        code, said = wait_for(start_audit(run_file, "--engine=local", environment={"AWS_REGION": "us-east-1"}))
        assert code in VERDICTS, said
        store, root = open_store(place, settings | {"spark.hadoop.fs.s3a.endpoint.region": "us-east-1"})
        found = store.get_file_info(fs.FileSelector(root))
        names = ["report.html", "report.json", "report.txt", "subreplay.log"]
        assert sorted(each.base_name for each in found) == names
        with store.open_input_stream(f"{root}/report.html") as page:
            assert page.metadata()["Content-Type"] == b"text/html; charset=utf-8"
            assert page.read().startswith(b"<!doctype html>")
