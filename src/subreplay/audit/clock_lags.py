"""Measure the lags in the times of consumers, by a sorted exchange, and correct the times of a log
(``audit.clocks``)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.audit.clocks import LAGS, QUANTILES, ClockShift
from subreplay.rows.groups import Accumulator, make_groups, with_columns
from subreplay.rows.model.columns import UNKNOWN, Ints, as_schema, flags, ints
from subreplay.rows.sorted_blocks import make_group_order

COLUMNS: Final = ("delivered", "consumer", "nth", "published", "due", "at", "received", "by_receipt", "acked")
"""The columns of table ``audited`` that this module reads."""
LAG_ROWS: Final = make_group_order(
    pa.schema(
        [
            pa.field("consumer", pa.string()),
            pa.field("kind", pa.int8(), nullable=False),  # the number of one of ``LAGS``
            pa.field("lag", pa.int64(), nullable=False),  # ns
        ]
    ),
    then=("lag",),
)
"""Lags of consumers in order."""
COUNTS: Final = pa.schema([("consumer", pa.string()), ("kind", pa.int8()), ("count", pa.int64())])
"""The number of lags of each consumer and kind."""
QUANTILE_ROWS: Final = pa.schema(
    [("consumer", pa.string()), ("kind", pa.int8()), ("rank", pa.int64()), ("lag", pa.int64())]
)
"""Lags by their rank within a consumer and kind."""
Counts = Mapping[tuple[str, int], int]


def split_lags(judged: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Split rows of table ``audited`` into ``lags`` (``LAG_ROWS``) and their ``counts``."""
    adding = _make_counter()
    for batch in judged:
        rows = pa.Table.from_batches([batch]).select(COLUMNS)
        rows = rows.filter(pc.and_(rows["delivered"], rows["consumer"].is_valid()))
        for kind, (known, lag) in enumerate(_measure_lags(rows)):
            selected = pa.table({"consumer": rows["consumer"], "kind": pa.array(np.full(len(rows), kind), pa.int8())})
            adding.add(selected.append_column("count", pa.array(known.astype(np.int64))))
            present = selected.append_column("lag", pa.array(lag)).filter(pa.array(known))
            yield from (("lags", each) for each in make_groups(present, LAG_ROWS, ("consumer", "kind")))
    yield from (("counts", each) for each in adding.compute_sum().combine_chunks().to_batches())


def merge_counts(counts: pa.Table) -> Counts:
    """Add up the ``COUNTS`` of all tasks, by consumer and kind of lag."""
    adding = _make_counter()
    adding.add(counts)
    rows = adding.compute_sum().to_pylist()
    return {(row["consumer"], row["kind"]): row["count"] for row in rows}


@dataclass(frozen=True, eq=False)
class QuantilePicker:
    """A step: sorted lags -> ``QUANTILE_ROWS``, the lags at the quantiles. ``counts`` are those of all consumers.

    A quantile of ``n`` lags is the smallest lag whose rank is at least its share of ``n``, as ``percentile_approx``
    computes it for small numbers.
    """

    counts: Counts

    def __call__(self, in_order: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        before: dict[tuple[str, int], int] = {}  # lags that were seen: of the consumers of one task
        for batch in in_order:
            lags = batch["lag"].to_numpy()
            names = batch["consumer"].dictionary_encode()
            of = np.asarray(names.indices, np.int64) * len(LAGS) + batch["kind"].to_numpy()
            found = []
            for number in np.unique(of).tolist():
                consumer_and_kind = names.dictionary[number // len(LAGS)].as_py(), number % len(LAGS)
                selected, seen = lags[of == number], before.get(consumer_and_kind, 0)
                chosen = [
                    rank
                    for rank in set(find_ranks(self.counts[consumer_and_kind]))
                    if seen < rank <= seen + len(selected)
                ]
                found += [(*consumer_and_kind, rank, int(selected[rank - seen - 1])) for rank in sorted(chosen)]
                before[consumer_and_kind] = seen + len(selected)
            if found:
                columns = zip(QUANTILE_ROWS, zip(*found, strict=True), strict=True)
                yield pa.RecordBatch.from_arrays(
                    [pa.array(values, f.type) for f, values in columns], schema=QUANTILE_ROWS
                )


def find_ranks(count: int) -> list[int]:
    """Return the ranks of ``QUANTILES`` among ``count`` values, starting at 1."""
    return [max(1, math.ceil(share * count)) for share in QUANTILES]


def group_by_consumer(counts: Counts, chosen: pa.Table) -> list[dict[str, Any]]:
    """Group the lags by consumer, as ``clocks.find_shifts`` needs them."""
    lag_of = {(row["consumer"], row["kind"], row["rank"]): row["lag"] for row in chosen.to_pylist()}
    rows = []
    for consumer in sorted({consumer for consumer, _ in counts}):
        row: dict[str, Any] = {"consumer": consumer}
        for kind, name in enumerate(LAGS):
            count = counts[consumer, kind]
            lags = [lag_of[consumer, kind, rank] for rank in find_ranks(count)] if count else None
            row[name] = {"count": count, "lags": lags}
        rows.append(row)
    return rows


@dataclass(frozen=True)
class TimeCorrection:
    """A step: ``LOG`` rows with corrected times of consumers whose clocks are off."""

    shifts: tuple[ClockShift, ...]

    def __call__(self, log: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in log:
            present = set(batch.schema.names)
            if "consumer" not in present or batch["consumer"].null_count == batch.num_rows:
                yield batch
                continue
            rows = pa.Table.from_batches([batch])
            moved = {
                name: pc.subtract(rows[name], pa.array(self._shift(rows, name)))
                for name in ("received_at", "acked_at", "nacked_at")
                if name in present
            }
            at = ints(rows, "at")
            by_receipt = flags(rows, "by_receipt") if "by_receipt" in present else np.zeros(len(at), np.bool_)
            shift = np.where(by_receipt, self._shift(rows, "received_at"), self._shift(rows, "at"))
            moved["at"] = pa.array(np.where(at == UNKNOWN, at, at - shift))
            for found in with_columns(rows, moved).combine_chunks().to_batches():
                yield as_schema(found, batch.schema)

    def _shift(self, rows: pa.Table, column: str) -> Ints:
        """Return the clock offset (ns) of the consumer that wrote a column."""
        selected = [shift for shift in self.shifts if column in shift.columns]
        by = np.array([*(shift.by for shift in selected), 0], np.int64)
        which = pc.index_in(rows["consumer"], pa.array([shift.consumer for shift in selected], pa.string()))
        off: Ints = by[np.asarray(pc.fill_null(which, len(selected)))]
        return off


def _measure_lags(rows: pa.Table) -> Sequence[tuple[np.ndarray, Ints]]:
    """Return, for each of ``LAGS``, which rows have it and its length."""
    at, received, acked = (ints(rows, name) for name in ("at", "received", "acked"))
    dispatched = (ints(rows, "nth") == 0) & (ints(rows, "published") > 0)
    return (
        (dispatched, at - ints(rows, "due")),
        ((received != UNKNOWN) & ~flags(rows, "by_receipt"), received - at),
        (acked != UNKNOWN, acked - at),
    )


def _make_counter() -> Accumulator:
    """Return an accumulator of ``COUNTS``."""
    adding = Accumulator(_count_lags)
    adding.add(COUNTS.empty_table())
    return adding


def _count_lags(rows: pa.Table) -> pa.Table:
    """Add up counts by consumer and kind."""
    found = rows.group_by(["consumer", "kind"], use_threads=False).aggregate([("count", "sum")])
    return found.rename_columns(COUNTS.names).cast(COUNTS)
