"""Adapters by name. An adapter is a function from a path to ``SourceTables`` or ``SourceStream``, and one line here."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from subreplay.adapters.base import Adapter, FileCount, Options, Reason, RejectedRow, SourceSummary, SourceTables


def _import_module(name: str) -> Any:
    """Import a module of this package at its first use, because its dependencies take seconds to load."""
    return import_module(f"{__name__}.{name}")


ADAPTERS: Final[dict[str, Adapter]] = {
    each.name: each
    for each in (
        Adapter(
            "capture",
            stream=lambda path, _: _import_module("capture.capture_stream").open_stream(path),
        ),
        Adapter(
            "pulsar-recording",
            read=lambda path, _: _import_module("pulsar_recording.pulsar_recording_adapter").read_tables(path),
        ),
        Adapter(
            "pulsar-broker-log",
            ("topic", "subscription", "statistics"),
        ),
        Adapter(
            "pulsar-stats",
            ("topic", "subscription", "times"),
            stream=lambda path, options: _import_module("pulsar_stats.poll_stream").open_stream(path, options),
            assume_options=lambda path: _import_module("pulsar_stats.stats_adapter").assume_options(path),
        ),
        Adapter(
            "otlp-spans",
            ("topic", "subscription", "sampled"),
            stream=lambda path, options: _import_module("otlp.span_stream").open_stream(path, options),
        ),
        Adapter(
            "kafka-text",
            ("topic",),
            stream=lambda path, options: _import_module("kafka_text").open_stream(path, options),
            assume_options=lambda path: _import_module("kafka_text").assume_options(path),
        ),
        Adapter(
            "kafka-recording",
            read=lambda path, _: _import_module("kafka_recording.kafka_recording_adapter").read_tables(path),
        ),
        Adapter(
            "kafka-group",
            ("topic", "subscription", "coordinator_log", "time_zone"),
            stream=lambda path, options: _import_module("kafka_group.group_stream").open_stream(path, options),
        ),
    )
}

__all__ = ["ADAPTERS", "Adapter", "FileCount", "Options", "Reason", "RejectedRow", "SourceSummary", "SourceTables"]
