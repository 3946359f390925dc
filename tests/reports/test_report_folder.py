"""The folder of a report is local or in a store; a run writes its report and its log there."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from subreplay.cli.main import main
from subreplay.errors import EnvironmentFailed
from subreplay.reports import report_folder
from subreplay.reports.report_folder import ReportFolder


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("build/report", "build/report"),
        ("/data/a:b/report/", "/data/a:b/report"),
        ("file:///data/report", "/data/report"),
        ("dbfs:/audits/report", "/dbfs/audits/report"),
        ("dbfs:/Volumes/main/subreplay/reports", "/Volumes/main/subreplay/reports"),
    ],
)
def test_a_folder_of_this_machine_is_a_path(location: str, path: str) -> None:
    folder = ReportFolder(location)
    assert (folder.is_in_store, str(folder.path)) == (False, path)


def test_access_to_s3_is_that_of_spark_or_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    settings = {
        "spark.hadoop.fs.s3a.endpoint": "http://store:9000",
        "spark.hadoop.fs.s3a.access.key": "somebody",
        "spark.hadoop.fs.s3a.bucket.lake.access.key": "lake-writer",
        "fs.s3a.secret.key": "secret",
    }
    assert report_folder._read_s3_options("lake", settings) == {
        "access_key": "lake-writer", "secret_key": "secret", "region": "eu-central-1",
        "endpoint_override": "store:9000", "scheme": "http",
    }  # fmt: skip


class _Objects(BaseHTTPRequestHandler):
    """An S3 server as far as an upload needs one: it keeps what is put."""

    protocol_version = "HTTP/1.1"
    server: Any

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self) -> None:
        self._answer(200 if self.path.count("/") == 1 else 404)

    def do_POST(self) -> None:
        self._read()
        if self.path.endswith("?uploads"):
            self._answer(200, b"<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>")
        else:
            self._answer(200, b"<CompleteMultipartUploadResult><ETag>1</ETag></CompleteMultipartUploadResult>")

    def do_PUT(self) -> None:
        if self.server.refuses:
            self._read()
            self._answer(403, b"<Error><Code>AccessDenied</Code></Error>")
            return
        self.server.objects[self.path.partition("?")[0]] = self._read()
        self._answer(200, ETag="1")

    def _read(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():  # checksums
            pass
        return b"".join(parts)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def objects(refuses: bool = False) -> Iterator[Any]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Objects)
    server.daemon_threads = True
    server.objects, server.refuses = {}, refuses  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()


@pytest.fixture
def access(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ACCESS_KEY_ID": "somebody", "SECRET_ACCESS_KEY": "secret", "REGION": "us-east-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)


@pytest.mark.usefixtures("access")
def test_an_audit_writes_its_report_and_its_log_to_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = tmp_path / "in"
    assert main(["ingest", "tests/data/recordings/4.0.8/s9b_delayed_failover", "--to", str(tables)]) == 0
    run = yaml.safe_load((tables / "audit.yaml").read_text())
    run["output"] = {"tables": str(tmp_path / "out"), "report": "s3a://lake/audits/day"}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(run))
    with objects() as store:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{store.server_port}")
        capsys.readouterr()
        files = ["--junit", "s3://lake/ci/junit.xml", "--metrics", "s3://lake/ci/subreplay.prom"]
        assert main(["audit", "--config", str(tmp_path / "run.yaml"), "--engine", "local", "--json", *files]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [told[name] for name in ("junit", "metrics")] == [files[1], files[3]]
    assert store.objects.pop("/lake/ci/junit.xml").count(b"<?xml") == 1
    assert store.objects.pop("/lake/ci/subreplay.prom").count(b"# TYPE subreplay_verdict") == 1
    assert told["report"]["html"] == "s3a://lake/audits/day/report.html"
    assert told["log"] == "s3a://lake/audits/day/subreplay.log"
    names = {"report.html", "report.json", "report.txt", "subreplay.log"}
    assert {*store.objects} == {f"/lake/audits/day/{name}" for name in names}
    assert b"<!doctype html>" in store.objects["/lake/audits/day/report.html"].lower()
    assert not [*Path.cwd().glob("s3a:*")]


@pytest.mark.usefixtures("access")
def test_a_store_that_refuses_ends_a_run_at_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    with objects(refuses=True) as store:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{store.server_port}")
        folder = ReportFolder("s3://lake/audits")
        (folder.path / "report.txt").write_text("valid")
        with pytest.raises(EnvironmentFailed, match=r"s3://lake/audits: no file can be written there"):
            folder.upload()
        folder.remove_copy()
    assert not folder.path.exists()
