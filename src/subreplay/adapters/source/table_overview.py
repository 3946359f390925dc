"""Sum up the content of an input table: each task sums its rows, and the driver adds the sums."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.source.quarantine_reasons import count_reasons
from subreplay.adapters.source.row_conversion import convert_batch
from subreplay.adapters.source.source_presets import build_plan
from subreplay.hashing.key_identity import compute_key_identities
from subreplay.rows.model.columns import Ints, gather_batches
from subreplay.rows.model.tables import TIME
from subreplay.rows.quarantine import find_valid_rows, make_quarantine
from subreplay.rows.rejects import REASONS, add_reasons, build_reasons, list_reasons
from subreplay.rows.scan.copies import COMPARED
from subreplay.rows.scan.table_columns import Columns
from subreplay.rows.sorted_blocks import GROUP, add_groups

MAX_EXACT: Final = 1 << 17
"""Up to this number of distinct keys they are counted exactly; beyond it they are estimated. Exact copies of rows are
counted up to the same number of rows."""
MAX_TOPICS: Final = 1_000
_SUMS: Final = pa.schema(
    [("rows", pa.int64()), ("valid", pa.int64()), ("keyed", pa.int64()), ("first", TIME), ("last", TIME)]
)
_PARTS: Final = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("count", pa.int64())])
_HASHES: Final = pa.schema([("hash", pa.int64())])
OVERVIEW_SCHEMAS: Final = {"sums": _SUMS, "parts": _PARTS, "keys": _HASHES, "copies": _HASHES, "reasons": REASONS}
"""The outputs of ``OverviewStep``: sums; messages by topic partition; the smallest hashes of distinct keys; hashes of
rows; and reasons of rejected rows."""
_HASH_COUNT: Final = 2.0**63  # the number of possible hashes


@dataclass(frozen=True)
class MessageOverview:
    """The overview of the messages of a source."""

    rows: int
    valid: int
    topics: tuple[str, ...] = ()
    partitions: int = 0
    unpartitioned: bool = False
    first: datetime | None = None
    last: datetime | None = None
    keyed: int = 0
    keys: int = 0  # the (estimated) number of distinct keys
    why: tuple[dict[str, Any], ...] = ()  # reasons of rejected rows, as table ``quarantine`` has them
    copies: int = 0  # valid rows that are exact copies of others

    @property
    def topic(self) -> str | None:
        """The only topic, or the most frequent one."""
        return self.topics[0] if self.topics else None


@dataclass(frozen=True)
class OverviewStep:
    """A step that sums up the rows of an input table. ``mapping`` converts the ``columns`` of a source at ``location``;
    None: the columns are canonical already."""

    table: str
    location: str
    columns: pa.Schema
    mapping: Mapping[str, Any] | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        sums = _TaskSums()
        plan = None if self.mapping is None else build_plan(self.mapping, self.columns, self.table)
        hashed = plan is not None and not plan.by_time
        for rows in gather_batches(batches):  # converting a few rows costs as much as converting many
            (batch,) = rows.to_batches()
            if plan is not None:
                found = convert_batch(batch, plan, self.location)
                valid, why = found.rows, pa.Table.from_pylist(count_reasons(found.rejected), REASONS)
            else:
                keeps = find_valid_rows(self.table, batch)
                valid = batch if keeps is None else batch.filter(pa.array(keeps))
                why = (
                    REASONS.empty_table() if keeps is None else build_reasons(make_quarantine(self.table, batch, keeps))
                )
            sums.rows, sums.valid = sums.rows + batch.num_rows, sums.valid + valid.num_rows
            sums.why = add_reasons([sums.why, why])
            if self.table == "messages":
                sums.add(Columns("messages", valid))
                yield "copies", _build_batch(_HASHES, sums.hash_rows(valid) if hashed else [])
        yield from sums.build_outputs()


@dataclass
class _TaskSums:
    """The sums of the rows of a task: a count for each topic partition, and a bounded number of hashes."""

    rows: int = 0
    valid: int = 0
    keyed: int = 0
    ends: list[Any] = field(default_factory=list)
    parts: pa.Table = field(default_factory=_PARTS.empty_table)
    keys: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    why: pa.Table = field(default_factory=REASONS.empty_table)

    def add(self, columns: Columns) -> None:
        topics, partitions = columns["topic"].cast(pa.string()), columns["partition"]
        one_each = pa.table([topics, partitions, pa.repeat(1, columns.rows)], schema=_PARTS)
        self.parts = _sum_partitions([self.parts, one_each])
        time = pc.min_max(columns["publish_time"])
        self.ends += [end for end in (time["min"], time["max"]) if end.is_valid]
        keys = pc.coalesce(columns["ordering_key"], columns["key"]).drop_null()
        self.keyed += len(keys)
        self.keys = np.union1d(self.keys, compute_key_identities(keys))[:MAX_EXACT]

    def hash_rows(self, rows: pa.RecordBatch) -> Ints:
        """Hash rows by the columns that make them copies; return none where there are too many rows."""
        if self.valid > MAX_EXACT:
            return np.zeros(0, np.int64)
        columns = Columns("messages", rows)
        values = {name: columns[name] for name in COMPARED}
        values["publish_time"] = values["publish_time"].cast(pa.int64())
        return np.asarray(add_groups(pa.table(values), COMPARED)[GROUP])

    def build_outputs(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        times = pc.min_max(pa.array([end.as_py() for end in self.ends], TIME))
        row = [self.rows, self.valid, self.keyed, times["min"].as_py(), times["max"].as_py()]
        yield "sums", pa.RecordBatch.from_pylist([dict(zip(_SUMS.names, row, strict=True))], _SUMS)
        yield "keys", _build_batch(_HASHES, self.keys)
        for name, rows in (("parts", self.parts), ("reasons", self.why)):
            yield from ((name, batch) for batch in rows.to_batches())


def combine_sums(found: Mapping[str, pa.Table]) -> MessageOverview:
    """Combine the sums of all tasks (``OVERVIEW_SCHEMAS``) into the overview of a table."""
    sums = found["sums"]
    rows, valid, keyed = (pc.sum(sums[name]).as_py() or 0 for name in ("rows", "valid", "keyed"))
    parts = _sum_partitions([found["parts"]])
    by_topic = parts.group_by("topic").aggregate([("count", "sum")])
    topics = by_topic.sort_by([("count_sum", "descending"), ("topic", "ascending")])["topic"].to_pylist()
    hash_rows = found["copies"]["hash"]
    copies = len(hash_rows) - pc.count_distinct(hash_rows).as_py() if len(hash_rows) == valid <= MAX_EXACT else 0
    return MessageOverview(
        rows=rows,
        valid=valid,
        topics=tuple(topics[:MAX_TOPICS]),
        partitions=len(parts),
        unpartitioned=pc.all(pc.less(parts["partition"], 0), min_count=1).as_py() or False,
        first=pc.min(sums["first"]).as_py(),
        last=pc.max(sums["last"]).as_py(),
        keyed=keyed,
        keys=_estimate_keys(found["keys"]["hash"]),
        why=tuple(list_reasons([found["reasons"]])),
        copies=copies,
    )


def _estimate_keys(least: pa.ChunkedArray) -> int:
    """Estimate the number of distinct keys from the smallest hashes of each task."""
    hash_rows = np.unique(np.asarray(least))[:MAX_EXACT]
    if len(hash_rows) < MAX_EXACT:
        return len(hash_rows)
    return round((MAX_EXACT - 1) * _HASH_COUNT / float(hash_rows[-1]))


def _sum_partitions(parts: Iterable[pa.Table]) -> pa.Table:
    found = pa.concat_tables(parts).group_by(["topic", "partition"], use_threads=False).aggregate([("count", "sum")])
    return found.rename_columns(_PARTS.names)


def _build_batch(schema: pa.Schema, values: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, pa.int64())], schema=schema)
