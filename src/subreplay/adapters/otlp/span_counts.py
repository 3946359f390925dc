"""Counts of the lines and spans of OTLP JSON files by outcome."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class LineCounts:
    """Counts of lines: ``lines = exports + skipped + quarantined``. ``others`` are spans of other systems than
    Kafka and Pulsar."""

    lines: int = 0
    exports: int = 0
    skipped: int = 0
    quarantined: int = 0
    spans: int = 0
    others: int = 0

    def __add__(self, more: LineCounts) -> LineCounts:
        return LineCounts(
            self.lines + more.lines,
            self.exports + more.exports,
            self.skipped + more.skipped,
            self.quarantined + more.quarantined,
            self.spans + more.spans,
            self.others + more.others,
        )


@dataclass(frozen=True)
class SpanCounts:
    """The spans of one file: ``spans = deliveries + others + batches + duplicates + repeated + quarantined``.

    ``others``: spans of other systems, topics or subscriptions, or of other operations such as ``send``. ``batches``:
    spans of several messages that they do not name. ``duplicates``: spans of a message that another span describes
    better, from another library or as ``process`` besides ``receive``. ``repeated``: copies of the same span.
    """

    spans: int = 0
    deliveries: int = 0
    others: int = 0
    batches: int = 0
    duplicates: int = 0
    repeated: int = 0
    quarantined: int = 0

    def with_others(self, more: int) -> SpanCounts:
        """Add spans of other systems to these counts."""
        return replace(self, spans=self.spans + more, others=self.others + more)
