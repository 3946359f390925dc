"""Sample recorded deliveries together with the sizes of their messages, by a hash of the message position."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.rows.groups import hashes, make_groups, read_whole_groups
from subreplay.rows.scan.log_rows import to_nanos
from subreplay.rows.scan.table_columns import Columns
from subreplay.rows.sorted_blocks import make_group_order

ORDER: Final = ("received_at", "acked_at", "consumer", "size")
"""The columns that ``TIMES`` rows are sorted by, on every engine."""
POSITION: Final = ("topic", "partition", "ledger", "entry", "batch_index")
MESSAGE_COLUMNS: Final = (*POSITION, "size")
DELIVERY_COLUMNS: Final = (*POSITION, "consumer", "received_at", "acked_at", "acked_nanos")
TIMES: Final = pa.schema(
    [("consumer", pa.string()), ("received_at", pa.int64()), ("acked_at", pa.int64()), ("size", pa.int64())]
)
"""Delivery times in ns (null if not recorded) and the message size in bytes."""
SAMPLED: Final = make_group_order(
    pa.schema(
        [
            pa.field("delivery", pa.bool_(), nullable=False),  # false: a message
            *(pa.field(name, pa.string() if name == "topic" else pa.int64(), nullable=False) for name in POSITION),
            *TIMES,
        ]
    )
)
"""The sampled deliveries and messages, sorted by position."""
COUNT: Final = pa.schema([("rows", pa.int64())])


def count_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count the rows, as an engine step."""
    yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]}, COUNT)


@dataclass(frozen=True)
class SampleRows:
    """An engine step that turns rows of table ``messages`` or ``deliveries`` into ``SAMPLED`` rows.

    It keeps one of ``interval`` positions.
    """

    table: str
    interval: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = Columns(self.table, batch)
            rows = pa.table({name: columns[name] for name in POSITION})
            values_by_column = {"size": columns["size"]} if self.table == "messages" else _read_delivery_times(columns)
            for name, values in {
                **values_by_column,
                "delivery": pa.repeat(self.table != "messages", len(rows)),
            }.items():
                rows = rows.append_column(name, values)
            if self.interval > 1 and len(rows):
                sample_hashes = hashes(rows, POSITION).view(np.uint64) >> np.uint64(
                    32
                )  # the lower bits choose the task
                rows = rows.filter(pa.array(sample_hashes % np.uint64(self.interval) == 0))
            yield from make_groups(rows, SAMPLED, POSITION)


def join_delivery_times(sampled: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Turn ordered ``SAMPLED`` rows into ``TIMES`` rows, as an engine step."""
    for rows in read_whole_groups(sampled):
        deliveries, messages = rows.filter(rows["delivery"]), rows.filter(pc.invert(rows["delivery"]))
        sizes = messages.select([*POSITION, "size"])
        joined = deliveries.drop_columns(["size"]).join(sizes, [*POSITION], use_threads=False)
        yield from joined.select(TIMES.names).cast(TIMES).combine_chunks().to_batches()


def _read_delivery_times(columns: Columns) -> dict[str, pa.Array]:
    acked = to_nanos(columns, "acked_at", "acked_nanos")
    return {"consumer": columns["consumer"], "received_at": to_nanos(columns, "received_at"), "acked_at": acked}
