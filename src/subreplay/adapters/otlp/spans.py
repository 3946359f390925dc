"""Adapter ``otlp-spans``: what traces tell of deliveries, from OTLP JSON lines.

A span tells that an application had a message: the OpenTelemetry agent's ``process`` and ``receive`` spans of Kafka and
Pulsar clients, and the ``process`` spans of Pulsar's own Java client (4.2 and later, ``enableTracing(true)``), whose
end is the acknowledgement, the negative one or its time running out. Evidence is a *receipt*, by the client's clock.
What never ends is never exported, and spans may be sampled: what is not there says nothing (``NOT_JUDGED``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pyarrow as pa

from subreplay.adapters.base import FileCount, Ingested, Rejected
from subreplay.adapters.otlp.counts import LineCounts, SpanCounts
from subreplay.adapters.otlp.deliveries import Deliveries, Wanted, deliveries
from subreplay.adapters.otlp.files import LINES, files, lines_of
from subreplay.adapters.otlp.lines import SPANS, ParsedLines, parse
from subreplay.errors import InputError

__all__ = [
    "LINES", "NOT_JUDGED", "NOT_JUDGED_SAMPLED", "SPANS", "Deliveries", "Evidence", "LineCounts", "ParsedLines",
    "SpanCounts", "Spans", "Wanted", "deliveries", "files", "lines_of", "parse", "read", "spans",
]  # fmt: skip

_NEVER_ENDED: Final = "a span is exported when it ends: of a message without one nothing is known"
_NO_COUNT: Final = "spans do not tell redelivery counts, which are 0 in the rows: they say nothing"
_SAMPLED: Final = "spans may be sampled: a message without a span may have been delivered"

NOT_JUDGED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "LOST": _NEVER_ENDED,
        "UNACKED": _NEVER_ENDED,
        "UNSEEN": _NEVER_ENDED,
        "STARVED": _NEVER_ENDED,
        "DUP_OUTSTANDING": _NO_COUNT,
        "REDELIVERED_UNASKED": _NO_COUNT,
        "DLQ_INCOMPLETE": _NO_COUNT,
    }
)
"""Rules that deliveries from spans leave *unknown*, by code, and why; a finding of theirs would be an artefact."""

NOT_JUDGED_SAMPLED: Final[Mapping[str, str]] = MappingProxyType({**NOT_JUDGED, "SKIP": _SAMPLED})
"""``NOT_JUDGED`` where spans may be sampled, which is what is assumed unless the user says otherwise."""


@dataclass(frozen=True)
class Evidence:
    """What deliveries are known by, and what they cannot tell."""

    kind: str = "receipt"
    sampled: bool = True

    @property
    def not_judged(self) -> Mapping[str, str]:
        """Rules that these deliveries leave *unknown*, by code, and why."""
        return NOT_JUDGED_SAMPLED if self.sampled else NOT_JUDGED


@dataclass(frozen=True)
class Spans:
    """What traces tell: canonical ``deliveries``, rejected lines and spans, and counts of both by file.

    ``lines = exports + passed_over + quarantined`` and ``spans = deliveries + others + batches + told_twice + repeated
    + quarantined`` hold for each file.
    """

    deliveries: pa.Table
    rejected: tuple[Rejected, ...]
    lines: Mapping[str, LineCounts]
    spans: Mapping[str, SpanCounts]
    evidence: Evidence = field(default_factory=Evidence)


def spans(path: Path, wanted: Wanted | None = None, *, sampled: bool = True) -> Spans:
    """Read a file of OTLP JSON lines (plain or gzip), or all files of a folder.

    ``sampled=False`` says that every message has its span. Raises ``InputError`` where there is no file, none of them
    has any span of Kafka or Pulsar, or none of those that are wanted fits the contract; ``EnvironmentFailed`` where one
    cannot be read.
    """
    paths = files(path)
    root = path if path.is_dir() else path.parent
    tables = [SPANS.empty_table()]
    rejected: list[Rejected] = []
    lines: dict[str, LineCounts] = {}
    for each in paths:
        name = str(each.relative_to(root))
        lines[name] = LineCounts()
        for part in lines_of(each, name):
            parsed = _of_damage(part) if isinstance(part, Rejected) else parse(part)
            tables.append(parsed.spans)
            rejected += parsed.rejected
            lines[name] += parsed.counts
    found = pa.concat_tables(tables)
    if not len(found):
        raise InputError(f"{path}: no span of Kafka or Pulsar in {sum(c.lines for c in lines.values()):,} lines of "
                         f"{len(paths):,} files; is it OTLP JSON, one export a line?{_first(rejected)}")  # fmt: skip
    told = deliveries(found, wanted or Wanted())
    if told.rejected and not len(told.table):
        raise InputError(f"{path}: none of {len(told.rejected):,} spans fits the contract;{_first(told.rejected)}")
    counts = {name: told.counts.get(name, SpanCounts()) for name in lines}
    every = {name: count.with_others(lines[name].others) for name, count in counts.items()}
    return Spans(told.table, (*rejected, *told.rejected), lines, every, Evidence(sampled=sampled))


def read(path: Path) -> Ingested:
    """``spans`` as an adapter gives them: rows of the counts are what became deliveries or was rejected."""
    found = spans(path)
    counts = []
    for name, of_spans in found.spans.items():
        quarantined = of_spans.quarantined + found.lines[name].quarantined
        counts.append(FileCount(name, of_spans.deliveries + quarantined, quarantined))
    named = found.deliveries.group_by(["subscription", "topic"]).aggregate([]).to_pylist()
    pairs = sorted((row["subscription"], row["topic"]) for row in named)
    run = {"subscription": {"name": pairs[0][0], "topic": pairs[0][1]}} if pairs else {}
    return Ingested({"deliveries": found.deliveries}, found.rejected, tuple(counts), run, tuple(pairs[1:]))


def _of_damage(rest: Rejected) -> ParsedLines:
    return ParsedLines(SPANS.empty_table(), (rest,), LineCounts(lines=1, quarantined=1))


def _first(rejected: Iterable[Rejected]) -> str:
    return next((f" the first: {one}" for one in rejected), "")
