"""A source that one task reads in one go: a recording, the captures of an application, copies of a group's records."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession

from subreplay.adapters.base import Adapter, FileCount, Options, Reason, Rejected, Told
from subreplay.adapters.streams import REJECTED, Rows, quarantine
from subreplay.engine.spark.adapters import tasks
from subreplay.engine.spark.adapters.frames import Read
from subreplay.engine.spark.session import KeptRows
from subreplay.rows.model.tables import INPUTS, QUARANTINE

_TOLD: Final = "told"
_SHAPE: Final = {**INPUTS, REJECTED: QUARANTINE, _TOLD: pa.schema([("json", pa.string())])}


def read(spark: SparkSession, kept: KeptRows, adapter: Adapter, path: Path, options: Options) -> Read:
    """What an adapter reads, by one task."""
    found = kept.keep(tasks.by_parts(spark, [(path, options)], partial(_rows, adapter), _SHAPE))
    (text,) = tasks.small(found, _TOLD)[_TOLD]["json"].to_pylist()
    told = _of_json(text)
    return Read({name: tasks.of_kind(found, name) for name in told.rows}, tasks.of_kind(found, REJECTED), told)


def _rows(adapter: Adapter, asked: tuple[Path, Options]) -> Rows:
    found = adapter(*asked)
    yield from ((name, found.tables[name]) for name in found.told.rows)
    yield REJECTED, quarantine(found.rejected)
    yield _TOLD, pa.table({"json": [json.dumps(asdict(found.told), default=str)]})


def _of_json(text: str) -> Told:
    told: dict[str, Any] = json.loads(text)
    told["counts"] = tuple(FileCount(*each) for each in told["counts"])
    told["examples"] = tuple(
        Rejected(table, file, row, raw, tuple(Reason(*reason) for reason in reasons))
        for table, file, row, raw, reasons in told["examples"]
    )
    told["others"] = tuple((name, topic) for name, topic in told["others"])
    return Told(**told | {"notes": tuple(told["notes"])})
