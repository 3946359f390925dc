"""Days of two subscriptions, of which one has a fault on some days, as the input tables of daily audits."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from subreplay.config.run import RunConfig, parse
from subreplay.rows.model.tables import TIME
from tests.support.history import History, history

FIRST_DAY = date(2023, 11, 14)
ORDERS = "persistent://shop/eu/orders"
KEPT = history("a1 a2 n1", "+C1 a1>C1 a1! a2>C1 a2! n1>C1 n1! -C1")
BROKEN = history("a1 a2 a3 n1", "+C1 a1>C1 +C2 a2>C2 a1! a2! a3>C2 a3! n1>C1 n1! -C1 -C2")
"""The messages of a key go to another consumer before the first one is acknowledged."""


def day(number: int) -> str:
    """The date of a day; the first is 0."""
    return (FIRST_DAY + timedelta(days=number)).isoformat()


def write_days(folder: Path, days: int, faults: Collection[int], topic: str = ORDERS) -> None:
    """Write the input tables of subscriptions ``billing``, which has a fault on the days ``faults``, and ``mail``."""
    parts = []
    for number in range(days):
        parts.append(_of_day(BROKEN if number in faults else KEPT, number, "billing", topic))
        parts.append(_of_day(KEPT, number, "mail", f"{topic}-mail"))
    for name in ("messages", "membership", "deliveries"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.concat_tables([part[name] for part in parts]), folder / name / "part.parquet")


def daily(folder: Path, number: int, given: Any = "all", **sections: Any) -> RunConfig:
    """The run of one day over the tables in ``folder``/in: of all subscriptions, or of one if ``given`` is its name."""
    raw: dict[str, Any] = {
        "traffic": {"path": f"{folder}/in", "format": "parquet", "lookback_days": 1},
        "subscription": {"policy": "pulsar.key_shared.auto_split", "profile": "pulsar-4.0"},
        "output": {"tables": f"{folder}/tables", "report": f"{folder}/report"},
    }
    if given == "all" or not isinstance(given, str):
        raw["subscriptions"] = given
    else:
        raw["subscription"] |= {"name": given, "topic": ORDERS}
    return parse(raw | sections, "run.yaml", date=sections.get("date", day(number)))


def _of_day(tables: History, number: int, subscription: str, topic: str) -> History:
    """The same tables some days later, of another subscription and topic, in a ledger of their own."""
    values: dict[str, Any] = {"subscription": subscription, "topic": topic, "ledger": number + 1}
    found = {}
    for name, rows in tables.items():
        for place, column in enumerate(rows.schema):
            changed = rows[column.name]
            if column.type == TIME:
                changed = pc.add(changed.cast(pa.int64()), number * 86_400_000_000).cast(TIME)
            elif column.name == "date":
                changed = pc.add(changed.cast(pa.int32()), pa.scalar(number, pa.int32())).cast(pa.date32())
            elif column.name in values:
                changed = pa.repeat(pa.scalar(values[column.name], column.type), len(rows))
            rows = rows.set_column(place, column, changed)
        found[name] = rows
    return found
