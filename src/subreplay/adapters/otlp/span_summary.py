"""Notes, errors and the result of adapter ``otlp-spans``.

A span shows that an application received a message. Sources are the ``process`` and ``receive`` spans of the
OpenTelemetry agent for Kafka and Pulsar clients, and the ``process`` spans of Pulsar's Java client (4.2 and later,
``enableTracing(true)``). The latter end with the acknowledgement, the negative acknowledgement or the ack timeout. The
evidence is a *receipt* by the client's clock. A span that never ends is never exported, and spans may be sampled, so a
missing span proves nothing (``NOT_JUDGED``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from subreplay.adapters.base import FileCount, Options, RejectedRow, describe_first
from subreplay.adapters.otlp.otlp_json import SPANS, ParsedLines
from subreplay.adapters.otlp.span_counts import LineCounts, SpanCounts
from subreplay.adapters.otlp.span_outcomes import SpanSelection
from subreplay.adapters.streams import StreamResult
from subreplay.errors import InputError

_NEVER_ENDED: Final = "a span is exported when it ends, so a message without a span is not evidence of anything"
_NO_COUNT: Final = "spans do not contain redelivery counts, so the count in the rows is always 0"

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
"""The rules that spans leave *unknown*, by code, with the reason. A finding of such a rule would be an artefact."""

NAME: Final = "otlp-spans"
NOTES: Final = (
    "spans do not contain the published messages. Name them as traffic.messages, such as "
    "{from: kafka-table.spark, path: ...}",
    "spans do not record joins and leaves, so the membership is derived from the deliveries. Name a better one if you "
    "have it, such as traffic.membership: {from: pulsar-stats, path: ...}",
    "spans do not contain the policy. Set subscription.policy and subscription.profile",
    "spans do not contain redelivery counts, so ignore findings of "
    f"{', '.join(code for code, why in NOT_JUDGED.items() if why == _NO_COUNT)}",
)


def build_no_spans_error(path: Path, lines: Mapping[str, LineCounts], rejected: Iterable[RejectedRow]) -> InputError:
    """Build the error for files without any span."""
    return InputError(f"{path}: the files contain no span of Kafka or Pulsar ({len(lines):,} files, "
                      f"{sum(c.lines for c in lines.values()):,} lines). Export OTLP JSON, one export per line."
                      + describe_first(path, rejected))  # fmt: skip


def build_no_valid_span_error(path: Path, count: int, rejected: Iterable[RejectedRow]) -> InputError:
    """Build the error for files whose spans are all rejected."""
    return InputError(f"{path}: none of {count:,} spans fits the contract.{describe_first(path, rejected)}")


def add_other_spans(counts: Mapping[str, SpanCounts], lines: Mapping[str, LineCounts]) -> dict[str, SpanCounts]:
    """Add to the counts of each file the spans of other systems in its lines."""
    return {name: counts.get(name, SpanCounts()).with_others(of.others) for name, of in lines.items()}


def select_spans(options: Options) -> SpanSelection:
    """Select spans by the options."""
    topics = None if options.topic is None else [options.topic]
    return SpanSelection(topics, None if options.subscription is None else [options.subscription], options.subscription)


def build_result(
    path: Path, pairs: list[tuple[str, str]], lines: Mapping[str, LineCounts], counts: Mapping[str, SpanCounts],
    sampled: bool,
) -> StreamResult:  # fmt: skip
    """Build the result. Raises ``InputError`` where there are no deliveries."""
    if not pairs:
        raise InputError(
            f"{path}: no span is of the requested topic and subscription. Check --topic and --subscription"
        )
    subscription, topic = pairs[0]
    traffic: dict[str, Any] = {"membership": {"from": "deliveries"}, "deliveries": {"sampled": sampled}}
    run = {"subscription": {"name": subscription, "topic": topic}, "traffic": traffic}
    by_file = tuple(_count_file(name, of, lines[name].quarantined) for name, of in counts.items())
    return StreamResult({}, by_file, run, tuple(pairs[1:]), NOTES)


def _count_file(name: str, of: SpanCounts, lines: int) -> FileCount:
    others = of.spans - of.deliveries - of.quarantined
    return FileCount(name, of.spans + lines, of.quarantined + lines, others)


def reject_rest(rest: RejectedRow) -> ParsedLines:
    """Represent the unreadable rest of a file as one rejected line."""
    return ParsedLines(SPANS.empty_table(), (rest,), LineCounts(lines=1, quarantined=1))
