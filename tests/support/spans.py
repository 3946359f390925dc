"""What is read of OTLP spans, and what became of each line and span."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa

from subreplay.adapters.base import Options, RejectedRow
from subreplay.adapters.otlp import span_stream
from subreplay.adapters.otlp.span_counts import LineCounts, SpanCounts
from subreplay.adapters.otlp.span_deliveries import sum_outcomes
from subreplay.adapters.otlp.span_outcomes import SpanSelection
from subreplay.adapters.otlp.span_summary import add_other_spans
from subreplay.adapters.streams import SmallTables, StreamResult
from tests.support import source_reading
from tests.support.in_process import Cuts


@dataclass(frozen=True)
class Spans:
    """``lines = exports + skipped + quarantined`` and ``spans = deliveries + others + batches + duplicates +
    repeated + quarantined`` hold for each file."""

    deliveries: pa.Table
    rejected: tuple[RejectedRow, ...]
    lines: Mapping[str, LineCounts]
    spans: Mapping[str, SpanCounts]


def spans(path: Path, selection: SpanSelection | None = None) -> Spans:
    """What is read of a file or folder."""
    seen: dict[str, pa.Table] = {}
    with patch.object(span_stream, "select_spans", lambda _: selection or SpanSelection()):
        source = span_stream.open_stream(path, Options())

    def finish(known: SmallTables, lost: Counter[str]) -> StreamResult:
        seen.update(known)
        return source.finish(known, lost)

    found = source_reading.read(replace(source, finish=finish), Cuts(1, 1_000_000))
    lines = span_stream.sum_line_counts(seen)
    counts = add_other_spans(sum_outcomes([seen["outcomes"]]), lines)
    return Spans(found.tables["deliveries"], found.rejected, lines, counts)
