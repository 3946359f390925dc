"""Read capture files as batches of events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from subreplay.adapters.capture.event_checks import NUMBERED_EVENTS
from subreplay.capture.capture_files import list_capture_files
from subreplay.capture.file_format import EVENTS, METADATA, VERSION
from subreplay.errors import InputError
from subreplay.failures import describe_os_error
from subreplay.rows.model.columns import ROWS


class CaptureSource(NamedTuple):
    """A capture file, its name in rows, and its number."""

    path: Path
    name: str
    number: int


def list_sources(folder: Path) -> tuple[CaptureSource, ...]:
    """List the capture files of a folder. Raises ``InputError`` where there is none."""
    found = tuple(
        CaptureSource(path, str(path.relative_to(folder)), i) for i, path in enumerate(list_capture_files(folder))
    )
    if not found:
        raise InputError(f"{folder}: the folder contains no capture file. Record consumers with subreplay.capture.wrap")
    return found


def read_events(source: CaptureSource) -> Iterator[pa.Table]:
    """Read the events of a file (``NUMBERED_EVENTS``), ``ROWS`` at a time.

    Raises ``InputError`` where it is not a capture file of this version, and ``EnvironmentFailed`` where it cannot be
    read.
    """
    path, first = source.path, 0
    try:
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            described = json.loads((schema.metadata or {}).get(METADATA, b"{}"))
            if described.get("version") != VERSION or not schema.equals(EVENTS):
                raise InputError(
                    f"{path}: the file is not a capture file of version {VERSION}, the only one that this release "
                    "reads. Read it with the release that recorded it"
                )
            for batch in file.iter_batches(ROWS):
                events = pa.Table.from_batches([batch]).replace_schema_metadata(None)
                yield number_events(events, source.name, source.number, first)
                first += len(events)
    except OSError as error:
        raise describe_os_error(error, path) from error
    except pa.ArrowInvalid as error:
        raise InputError(f"{path}: the file is not a Parquet file ({error}). Remove it from the folder") from error


def number_events(events: pa.Table, file: str, number: int = 0, first: int = 0) -> pa.Table:
    """Number the events of one file after its ``first`` ones (``NUMBERED_EVENTS``)."""
    rows = pa.array(np.arange(first + 1, first + len(events) + 1))
    columns = [pa.repeat(file, len(events)), pa.repeat(pa.scalar(number, pa.int32()), len(events)), rows]
    return pa.table([*events.columns, *columns], schema=NUMBERED_EVENTS)
