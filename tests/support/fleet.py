"""A fleet of forty subscriptions made from recordings of real brokers, three days in a row, with six hidden faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from subreplay.rows.model.tables import TIME
from tests.support.days import Tables
from tests.support.faults import Capture, deliver_again_after_the_acknowledgement, skip_a_message
from tests.support.further_faults import deliver_to_a_second_consumer_too
from tests.support.recordings import ALL, ROOT, ingested

FIRST_DAY: Final = date(2026, 12, 1)
DAYS: Final = [(FIRST_DAY + timedelta(days=number)).isoformat() for number in range(3)]
_DAY: Final = 86_400_000_000  # µs
_DATA: Final = ROOT.parent
_KINDS: Final = {
    "pulsar.key_shared.consistent_hash": "keyed",
    "pulsar.key_shared.auto_split": "split",
    "pulsar.key_shared.sticky": "sticky",
    "pulsar.failover": "failover",
    "pulsar.shared": "shared",
    "pulsar.exclusive": "exclusive",
}
Fault = Callable[[Capture, Random], object]


@dataclass(frozen=True)
class Day:
    """What happened on a day: a recording, changed by faults."""

    recording: Path
    faults: tuple[Fault, ...] = ()

    @property
    def tables(self) -> Tables:
        """The input tables. Each fault is of the same messages whenever it is applied to the same recording."""
        if not self.faults:
            return dict(ingested(self.recording).tables)
        capture = Capture.load(self.recording.relative_to(ROOT).as_posix())
        for seed, fault in enumerate(self.faults):
            fault(capture, Random(seed))
        return {**ingested(self.recording).tables, **capture.tables}


def _day(name: str, *faults: Fault) -> Day:
    return Day(_DATA / name, faults)


def _repeated(day: Day) -> tuple[Day, Day, Day]:
    return day, day, day


_HEALTHY: Final = [
    *(f"recordings/{name}" for name in ALL if "s1f_" not in name),  # its producer mixes keys in a batch
    *(
        f"recordings-with-logs/{name}"
        for name in (
            "4.0.8/l01_key_shared_autosplit",
            "4.0.8/l07_failover_nonpartitioned",
            "4.0.8/l11_key_shared_same_name",
            "4.2.4/l07_failover_nonpartitioned",
            "4.2.4/l11_key_shared_same_name",
        )
    ),
]
_AGAIN = deliver_again_after_the_acknowledgement
_INCIDENTS: Final = "recordings-incidents/4.2.4"
_KEYED: Final = _day("recordings-with-logs/4.2.4/l11_key_shared_same_name")
_FAULTY: Final = {
    "recordings/4.0.8/s1_key_shared_autosplit": lambda good: (
        good, replace(good, faults=(skip_a_message,)), good,
    ),
    "recordings/4.0.8/s2_key_shared_autosplit_other_selector": lambda good: (
        replace(good, faults=(_AGAIN,)), replace(good, faults=(_AGAIN,)), replace(good, faults=(_AGAIN,) * 3),
    ),
    "recordings/3.2.3/s1_key_shared_autosplit": lambda good: _repeated(
        replace(good, faults=(deliver_to_a_second_consumer_too,))
    ),
    "recordings/4.0.8/s8_exclusive_cumulative": lambda good: (
        _day(f"{_INCIDENTS}/i5_total_stall_restart"), good, good,
    ),
    "hang": lambda _: (_KEYED, _KEYED, _day(f"{_INCIDENTS}/i1_key_shared_hang_join")),
    "calm1": lambda _: _repeated(_KEYED),
    "calm2": lambda _: _repeated(_KEYED),
    "calm3": lambda _: _repeated(_KEYED),
    "late": lambda _: (_KEYED, *[_day(f"{_INCIDENTS}/i6_delayed_key_shared_late")] * 2),
}  # fmt: skip


def _read_days() -> Iterator[tuple[str, str, tuple[Day, Day, Day]]]:
    """The name, the topic and the days of each subscription.

    Topics keep their names, because a broker hashes the name to choose the active consumer of a Failover subscription.
    """
    for name in [*_HEALTHY, *(each for each in _FAULTY if each not in _HEALTHY)]:
        good = _KEYED if name not in _HEALTHY else _day(name)
        days = _FAULTY[name](good) if name in _FAULTY else _repeated(good)
        run = ingested(good.recording).run["subscription"]
        kind = "loose" if run.get("options") else _KINDS[run["policy"]]
        version = run["profile"].removeprefix("pulsar-").replace(".", "")
        topic = run["topic"] if name in _HEALTHY else f"persistent://shop/eu/{name}"
        yield f"{kind}-v{version}-{Path(name).name.partition('_')[0]}", topic, days


def write_fleet(folder: Path, until: int = 3) -> list[str]:
    """Write the input tables of the first days; returns the names of the subscriptions."""
    parts: dict[str, list[pa.Table]] = {}
    for name, topic, days in _read_days():
        for number, day in enumerate(days[:until]):
            for table, rows in _of_day(day, number, name, topic).items():
                parts.setdefault(table, []).append(rows)
    for table in ("messages", "membership", "deliveries"):
        (folder / table).mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.concat_tables(parts[table]), folder / table / "part.parquet")
    return [name for name, _, _ in _read_days()]


def _of_day(day: Day, number: int, subscription: str, topic: str) -> Tables:
    """The tables of a day at its date, under the names of the subscription, with positions of their own."""
    tables = {name: rows for name, rows in day.tables.items() if name in ("messages", "membership", "deliveries")}
    own = ingested(day.recording).run["subscription"]["topic"]
    first = pc.min(tables["messages"]["publish_time"]).as_py().date()
    moved = ((FIRST_DAY - first).days + number) * _DAY
    return {name: _rename(rows, moved, number, own, subscription, topic) for name, rows in tables.items()}


def _rename(rows: pa.Table, moved: int, number: int, own: str, subscription: str, topic: str) -> pa.Table:
    for place, column in enumerate(rows.schema):
        values = rows[column.name]
        if column.type == TIME:
            values = pc.add(values.cast(pa.int64()), moved).cast(TIME)
        elif column.name == "date":
            values = pc.add(values.cast(pa.int32()), pa.scalar(moved // _DAY, pa.int32())).cast(pa.date32())
        elif column.name == "ledger":
            values = pc.add(values, 1_000_000 * number).cast(column.type)
        elif column.name == "topic":
            values = pc.replace_substring(values, own, topic)
        elif column.name == "origin":
            values = _rename_origin(values.combine_chunks(), 1_000_000 * number, own, topic)
        elif column.name == "subscription":
            values = pa.repeat(pa.scalar(subscription, column.type), len(rows))
        rows = rows.set_column(place, column, values)
    return rows


def _rename_origin(origins: pa.StructArray, ledgers: int, own: str, topic: str) -> pa.StructArray:
    """The positions of dead letters, on the new name of their topic and in its own ledgers."""
    fields = {name: origins.field(name) for name in origins.type.names}  # of no origin, too
    fields["ledger"] = pc.add(fields["ledger"], ledgers)
    fields["topic"] = pc.replace_substring(fields["topic"], own, topic)
    return pa.StructArray.from_arrays(list(fields.values()), fields=list(origins.type), mask=pc.is_null(origins))
