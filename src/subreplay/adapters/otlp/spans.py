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
from subreplay.adapters.detect import chosen
from subreplay.adapters.files import LINES, lines_of
from subreplay.adapters.otlp.counts import LineCounts, SpanCounts
from subreplay.adapters.otlp.deliveries import Deliveries, Wanted, deliveries
from subreplay.adapters.otlp.lines import SPANS, ParsedLines, parse
from subreplay.adapters.streams import End
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
            parsed = of_damage(part) if isinstance(part, Rejected) else parse(part)
            tables.append(parsed.spans)
            rejected += parsed.rejected
            lines[name] += parsed.counts
    found = pa.concat_tables(tables)
    if not len(found):
        raise no_spans(path, lines, rejected)
    told = deliveries(found, wanted or Wanted())
    if told.rejected and not len(told.table):
        raise none_fits(path, len(told.rejected), told.rejected)
    every = with_others(told.counts, lines)
    return Spans(told.table, (*rejected, *told.rejected), lines, every, Evidence(sampled=sampled))


def no_spans(path: Path, lines: Mapping[str, LineCounts], rejected: Iterable[Rejected]) -> InputError:
    """What is wrong where no line has a span."""
    return InputError(f"{path}: no span of Kafka or Pulsar in {sum(c.lines for c in lines.values()):,} lines of "
                      f"{len(lines):,} files; is it OTLP JSON, one export a line?{_first(rejected)}")  # fmt: skip


def none_fits(path: Path, count: int, rejected: Iterable[Rejected]) -> InputError:
    """What is wrong where so many spans are rejected, and none is left."""
    return InputError(f"{path}: none of {count:,} spans fits the contract;{_first(rejected)}")


def with_others(counts: Mapping[str, SpanCounts], lines: Mapping[str, LineCounts]) -> dict[str, SpanCounts]:
    """The counts of each file, with the spans of other systems that its lines had."""
    return {name: counts.get(name, SpanCounts()).with_others(of.others) for name, of in lines.items()}


def read(path: Path, options: Options) -> Ingested:
    """``spans`` as an adapter gives them: rows of the counts are spans, and lines in quarantine.

    Option ``subscription`` is that of spans that name none, too. Option ``sampled`` is true where it is not told.
    """
    files = chosen(path, NAME)
    sampled = options.sampled is not False
    found = spans(path, wanted_of(options), sampled=sampled, files=files.mine)
    pairs = told_of({"deliveries": found.deliveries})
    end = ended(path, pairs, found.lines, found.spans, sampled)
    return Ingested({"deliveries": found.deliveries}, found.rejected, *end[1:4], (*end.notes, *files.notes))


def wanted_of(options: Options) -> Wanted:
    """Which spans options ask for."""
    topics = None if options.topic is None else [options.topic]
    return Wanted(topics, None if options.subscription is None else [options.subscription], options.subscription)


def ended(
    path: Path, pairs: list[tuple[str, str]], lines: Mapping[str, LineCounts], counts: Mapping[str, SpanCounts],
    sampled: bool,
) -> End:  # fmt: skip
    """What is told at the end. Raises ``InputError`` where there are no deliveries."""
    if not pairs:
        raise InputError(f"{path}: no span of the topic and subscription that are asked for")
    subscription, topic = pairs[0]
    traffic: dict[str, Any] = {"membership": {"from": "deliveries"}, "deliveries": {"sampled": sampled}}
    run = {"subscription": {"name": subscription, "topic": topic}, "traffic": traffic}
    by_file = tuple(_count(name, of, lines[name].quarantined) for name, of in counts.items())
    return End({}, by_file, run, tuple(pairs[1:]), NOTES)


def _count(name: str, of: SpanCounts, lines: int) -> FileCount:
    others = of.spans - of.deliveries - of.quarantined
    return FileCount(name, of.spans + lines, of.quarantined + lines, others)


def of_damage(rest: Rejected) -> ParsedLines:
    """The rest of a file that cannot be read, as a line."""
    return ParsedLines(SPANS.empty_table(), (rest,), LineCounts(lines=1, quarantined=1))


def _first(rejected: Iterable[Rejected]) -> str:
    return next((f" the first: {one}" for one in rejected), "")
