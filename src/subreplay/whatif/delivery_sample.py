"""Sample recorded deliveries, each with the size of its message, by a hash of their positions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.rows.groups import hashes, in_groups, whole_groups
from subreplay.rows.scan.log_rows import nanos
from subreplay.rows.scan.rows import Columns
from subreplay.rows.sorted_blocks import grouped

ORDER: Final = ("received_at", "acked_at", "consumer", "size")
"""Columns by which ``TIMES`` are in order, whoever sampled them."""
POSITION: Final = ("topic", "partition", "ledger", "entry", "batch_index")
MESSAGE_COLUMNS: Final = (*POSITION, "size")
DELIVERY_COLUMNS: Final = (*POSITION, "consumer", "received_at", "acked_at", "acked_nanos")
TIMES: Final = pa.schema(
    [("consumer", pa.string()), ("received_at", pa.int64()), ("acked_at", pa.int64()), ("size", pa.int64())]
)
"""Deliveries: times in ns, null where they are not recorded, and the size of the message in bytes."""
SAMPLED: Final = grouped(
    pa.schema(
        [
            pa.field("delivery", pa.bool_(), nullable=False),  # or the message
            *(pa.field(name, pa.string() if name == "topic" else pa.int64(), nullable=False) for name in POSITION),
            *TIMES,
        ]
    )
)
"""Deliveries and messages of the sample, by position."""
COUNT: Final = pa.schema([("rows", pa.int64())])


def count_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A step: how many rows there are."""
    yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]}, COUNT)


@dataclass(frozen=True)
class Sampled:
    """A step: rows of input table ``messages`` or ``deliveries`` -> ``SAMPLED``, one position of ``every`` few."""

    table: str
    every: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = Columns(self.table, batch)
            rows = pa.table({name: columns[name] for name in POSITION})
            given = {"size": columns["size"]} if self.table == "messages" else _times(columns)
            for name, values in {**given, "delivery": pa.repeat(self.table != "messages", len(rows))}.items():
                rows = rows.append_column(name, values)
            if self.every > 1 and len(rows):
                drawn = hashes(rows, POSITION).view(np.uint64) >> np.uint64(32)  # the other bits deal them out to tasks
                rows = rows.filter(pa.array(drawn % np.uint64(self.every) == 0))
            yield from in_groups(rows, SAMPLED, POSITION)


def delivery_times(sampled: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A step: ``SAMPLED`` in order -> ``TIMES``."""
    for rows in whole_groups(sampled):
        deliveries, messages = rows.filter(rows["delivery"]), rows.filter(pc.invert(rows["delivery"]))
        sizes = messages.select([*POSITION, "size"])
        found = deliveries.drop_columns(["size"]).join(sizes, [*POSITION], use_threads=False)
        yield from found.select(TIMES.names).cast(TIMES).combine_chunks().to_batches()


def _times(columns: Columns) -> dict[str, pa.Array]:
    acked = nanos(columns, "acked_at", "acked_nanos")
    return {"consumer": columns["consumer"], "received_at": nanos(columns, "received_at"), "acked_at": acked}
