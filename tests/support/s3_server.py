"""An S3 server (moto), which ``make stores`` fetches, behind a proxy that makes each commit of a Delta table slow and
loses some of the answers."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.support.cluster import free_port, is_open, wait_until

STORES = Path(os.environ.get("SUBREPLAY_STORES", Path(sys.prefix) / "stores"))
"""Folder ``s3`` is Hadoop's client for S3."""
SERVER = Path(__file__).parents[2] / "build" / "stores"
"""The packages of moto, which do not go together with those of the tests."""
BUCKET = "lake"
DELAY = 1.5  # seconds that a commit takes longer
LOST = 9  # of so many commits the answer to one is lost: the server has it, and the client gets an error


def missing() -> str | None:
    """Why there can be no S3 server; None if there can."""
    if not (SERVER / "moto").exists():
        return f"moto is not in {SERVER}: make stores installs it"
    if not any((STORES / "s3").glob("*hadoop-aws-*.jar")):
        why = STORES / "failed"
        return why.read_text() if why.exists() else f"hadoop-aws is not in {STORES}: make stores fetches it"
    return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Proxy

    def _pass_on(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else None
        path = self.path.partition("?")[0]
        is_commit = self.command == "PUT" and "/_delta_log/" in path and path.endswith(".json")
        if is_commit:
            time.sleep(DELAY)
        behind = http.client.HTTPConnection("127.0.0.1", self.server.behind, timeout=120)
        behind.request(self.command, self.path, body, dict(self.headers))
        answer = behind.getresponse()
        found = answer.read()
        behind.close()
        if is_commit and answer.status == http.HTTPStatus.OK and self.server.loses_answer():
            self.send_error(http.HTTPStatus.INTERNAL_SERVER_ERROR)
            return
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(name, value)
        is_head = self.command == "HEAD"
        self.send_header("Content-Length", answer.getheader("Content-Length", "0") if is_head else str(len(found)))
        self.end_headers()
        if not is_head:
            self.wfile.write(found)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _Proxy(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, behind: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind, self.commits, self.lost = behind, 0, 0
        self._lock = threading.Lock()

    def handle_error(self, *_: object) -> None:
        """Say nothing of a client that hangs up in the middle, as Hadoop's does when it has read enough."""

    def loses_answer(self) -> bool:
        """Count a commit; whether the client is to get an error all the same."""
        with self._lock:
            self.commits += 1
            loses = self.commits % LOST == 0
            self.lost += loses
            return loses


@contextmanager
def server(folder: Path) -> Iterator[_Proxy]:
    """A server with a bucket, and the proxy before it, until the end."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with (folder / "moto.log").open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, env=os.environ | {"PYTHONPATH": str(SERVER)})
    proxy = _Proxy(port)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    try:
        wait_until(lambda: is_open(port))
        made = http.client.HTTPConnection("127.0.0.1", port)
        made.request("PUT", f"/{BUCKET}")
        assert made.getresponse().status == http.HTTPStatus.OK
        yield proxy
    finally:
        proxy.shutdown()
        process.kill()
        process.wait()
