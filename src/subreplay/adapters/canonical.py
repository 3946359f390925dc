"""Conversions that adapters share: topic names, dates, times, bytes, and rows to canonical Arrow tables."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa

from subreplay.rows.model.segments import parse_segment
from subreplay.rows.model.tables import INPUTS

_PARTITION = re.compile(r"-partition-(\d+)$")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def split_topic(topic: str) -> tuple[str, int]:
    """Split the name of a topic or topic partition into the topic and the partition (-1 for none). A segment of a
    scalable topic is a partition of it."""
    if segment := parse_segment(topic):
        return segment
    found = _PARTITION.search(topic)
    return (topic[: found.start()], int(found[1])) if found else (topic, -1)


def nanos_to_micros(nanos: int) -> int:
    return nanos // 1000


def utc_date(at: int) -> Any:
    """Return the UTC date of a time in µs since 1970."""
    return (_EPOCH + timedelta(microseconds=at)).date()


def encode_text(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def build_table(name: str, rows: Iterable[dict[str, Any]]) -> pa.Table:
    """Build an Arrow table of the canonical schema; columns that the rows lack are null."""
    return pa.Table.from_pylist(list(rows), schema=INPUTS[name])
