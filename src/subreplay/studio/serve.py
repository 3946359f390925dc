"""Start the server of the studio on a free or given port."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import current_thread, main_thread

import uvicorn

from subreplay.errors import EnvironmentFailed
from subreplay.studio.access import Access
from subreplay.studio.replay import BackgroundReplay
from subreplay.studio.server import Studio
from subreplay.studio.workbench import Workbench


class _Server(uvicorn.Server):
    """A server whose program goes on after an interruption: that is how a user ends the studio."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if current_thread() is not main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@dataclass(frozen=True)
class StudioServer:
    """A server that listens already. ``url`` is the address to open. ``run`` serves until an interruption."""

    url: str
    listener: socket.socket
    server: uvicorn.Server

    def run(self) -> None:
        self.server.run(sockets=[self.listener])


def create_server(
    workbench: Workbench, host: str, port: int, public_url: str | None = None, replay: BackgroundReplay | None = None
) -> StudioServer:
    """Create a server. Port 0 chooses a free port. Raises ``EnvironmentFailed`` if it cannot listen there."""
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        why = f"--host {host} --port {port}: cannot listen there. Choose another port. ({error.strerror})"
        raise EnvironmentFailed(why) from error
    port = listener.getsockname()[1]
    access = Access.create(host, port, public_url)
    app = Studio(workbench, access, replay).build_app()
    config = uvicorn.Config(
        app, log_level="warning", limit_concurrency=64, server_header=False, proxy_headers=False,
        timeout_graceful_shutdown=2,
    )  # fmt: skip
    return StudioServer(access.build_url(host, port, public_url), listener, _Server(config))
