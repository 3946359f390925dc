"""Start the server of the studio on a free or given port."""

from __future__ import annotations

import socket
from dataclasses import dataclass

import uvicorn

from subreplay.errors import EnvironmentFailed
from subreplay.studio.access import Access
from subreplay.studio.replay import BackgroundReplay
from subreplay.studio.server import Studio
from subreplay.studio.workbench import Workbench


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
    config = uvicorn.Config(app, log_level="warning", limit_concurrency=64, server_header=False, proxy_headers=False)
    return StudioServer(access.build_url(host, port, public_url), listener, uvicorn.Server(config))
