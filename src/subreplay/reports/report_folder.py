"""The folder of a report: a local one, or one in a store (S3, Azure, Google Cloud), to which its files are uploaded.

A driver in cluster mode has no disk that anybody sees, so its report and log go to a store.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from subreplay.errors import EnvironmentFailed

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_SCHEME: Final = re.compile(r"(dbfs|file|[a-zA-Z][\w+.-]*(?=://)):", re.IGNORECASE)
_S3: Final = ("s3", "s3a", "s3n")
_TYPES: Final = {".html": "text/html; charset=utf-8", ".json": "application/json", ".xml": "application/xml"}


class ReportFolder:
    """Where the files of a report go. ``path`` is a local folder to write them to.

    ``settings`` are those of Spark, of which ``spark.hadoop.fs.s3a.…`` may contain the access to S3.
    """

    def __init__(self, location: str, settings: Mapping[str, str] | None = None) -> None:
        self.location = location.rstrip("/") or location
        self._settings = settings or {}
        scheme = _SCHEME.match(location)
        if scheme is not None and scheme[1].lower() in ("file", "dbfs"):
            # a driver of Databricks has the root of its file system below /dbfs, but volumes below /Volumes
            path = re.sub("^/+", "/", location[scheme.end() :])
            is_root = scheme[1].lower() == "dbfs" and not path.startswith("/Volumes/")
            self.location, scheme = f"/dbfs{path}" if is_root else path, None
        self.is_in_store = scheme is not None
        self.path = Path(tempfile.mkdtemp(prefix="subreplay-report-")) if self.is_in_store else Path(self.location)

    def describe(self, path: Path) -> str:
        """Return the address of a file of the folder as its readers know it."""
        if self.is_in_store and path.is_relative_to(self.path):
            return f"{self.location}/{path.relative_to(self.path).as_posix()}"
        return str(path.resolve())

    def upload(self) -> None:
        """Copy all files to the store. A reader of the store never sees a part of a file.

        Raises ``EnvironmentFailed`` if the store does not take them.
        """
        if not self.is_in_store:
            return
        try:
            store, root = open_store(self.location, self._settings)
            for path in sorted(file for file in self.path.rglob("*") if file.is_file()):
                name = f"{root}/{path.relative_to(self.path).as_posix()}"
                kind = {"Content-Type": _TYPES.get(path.suffix, "text/plain; charset=utf-8")}
                with store.open_output_stream(name, metadata=kind) as file:
                    file.write(path.read_bytes())
        except (OSError, ValueError) as error:
            why = str(error).splitlines()[0]
            raise EnvironmentFailed(
                f"{self.location}: no file can be written there ({why}). Check the address and the access that "
                "environment variables (AWS_ACCESS_KEY_ID, …) or the machine's role give, or write to a local folder"
            ) from error

    def remove_copy(self) -> None:
        """Remove the local copy of a folder in a store."""
        if self.is_in_store:
            shutil.rmtree(self.path, ignore_errors=True)


def open_store(location: str, settings: Mapping[str, str]) -> tuple[FileSystem, str]:
    """Open the file system of an address, and return it with the path in it."""
    from pyarrow import fs

    parts = urlsplit(location)
    if parts.scheme.lower() not in _S3:
        system, path = fs.FileSystem.from_uri(location)
        return system, path
    return fs.S3FileSystem(**_read_s3_options(parts.netloc, settings)), f"{parts.netloc}{parts.path}"


def _read_s3_options(bucket: str, settings: Mapping[str, str]) -> dict[str, Any]:
    """Read pyarrow's options for a bucket from settings of Hadoop's file system, else from the environment."""

    def find(name: str, *variables: str) -> str | None:
        names = (f"fs.s3a.bucket.{bucket}.{name}", f"fs.s3a.{name}")
        keys = [f"{prefix}{each}" for prefix in ("spark.hadoop.", "") for each in names]
        values = [*map(settings.get, keys), *map(os.environ.get, variables)]
        return next((value for value in values if value), None)

    options: dict[str, Any] = {
        "access_key": find("access.key"),
        "secret_key": find("secret.key"),
        "session_token": find("session.token"),
        "region": find("endpoint.region", "AWS_REGION", "AWS_DEFAULT_REGION"),
    }
    if endpoint := find("endpoint", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        scheme, _, host = endpoint.rpartition("://")
        options |= {"endpoint_override": host.rstrip("/"), "scheme": scheme or "https"}
        if find("connection.ssl.enabled") == "false":
            options["scheme"] = "http"
    return {name: value for name, value in options.items() if value is not None}
