"""What adapters make canonical rows with: topics, dates, times, bytes, and the table of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa

from subreplay.rows.model.tables import INPUTS

_PARTITION = re.compile(r"-partition-(\d+)$")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def base_topic(topic: str) -> tuple[str, int]:
    """A topic and its partition (-1 for none) from an internal topic's name."""
    found = _PARTITION.search(topic)
    return (topic[: found.start()], int(found[1])) if found else (topic, -1)


def micros(nanos: int) -> int:
    return nanos // 1000


def day(at: int) -> Any:
    """The UTC date of a time in µs."""
    return (_EPOCH + timedelta(microseconds=at)).date()


def encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def to_table(name: str, rows: Iterable[dict[str, Any]]) -> pa.Table:
    """Rows as an Arrow table of the canonical schema, columns they lack being null."""
    return pa.Table.from_pylist(list(rows), schema=INPUTS[name])
