"""Adapters by name. A new input shape is a function from a path to ``Ingested``, and one line here."""

from __future__ import annotations

from typing import Final

from subreplay.adapters.base import Adapter, FileCount, Ingested, Options, Reason, Rejected, Told
from subreplay.adapters.broker_log import logs
from subreplay.adapters.capture import adapter as captures
from subreplay.adapters.kafka_group import groups
from subreplay.adapters.kafka_recording import adapter as kafka_recordings
from subreplay.adapters.looks import sniff
from subreplay.adapters.otlp import spans
from subreplay.adapters.pulsar_recording import adapter as recordings
from subreplay.adapters.pulsar_stats import adapter as statistics

ADAPTERS: Final[dict[str, Adapter]] = {
    each.name: each
    for each in (
        Adapter("capture", lambda path, _: captures.read(path)),
        Adapter("pulsar-recording", lambda path, _: recordings.read(path)),
        Adapter("pulsar-broker-log", logs.read, ("topic", "subscription", "statistics")),
        Adapter("pulsar-stats", statistics.read, ("topic", "subscription", "times")),
        Adapter("otlp-spans", spans.read, ("topic", "subscription", "sampled")),
        Adapter("kafka-recording", lambda path, _: kafka_recordings.read(path)),
        Adapter("kafka-group", groups.read, ("topic", "subscription", "coordinator_log", "time_zone")),
    )
}

__all__ = ["ADAPTERS", "Adapter", "FileCount", "Ingested", "Options", "Reason", "Rejected", "Told", "sniff"]
