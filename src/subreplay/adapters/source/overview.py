"""What an input table contains, in sums: each task makes them of its rows, and the driver adds them up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.source.convert import convert
from subreplay.adapters.source.mistakes import counted
from subreplay.adapters.source.presets import plan_of
from subreplay.hashing.key_identity import compute_key_identities
from subreplay.rows.model.columns import Ints, gathered
from subreplay.rows.model.tables import TIME
from subreplay.rows.quarantine import checked, quarantined
from subreplay.rows.rejects import REASONS, added_reasons, reason_rows, reasons
from subreplay.rows.scan.copies import COMPARED
from subreplay.rows.scan.rows import Columns
from subreplay.rows.sorted_blocks import GROUP, with_groups

EXACT: Final = 1 << 17
"""So many different keys are counted one by one, of more it is estimated how many they are; and exact copies are
counted among so many rows."""
MOST_TOPICS: Final = 1_000
_SUMS: Final = pa.schema(
    [("rows", pa.int64()), ("valid", pa.int64()), ("keyed", pa.int64()), ("first", TIME), ("last", TIME)]
)
_PARTS: Final = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("count", pa.int64())])
_HASHES: Final = pa.schema([("hash", pa.int64())])
SHAPE: Final = {"sums": _SUMS, "parts": _PARTS, "keys": _HASHES, "copies": _HASHES, "reasons": REASONS}
"""What ``Overview`` makes: sums; messages by topic partition; the least hashes of different keys; hashes of rows; and
why rows are rejected."""
_HASHED: Final = 2.0**63  # so many hashes there are


@dataclass(frozen=True)
class Held:
    """What the messages of a source hold."""

    rows: int
    valid: int
    topics: tuple[str, ...] = ()
    partitions: int = 0
    unpartitioned: bool = False
    first: datetime | None = None
    last: datetime | None = None
    keyed: int = 0
    keys: int = 0  # about so many different ones
    why: tuple[dict[str, Any], ...] = ()  # of the rejected rows, as table ``quarantine`` has it
    copies: int = 0  # valid rows that are exact copies of others

    @property
    def topic(self) -> str | None:
        """The only topic, or the first one."""
        return self.topics[0] if self.topics else None


@dataclass(frozen=True)
class Overview:
    """A step that sums up the rows of an input table. ``mapping`` makes its columns of those of a source at
    ``location``, which are ``columns``; None: they are its own."""

    table: str
    location: str
    columns: pa.Schema
    mapping: Mapping[str, Any] | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        sums = _Sums()
        plan = None if self.mapping is None else plan_of(self.mapping, self.columns, self.table)
        hashed = plan is not None and not plan.by_time
        for rows in gathered(batches):  # to convert a few rows costs as much as many
            (batch,) = rows.to_batches()
            if plan is not None:
                found = convert(batch, plan, self.location)
                valid, why = found.rows, pa.Table.from_pylist(counted(found.rejected), REASONS)
            else:
                keeps = checked(self.table, batch)
                valid = batch if keeps is None else batch.filter(pa.array(keeps))
                why = REASONS.empty_table() if keeps is None else reasons(quarantined(self.table, batch, keeps))
            sums.rows, sums.valid = sums.rows + batch.num_rows, sums.valid + valid.num_rows
            sums.why = added_reasons([sums.why, why])
            if self.table == "messages":
                sums.take(Columns("messages", valid))
                yield "copies", _batch(_HASHES, sums.hashes(valid) if hashed else [])
        yield from sums.outputs()


@dataclass
class _Sums:
    """Of the rows of a task: its state is a sum of each topic partition, and hashes of bounded number."""

    rows: int = 0
    valid: int = 0
    keyed: int = 0
    ends: list[Any] = field(default_factory=list)
    parts: pa.Table = field(default_factory=_PARTS.empty_table)
    keys: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    why: pa.Table = field(default_factory=REASONS.empty_table)

    def take(self, columns: Columns) -> None:
        topics, partitions = columns["topic"].cast(pa.string()), columns["partition"]
        one_each = pa.table([topics, partitions, pa.repeat(1, columns.rows)], schema=_PARTS)
        self.parts = _summed([self.parts, one_each])
        time = pc.min_max(columns["publish_time"])
        self.ends += [end for end in (time["min"], time["max"]) if end.is_valid]
        keys = pc.coalesce(columns["ordering_key"], columns["key"]).drop_null()
        self.keyed += len(keys)
        self.keys = np.union1d(self.keys, compute_key_identities(keys))[:EXACT]

    def hashes(self, rows: pa.RecordBatch) -> Ints:
        """The hashes of rows by what makes them copies; of none where they are too many."""
        if self.valid > EXACT:
            return np.zeros(0, np.int64)
        columns = Columns("messages", rows)
        values = {name: columns[name] for name in COMPARED}
        values["publish_time"] = values["publish_time"].cast(pa.int64())
        return np.asarray(with_groups(pa.table(values), COMPARED)[GROUP])

    def outputs(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        times = pc.min_max(pa.array([end.as_py() for end in self.ends], TIME))
        row = [self.rows, self.valid, self.keyed, times["min"].as_py(), times["max"].as_py()]
        yield "sums", pa.RecordBatch.from_pylist([dict(zip(_SUMS.names, row, strict=True))], _SUMS)
        yield "keys", _batch(_HASHES, self.keys)
        for name, rows in (("parts", self.parts), ("reasons", self.why)):
            yield from ((name, batch) for batch in rows.to_batches())


def held(found: Mapping[str, pa.Table]) -> Held:
    """What the sums of all tasks (``SHAPE``) say of a table."""
    sums = found["sums"]
    rows, valid, keyed = (pc.sum(sums[name]).as_py() or 0 for name in ("rows", "valid", "keyed"))
    parts = _summed([found["parts"]])
    by_topic = parts.group_by("topic").aggregate([("count", "sum")])
    topics = by_topic.sort_by([("count_sum", "descending"), ("topic", "ascending")])["topic"].to_pylist()
    hashes = found["copies"]["hash"]
    copies = len(hashes) - pc.count_distinct(hashes).as_py() if len(hashes) == valid <= EXACT else 0
    return Held(
        rows=rows,
        valid=valid,
        topics=tuple(topics[:MOST_TOPICS]),
        partitions=len(parts),
        unpartitioned=pc.all(pc.less(parts["partition"], 0), min_count=1).as_py() or False,
        first=pc.min(sums["first"]).as_py(),
        last=pc.max(sums["last"]).as_py(),
        keyed=keyed,
        keys=_different(found["keys"]["hash"]),
        why=tuple(reason_rows([found["reasons"]])),
        copies=copies,
    )


def _different(least: pa.ChunkedArray) -> int:
    """About how many different keys have these hashes, the least of each task."""
    hashes = np.unique(np.asarray(least))[:EXACT]
    if len(hashes) < EXACT:
        return len(hashes)
    return round((EXACT - 1) * _HASHED / float(hashes[-1]))


def _summed(parts: Iterable[pa.Table]) -> pa.Table:
    found = pa.concat_tables(parts).group_by(["topic", "partition"], use_threads=False).aggregate([("count", "sum")])
    return found.rename_columns(_PARTS.names)


def _batch(schema: pa.Schema, values: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, pa.int64())], schema=schema)
