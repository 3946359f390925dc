"""What is read of OTLP spans, and what became of each line and span."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa

from subreplay.adapters.base import Options, Rejected
from subreplay.adapters.otlp import folds
from subreplay.adapters.otlp.counts import LineCounts, SpanCounts
from subreplay.adapters.otlp.deliveries import fates_by_file
from subreplay.adapters.otlp.fates import Wanted
from subreplay.adapters.otlp.spans import with_others
from subreplay.adapters.streams import End, Known
from tests.support import streamed
from tests.support.in_process import Cuts


@dataclass(frozen=True)
class Spans:
    """``lines = exports + passed_over + quarantined`` and ``spans = deliveries + others + batches + told_twice +
    repeated + quarantined`` hold for each file."""

    deliveries: pa.Table
    rejected: tuple[Rejected, ...]
    lines: Mapping[str, LineCounts]
    spans: Mapping[str, SpanCounts]


def spans(path: Path, wanted: Wanted | None = None) -> Spans:
    """What is read of a file or folder."""
    seen: dict[str, pa.Table] = {}
    with patch.object(folds, "wanted_of", lambda _: wanted or Wanted()):
        source = folds.streamed(path, Options())

    def end(known: Known, lost: Counter[str]) -> End:
        seen.update(known)
        return source.end(known, lost)

    found = streamed.read(replace(source, end=end), Cuts(1, 1_000_000))
    lines = folds.line_counts(seen)
    counts = with_others(fates_by_file([seen["fates"]]), lines)
    return Spans(found.tables["deliveries"], found.rejected, lines, counts)
