"""Adapter ``otlp-spans``: what traces tell of deliveries, from OTLP JSON lines.

A span tells that an application had a message: the OpenTelemetry agent's ``process`` and ``receive`` spans of Kafka and
Pulsar clients, and the ``process`` spans of Pulsar's own Java client (4.2 and later, ``enableTracing(true)``), whose
end is the acknowledgement, the negative one or its time running out. Evidence is a *receipt*, by the client's clock.
What never ends is never exported, and spans may be sampled: what is not there says nothing (``NOT_JUDGED``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa

from subreplay.adapters.base import FileCount, Ingested, Options, Rejected, told_of
from subreplay.adapters.files import LINES, lines_of
from subreplay.adapters.looks import chosen
from subreplay.adapters.otlp.counts import LineCounts, SpanCounts
from subreplay.adapters.otlp.deliveries import Deliveries, Wanted, deliveries
from subreplay.adapters.otlp.lines import SPANS, ParsedLines, parse
from subreplay.errors import InputError

__all__ = [
    "LINES", "NOT_JUDGED", "NOT_JUDGED_SAMPLED", "SPANS", "Deliveries", "Evidence", "LineCounts", "ParsedLines",
    "SpanCounts", "Spans", "Wanted", "deliveries", "lines_of", "parse", "read", "spans",
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

NAME: Final = "otlp-spans"
NOTES: Final = (
    "spans have no messages: name them as traffic.messages, such as {from: kafka-table.spark, path: ...}",
    "spans do not tell who joined and left: the membership is made of the deliveries, unless another one is named, "
    "such as traffic.membership: {from: pulsar-stats, path: ...}",
    "spans do not tell the policy: set subscription.policy and profile. They tell no redelivery count either: findings "
    f"of {', '.join(code for code, why in NOT_JUDGED.items() if why == _NO_COUNT)} say nothing",
)


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


def spans(
    path: Path, wanted: Wanted | None = None, *, sampled: bool = True, files: Collection[Path] | None = None
) -> Spans:
    """Read a file of OTLP JSON lines (plain or gzip), or all files of a folder but those that look like something else.

    ``files`` are those to read, where they are chosen already. ``sampled=False`` says that every message has its span.
    Raises ``InputError`` where there is no file, none of them
    has any span of Kafka or Pulsar, or none of those that are wanted fits the contract; ``EnvironmentFailed`` where one
    cannot be read.
    """
    paths = chosen(path, NAME).mine if files is None else files
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


def read(path: Path, options: Options) -> Ingested:
    """``spans`` as an adapter gives them: rows of the counts are spans, and lines in quarantine.

    Option ``subscription`` is that of spans that name none, too. Option ``sampled`` is true where it is not told.
    """
    files = chosen(path, NAME)
    wanted = Wanted(
        None if options.topic is None else [options.topic],
        None if options.subscription is None else [options.subscription],
        options.subscription,
    )
    sampled = options.sampled is not False
    found = spans(path, wanted, sampled=sampled, files=files.mine)
    pairs = told_of({"deliveries": found.deliveries})
    if not pairs:
        raise InputError(f"{path}: no span of the topic and subscription that are asked for")
    subscription, topic = pairs[0]
    traffic: dict[str, Any] = {"membership": {"from": "deliveries"}, "deliveries": {"sampled": sampled}}
    run = {"subscription": {"name": subscription, "topic": topic}, "traffic": traffic}
    counts = tuple(_count(name, of, found.lines[name].quarantined) for name, of in found.spans.items())
    return Ingested({"deliveries": found.deliveries}, found.rejected, counts, run, tuple(pairs[1:]),
                    (*NOTES, *files.notes))  # fmt: skip


def _count(name: str, of: SpanCounts, lines: int) -> FileCount:
    others = of.spans - of.deliveries - of.quarantined
    return FileCount(name, of.spans + lines, of.quarantined + lines, others)


def _of_damage(rest: Rejected) -> ParsedLines:
    return ParsedLines(SPANS.empty_table(), (rest,), LineCounts(lines=1, quarantined=1))


def _first(rejected: Iterable[Rejected]) -> str:
    return next((f" the first: {one}" for one in rejected), "")
