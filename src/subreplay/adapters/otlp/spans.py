"""Adapter ``otlp-spans``: what traces tell of deliveries, from OTLP JSON lines.

A span tells that an application had a message: the OpenTelemetry agent's ``process`` and ``receive`` spans of Kafka and
Pulsar clients, and the ``process`` spans of Pulsar's own Java client (4.2 and later, ``enableTracing(true)``), whose
end is the acknowledgement, the negative one or its time running out. Evidence is a *receipt*, by the client's clock.
What never ends is never exported, and spans may be sampled: what is not there says nothing (``NOT_JUDGED``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from subreplay.adapters.base import FileCount, Options, Rejected
from subreplay.adapters.otlp.counts import LineCounts, SpanCounts
from subreplay.adapters.otlp.fates import Wanted
from subreplay.adapters.otlp.lines import SPANS, ParsedLines
from subreplay.adapters.streams import End
from subreplay.errors import InputError

_NEVER_ENDED: Final = "a span is exported when it ends: of a message without one nothing is known"
_NO_COUNT: Final = "spans do not tell redelivery counts, which are 0 in the rows: they say nothing"

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

NAME: Final = "otlp-spans"
NOTES: Final = (
    "spans have no messages: name them as traffic.messages, such as {from: kafka-table.spark, path: ...}",
    "spans do not tell who joined and left: the membership is made of the deliveries, unless another one is named, "
    "such as traffic.membership: {from: pulsar-stats, path: ...}",
    "spans do not tell the policy: set subscription.policy and profile. They tell no redelivery count either: findings "
    f"of {', '.join(code for code, why in NOT_JUDGED.items() if why == _NO_COUNT)} say nothing",
)


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
