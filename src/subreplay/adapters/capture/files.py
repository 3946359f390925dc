"""Capture files as events, some at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from subreplay.adapters.capture.checks import NUMBERED
from subreplay.capture.events import EVENTS, METADATA, VERSION
from subreplay.capture.files import files
from subreplay.errors import InputError
from subreplay.failures import describe_os_error
from subreplay.rows.model.columns import ROWS


class Source(NamedTuple):
    """A capture file, its name as rows tell it, and its number among the others."""

    path: Path
    name: str
    number: int


def sources(folder: Path) -> tuple[Source, ...]:
    """The capture files of a folder. Raises ``InputError`` where there is none."""
    found = tuple(Source(path, str(path.relative_to(folder)), i) for i, path in enumerate(files(folder)))
    if not found:
        raise InputError(f"{folder}: no capture file; subreplay.capture.wrap writes them")
    return found


def events_of(source: Source) -> Iterator[pa.Table]:
    """The events of a file (``NUMBERED``), ``ROWS`` at a time.

    Raises ``InputError`` where it is no capture file of this release, ``EnvironmentFailed`` where it cannot be read.
    """
    path, first = source.path, 0
    try:
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            described = json.loads((schema.metadata or {}).get(METADATA, b"{}"))
            if described.get("version") != VERSION or not schema.equals(EVENTS):
                raise InputError(f"{path} is no capture file of version {VERSION}, which this release reads")
            for batch in file.iter_batches(ROWS):
                events = pa.Table.from_batches([batch]).replace_schema_metadata(None)
                yield numbered(events, source.name, source.number, first)
                first += len(events)
    except OSError as error:
        raise describe_os_error(error, path) from error
    except pa.ArrowInvalid as error:
        raise InputError(f"{path} is no Parquet file: {error}; remove it") from error


def numbered(events: pa.Table, file: str, number: int = 0, first: int = 0) -> pa.Table:
    """Events of one file behind its ``first`` ones as ``NUMBERED``."""
    rows = pa.array(np.arange(first + 1, first + len(events) + 1))
    columns = [pa.repeat(file, len(events)), pa.repeat(pa.scalar(number, pa.int32()), len(events)), rows]
    return pa.table([*events.columns, *columns], schema=NUMBERED)
