"""Check the order across the segments of a scalable topic: a child is served after its parents have drained (PIP-460).

A key stays in one segment until a split or a merge seals it. Its later messages are in a child. So the order of every
key holds if the first delivery of a child follows the last acknowledgement of each of its ancestors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.audit.codes import Code
from subreplay.audit.findings import Finding
from subreplay.rows.model.rows import Scope
from subreplay.rows.model.segments import Segment, find_ancestors
from subreplay.rows.model.text_format import format_clock, format_position

_PLACE: Final = ("ledger", "entry", "batch_index", "consumer")
DELIVERY_COLUMNS: Final = ("topic", "partition", *_PLACE, "delivered_at", "acked_at")
"""The columns of ``deliveries`` that this module reads."""
SEGMENT_ENDS: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("last", pa.bool_()),  # the last acknowledgement; false: the first delivery
        pa.field("at", pa.int64()),  # µs
        pa.field("ledger", pa.int64()),
        pa.field("entry", pa.int64()),
        pa.field("batch_index", pa.int32()),
        pa.field("consumer", pa.string()),
    ]
)
"""The first delivery and the last acknowledgement in each segment, as far as one task knows them."""


def find_segment_ends(deliveries: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Find ``SEGMENT_ENDS`` in rows of table ``deliveries``. A step."""
    for batch in deliveries:
        rows = pa.Table.from_batches([batch]).select(DELIVERY_COLUMNS)
        for last, name in ((False, "delivered_at"), (True, "acked_at")):
            timed = rows.append_column("at", rows[name].cast(pa.int64())).drop_columns(["delivered_at", "acked_at"])
            timed = timed.filter(pc.is_valid(timed["at"])).sort_by([("at", "descending" if last else "ascending")])
            timed = timed.append_column("row", pa.array(range(len(timed)), pa.int64()))
            first = timed.group_by(["topic", "partition"], use_threads=False).aggregate([("row", "min")])
            found = timed.take(first["row_min"]).drop_columns(["row"])
            found = found.append_column("last", pa.repeat(last, len(found)))
            yield from found.select(SEGMENT_ENDS.names).cast(SEGMENT_ENDS).to_batches()


@dataclass(frozen=True)
class EarlyChildRule:
    """KEY_ORDER for each child segment that was served before an ancestor had drained."""

    segments: tuple[Segment, ...]
    dates: bool = False

    def find(self, ends: pa.Table) -> Iterator[Finding]:
        """Yield the findings in ``SEGMENT_ENDS``."""
        ancestors = find_ancestors(self.segments)
        first: dict[tuple[str, int], Mapping[str, Any]] = {}
        last: dict[tuple[str, int], Mapping[str, Any]] = {}
        for row in ends.sort_by("at").to_pylist():
            segment = row["topic"], row["partition"]
            if row["last"]:
                last[segment] = row
            else:
                first.setdefault(segment, row)
        for (topic, child), begin in sorted(first.items()):
            for parent in sorted(ancestors.get(child, ())):
                end = last.get((topic, parent))
                if end is not None and begin["at"] < end["at"]:
                    yield self._make_finding(Scope(topic, child), parent, begin, end)

    def _make_finding(self, child: Scope, parent: int, begin: Mapping[str, Any], end: Mapping[str, Any]) -> Finding:
        position = begin["ledger"], begin["entry"], begin["batch_index"]
        at, until = (format_clock(row["at"] * 1_000, self.dates) for row in (begin, end))
        last = format_position(end["ledger"], end["entry"], end["batch_index"])
        return Finding(
            Code.KEY_ORDER,
            child,
            begin["at"] * 1_000,
            f"{format_position(*position)} of segment {child.partition} was delivered to {begin['consumer']} at {at}, "
            f"but its ancestor segment {parent} had not drained: {last} was acknowledged by {end['consumer']} at "
            f"{until}",
            "a segment was served before the one that it was split from, or merged from, had drained",
            position,
            evidence=(f"{last} of segment {parent} was acknowledged at {until}",),
        )
