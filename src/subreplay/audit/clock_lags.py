"""Measure the lags that the times of consumers show, by an exchange of them in order, and correct the times of a log
(``audit.clocks``)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.audit.clocks import LAGS, QUANTILES, Shift
from subreplay.rows.groups import AddingUp, in_groups, with_columns
from subreplay.rows.model.columns import UNKNOWN, Ints, as_schema, flags, ints
from subreplay.rows.sorted_blocks import grouped

COLUMNS: Final = ("delivered", "consumer", "nth", "published", "due", "at", "received", "by_receipt", "acked")
"""Columns of table ``audited``."""
IN_ORDER: Final = grouped(
    pa.schema(
        [
            pa.field("consumer", pa.string()),
            pa.field("kind", pa.int8(), nullable=False),  # the number of one of ``LAGS``
            pa.field("lag", pa.int64(), nullable=False),  # ns
        ]
    ),
    then=("lag",),
)
"""Lags of consumers."""
COUNTS: Final = pa.schema([("consumer", pa.string()), ("kind", pa.int8()), ("count", pa.int64())])
"""How many lags of each kind a consumer has."""
CHOSEN: Final = pa.schema([("consumer", pa.string()), ("kind", pa.int8()), ("rank", pa.int64()), ("lag", pa.int64())])
"""Lags by their rank among those of a consumer and kind."""
Counts = Mapping[tuple[str, int], int]


def lags_of(judged: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Split rows of table ``audited`` into ``lags``, which are ``IN_ORDER``, and the ``counts`` of them."""
    adding = _adding_counts()
    for batch in judged:
        rows = pa.Table.from_batches([batch]).select(COLUMNS)
        rows = rows.filter(pc.and_(rows["delivered"], rows["consumer"].is_valid()))
        for kind, (known, lag) in enumerate(_lags(rows)):
            mine = pa.table({"consumer": rows["consumer"], "kind": pa.array(np.full(len(rows), kind), pa.int8())})
            adding.add(mine.append_column("count", pa.array(known.astype(np.int64))))
            there = mine.append_column("lag", pa.array(lag)).filter(pa.array(known))
            yield from (("lags", each) for each in in_groups(there, IN_ORDER, ("consumer", "kind")))
    yield from (("counts", each) for each in adding.together().combine_chunks().to_batches())


def counts_of(counts: pa.Table) -> Counts:
    """``COUNTS`` of all tasks, by consumer and number of a lag."""
    adding = _adding_counts()
    adding.add(counts)
    rows = adding.together().to_pylist()
    return {(row["consumer"], row["kind"]): row["count"] for row in rows}


@dataclass(frozen=True, eq=False)
class QuantilesOf:
    """A step: lags in order -> ``CHOSEN``, those that are at the quantiles; ``counts`` are of all consumers.

    A quantile of ``n`` lags is the least of them whose rank is at least its share of ``n``: what ``percentile_approx``
    says of few."""

    counts: Counts

    def __call__(self, in_order: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        before: dict[tuple[str, int], int] = {}  # lags that were seen: of the consumers of one task
        for batch in in_order:
            lags = batch["lag"].to_numpy()
            names = batch["consumer"].dictionary_encode()
            of = np.asarray(names.indices, np.int64) * len(LAGS) + batch["kind"].to_numpy()
            found = []
            for number in np.unique(of).tolist():
                whose = names.dictionary[number // len(LAGS)].as_py(), number % len(LAGS)
                mine, seen = lags[of == number], before.get(whose, 0)
                chosen = [rank for rank in set(ranks(self.counts[whose])) if seen < rank <= seen + len(mine)]
                found += [(*whose, rank, int(mine[rank - seen - 1])) for rank in sorted(chosen)]
                before[whose] = seen + len(mine)
            if found:
                columns = zip(CHOSEN, zip(*found, strict=True), strict=True)
                yield pa.RecordBatch.from_arrays([pa.array(values, f.type) for f, values in columns], schema=CHOSEN)


def ranks(count: int) -> list[int]:
    """The ranks of ``QUANTILES`` among so many, from 1."""
    return [max(1, math.ceil(share * count)) for share in QUANTILES]


def by_consumer(counts: Counts, chosen: pa.Table) -> list[dict[str, Any]]:
    """The lags of each consumer, as ``clocks.shifts`` takes them."""
    lag_of = {(row["consumer"], row["kind"], row["rank"]): row["lag"] for row in chosen.to_pylist()}
    rows = []
    for consumer in sorted({consumer for consumer, _ in counts}):
        row: dict[str, Any] = {"consumer": consumer}
        for kind, name in enumerate(LAGS):
            count = counts[consumer, kind]
            lags = [lag_of[consumer, kind, rank] for rank in ranks(count)] if count else None
            row[name] = {"count": count, "lags": lags}
        rows.append(row)
    return rows


@dataclass(frozen=True)
class CorrectedTimes:
    """A step: ``LOG`` rows as they would be if some clocks had been right."""

    shifts: tuple[Shift, ...]

    def __call__(self, log: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in log:
            there = set(batch.schema.names)
            if "consumer" not in there or batch["consumer"].null_count == batch.num_rows:
                yield batch
                continue
            rows = pa.Table.from_batches([batch])
            moved = {
                name: pc.subtract(rows[name], pa.array(self._shift(rows, name)))
                for name in ("received_at", "acked_at", "nacked_at")
                if name in there
            }
            at = ints(rows, "at")
            by_receipt = flags(rows, "by_receipt") if "by_receipt" in there else np.zeros(len(at), np.bool_)
            shift = np.where(by_receipt, self._shift(rows, "received_at"), self._shift(rows, "at"))
            moved["at"] = pa.array(np.where(at == UNKNOWN, at, at - shift))
            for found in with_columns(rows, moved).combine_chunks().to_batches():
                yield as_schema(found, batch.schema)

    def _shift(self, rows: pa.Table, column: str) -> Ints:
        """By how much the clock is off that wrote a column, in ns."""
        mine = [shift for shift in self.shifts if column in shift.columns]
        by = np.array([*(shift.by for shift in mine), 0], np.int64)
        which = pc.index_in(rows["consumer"], pa.array([shift.consumer for shift in mine], pa.string()))
        off: Ints = by[np.asarray(pc.fill_null(which, len(mine)))]
        return off


def _lags(rows: pa.Table) -> Sequence[tuple[np.ndarray, Ints]]:
    """Of each of ``LAGS``, which rows have it, and how long it is."""
    at, received, acked = (ints(rows, name) for name in ("at", "received", "acked"))
    dispatched = (ints(rows, "nth") == 0) & (ints(rows, "published") > 0)
    return (
        (dispatched, at - ints(rows, "due")),
        ((received != UNKNOWN) & ~flags(rows, "by_receipt"), received - at),
        (acked != UNKNOWN, acked - at),
    )


def _adding_counts() -> AddingUp:
    adding = AddingUp(_counted)
    adding.add(COUNTS.empty_table())
    return adding


def _counted(rows: pa.Table) -> pa.Table:
    found = rows.group_by(["consumer", "kind"], use_threads=False).aggregate([("count", "sum")])
    return found.rename_columns(COUNTS.names).cast(COUNTS)
