"""Serve the studio as a Databricks App, over a kept profile that is downloaded from a volume first."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from subreplay.cli.main import main


def download(client: Any, source: str, target: Path) -> None:
    """Copy a folder of a volume to a local folder."""
    target.mkdir(parents=True, exist_ok=True)
    for entry in client.files.list_directory_contents(source):
        if entry.is_directory:
            download(client, entry.path, target / entry.name)
        else:
            (target / entry.name).write_bytes(client.files.download(entry.path).contents.read())


def build_arguments(folder: str, environment: dict[str, str]) -> list[str]:
    """Return the command line of the studio. The platform names the port at which its proxy expects the app."""
    return [
        "studio", "--profile", folder, "--host", "0.0.0.0", "--port", environment["DATABRICKS_APP_PORT"],
        "--public-url", environment["PUBLIC_URL"], "--no-open",
    ]  # fmt: skip


if __name__ == "__main__":
    from databricks.sdk import WorkspaceClient

    with tempfile.TemporaryDirectory() as folder:
        download(WorkspaceClient(), os.environ["PROFILE"], Path(folder))
        sys.exit(main(build_arguments(folder, dict(os.environ))))
