"""Exports that no adapter reads: how they are recognised, what they lack, and what to export instead."""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class Export(NamedTuple):
    """``title``: what the export is. ``remedy``: why it is not read, and the command that exports a readable file."""

    title: str
    remedy: str
    pattern: re.Pattern[bytes]


def _build_export(title: str, remedy: str, *patterns: str) -> Export:
    return Export(title, remedy, re.compile("|".join(patterns).encode(), re.MULTILINE))


_POLL: Final = "Poll `pulsar-admin topics stats` instead, which `--from pulsar-stats` reads"
_COPY: Final = "copy the records of `__consumer_offsets` instead, which `--from kafka-group` reads"
_KCAT: Final = "`kcat -C -e -J -t TOPIC` writes JSON that contains them"
_NUMBER: Final = r"[-+]?(?:[\d.]+(?:[eE][-+]?\d+)?|NaN|Inf)"

UNSUPPORTED: Final[dict[str, Export]] = {
    "pulsar-client-consume": _build_export(
        "what `pulsar-client consume` prints",
        "It does not contain message ids. Read the topic with `traffic.messages: {from: pulsar-live}` (a Reader), or "
        "write it into a table with the Spark connector of Pulsar (`from: pulsar-table`)",
        r"^-+ got message -+\s*$", r"^publishTime:\[\d+\], eventTime:\[", r"^key:\[.*\], properties:\[.*\], content:",
    ),
    "pulsar-peek-messages": _build_export(
        "what `pulsar-admin topics peek-messages` prints",
        "It contains the first messages of a backlog only. Read the topic with `traffic.messages: {from: pulsar-live}`",
        r"^(?:Batch )?Message ID: \d+:\d+",
    ),
    "pulsar-stats-internal": _build_export(
        "the answer of `pulsar-admin topics stats-internal`",
        f"It contains positions of ledgers and cursors, and no consumers. {_POLL}",
        r'"(?:entriesAddedCounter|lastConfirmedEntry)"\s*:',
    ),
    "prometheus": _build_export(
        "an export of Prometheus metrics",
        f"It contains numbers, and no members, messages or deliveries. {_POLL}; of Kafka {_COPY}",
        r"^# (?:TYPE|HELP) [a-zA-Z_:]", rf'\A[a-zA-Z_:][\w:]*\{{\w+="[^\n]*\}} {_NUMBER}(?: \d+)?$',
        r'"resultType"\s*:\s*"(?:matrix|vector)"',
    ),
    "loki-answer": _build_export(
        "an answer of Loki's query API",
        "Write one object for each line, oldest first: `logcli query --forward -o jsonl`",
        r'"resultType"\s*:\s*"streams"',
    ),
    "kafka-consumer-groups": _build_export(
        "what `kafka-consumer-groups` or `rpk group describe` prints",
        f"It shows a group at one instant. For its history {_COPY}",
        r"^(?:GROUP\s+)?TOPIC\s+PARTITION\s+(?:CURRENT|NEW)-OFFSET", r"^GROUP\s+(?:CONSUMER-ID|COORDINATOR)\b",
        r"^GROUP +\S+\r?\nCOORDINATOR +\d+",
    ),
    "kafka-topics": _build_export(
        "a description of topics, as `kafka-topics --describe` or `kcat -L` prints it",
        f"It contains no messages: {_KCAT}",
        r"^Metadata for .* \(from broker ", r"^PARTITION +LEADER +EPOCH +REPLICAS",
        r"^\s*Topic:\s*\S+\s+(?:TopicId:\s*\S+\s+)?(?:PartitionCount|Partition):",
    ),
    "kafka-get-offsets": _build_export(
        "what `kafka-get-offsets` prints",
        f"It contains the ends of partitions, and no messages: {_KCAT}",
        r"\A(?:[\w.-]+:\d+:\d+\r?\n)+\Z",
    ),
    "kafka-printed-offsets": _build_export(
        "what a formatter of `kafka-console-consumer` makes of `__consumer_offsets`",
        f"It does not contain the members: {_COPY}",
        r"^\[[^\]\n]+\]::(?:\[?OffsetAndMetadata|GroupMetadata|NULL)",
    ),
    "kafka-console-consumer": _build_export(
        "what `kafka-console-consumer` prints without the place or the time of each message",
        "Add `--property print.timestamp=true --property print.partition=true --property print.offset=true --property "
        f"print.key=true`; or {_KCAT}",
        r"\A(?:(?:CreateTime|LogAppendTime):\d+|NO_TIMESTAMP|Partition:\d+|Offset:\d+)\W",
    ),
    "pulsar-perf": _build_export(
        "what `pulsar-perf` prints",
        f"It contains rates and latencies, and no single messages. {_POLL}",
        r"Throughput (?:received|produced):", r"Aggregated (?:throughput|latency) stats",
    ),
    "kcat-text": _build_export(
        "what `kcat -f` prints",
        f"Its format is not fixed, and may lack the partition, offset or time of a message: {_KCAT}",
        r"^(?:Topic )?[\w.-]+ \[\d+\] at offset \d+", r"^Key \(-?\d+ bytes\):", r"^% Reached end of topic \S+ \[\d+\]",
    ),
}  # fmt: skip
"""The exports by name."""
PULSAR_CLIENT_LOG: Final = "pulsar-client-log"
KAFKA_CLIENT_LOG: Final = "kafka-client-log"
CLIENT_LOGS: Final[dict[str, Export]] = {
    PULSAR_CLIENT_LOG: _build_export(
        "the log of a Pulsar client",
        "It does not say which messages were received. Give the log of the broker, or record the consumer with "
        "`subreplay.capture`",
        r"\borg\.apache\.pulsar\.client\.",
    ),
    KAFKA_CLIENT_LOG: _build_export(
        "the log of a Kafka client",
        f"It does not say which messages were received. Record the consumer with `subreplay.capture`, or {_COPY}",
        r"\borg\.apache\.kafka\.clients\.",
    ),
}
"""The exports by name. Logs of brokers are detected before these."""


def match_export(head: bytes, among: dict[str, Export]) -> str | None:
    """Return the name of the export whose pattern matches the first bytes of a file."""
    return next((name for name, export in among.items() if export.pattern.search(head)), None)
