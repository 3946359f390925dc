"""Recorded groups (``tests/data/kafka_group``): what a real broker wrote, beside what Kafka's own classes read of it.

``consumer_offsets`` have the group records, and in five scenarios all commits; of ``polls`` the first and the last of
each member, partition and generation are kept; ``coordinator_log`` has the messages of the log.
"""

from __future__ import annotations

import base64
import gzip
import json
from datetime import datetime, timezone, tzinfo
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

FOLDER = Path(__file__).parents[2] / "data/kafka_group"
NAMES = sorted(path.name.removesuffix(".json.gz") for path in FOLDER.glob("*.json.gz"))
LOGGER = "(org.apache.kafka.coordinator.group.GroupMetadataManager)"


@cache
def scenario(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))
    return loaded


def records(name: str) -> pa.Table:
    """The records of a scenario as Spark's Kafka source gives them."""
    rows = scenario(name)["consumer_offsets"]
    return pa.table(
        {
            "key": pa.array([base64.b64decode(row["key"]) for row in rows], pa.binary()),
            "value": pa.array([None if row["value"] is None else base64.b64decode(row["value"]) for row in rows]),
            "partition": pa.array([0] * len(rows), pa.int32()),
            "offset": [row["offset"] for row in rows],
            "timestamp": pa.array([row["timestamp"] * 1_000 for row in rows], pa.timestamp("us", "UTC")),
        }
    )


DEFAULT = "[{at}] INFO [GroupCoordinator 1]: {text} {logger}"


def log(name: str, zone: tzinfo = timezone.utc, layout: str = DEFAULT) -> pa.Table:
    """The coordinator's log of a scenario, in a layout and in the time of a zone."""
    rows = scenario(name)["coordinator_log"]
    return text(*[layout.format(at=shown(row["at"], zone), text=row["text"], logger=LOGGER) for row in rows])


def text(*lines: str | None) -> pa.Table:
    """Lines of a file."""
    numbers = pa.array(range(1, len(lines) + 1), pa.int64())
    return pa.table({"file": ["server.log"] * len(lines), "line": numbers, "text": pa.array(lines, pa.string())})


def shown(nanos: int, zone: tzinfo = timezone.utc) -> str:
    """What log4j prints for an instant."""
    seconds, rest = divmod(nanos, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, zone):%Y-%m-%d %H:%M:%S},{rest // 1_000_000:03d}"


def plain(table: pa.Table) -> list[dict[str, Any]]:
    """Rows with times in µs."""
    fields = [pa.field(f.name, pa.int64()) if pa.types.is_timestamp(f.type) else f for f in table.schema]
    found: list[dict[str, Any]] = table.cast(pa.schema(fields)).to_pylist()
    return found
