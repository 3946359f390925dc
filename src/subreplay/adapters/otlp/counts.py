"""What became of the lines and spans of OTLP JSON files."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class LineCounts:
    """``lines = exports + passed_over + quarantined``; ``others`` are spans of neither Kafka nor Pulsar."""

    lines: int = 0
    exports: int = 0
    passed_over: int = 0
    quarantined: int = 0
    spans: int = 0
    others: int = 0

    def __add__(self, more: LineCounts) -> LineCounts:
        return LineCounts(
            self.lines + more.lines,
            self.exports + more.exports,
            self.passed_over + more.passed_over,
            self.quarantined + more.quarantined,
            self.spans + more.spans,
            self.others + more.others,
        )


@dataclass(frozen=True)
class SpanCounts:
    """``spans = deliveries + others + batches + told_twice + repeated + quarantined``, of one file.

    ``others``: of other systems, topics, subscriptions or of other operations, as ``send``; ``batches``: of several
    messages at once, none of which they name; ``told_twice``: of a message that another library, or ``process`` beside
    ``receive``, tells more of; ``repeated``: the same span once more.
    """

    spans: int = 0
    deliveries: int = 0
    others: int = 0
    batches: int = 0
    told_twice: int = 0
    repeated: int = 0
    quarantined: int = 0

    def with_others(self, more: int) -> SpanCounts:
        """These counts with so many spans more that are of others."""
        return replace(self, spans=self.spans + more, others=self.others + more)
