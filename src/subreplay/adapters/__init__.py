"""Adapters by name. A new input shape is a function from a path to ``Ingested``, and one line here."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from subreplay.adapters.base import Adapter, FileCount, Ingested, Options, Reason, Rejected, Told


def _module(name: str) -> Any:
    """A module of this room, imported when it is first asked to read: what it needs for that takes seconds to load."""
    return import_module(f"{__name__}.{name}")


ADAPTERS: Final[dict[str, Adapter]] = {
    each.name: each
    for each in (
        Adapter(
            "capture",
            lambda path, _: _module("capture.adapter").read(path),
            streamed=lambda path, _: _module("capture.folds").streamed(path),
        ),
        Adapter("pulsar-recording", lambda path, _: _module("pulsar_recording.adapter").read(path)),
        Adapter(
            "pulsar-broker-log",
            lambda path, options: _module("broker_log.logs").read(path, options),
            ("topic", "subscription", "statistics"),
        ),
        Adapter(
            "pulsar-stats",
            lambda path, options: _module("pulsar_stats.adapter").read(path, options),
            ("topic", "subscription", "times"),
            lambda path, options: _module("pulsar_stats.folds").streamed(path, options),
            lambda path: _module("pulsar_stats.adapter").assumed(path),
        ),
        Adapter(
            "otlp-spans",
            lambda path, options: _module("otlp.spans").read(path, options),
            ("topic", "subscription", "sampled"),
            lambda path, options: _module("otlp.folds").streamed(path, options),
        ),
        Adapter(
            "kafka-text",
            lambda path, options: _module("kafka_text").read(path, options),
            ("topic",),
            lambda path, options: _module("kafka_text").streamed(path, options),
            lambda path: _module("kafka_text").assumed(path),
        ),
        Adapter("kafka-recording", lambda path, _: _module("kafka_recording.adapter").read(path)),
        Adapter(
            "kafka-group",
            lambda path, options: _module("kafka_group.groups").read(path, options),
            ("topic", "subscription", "coordinator_log", "time_zone"),
            lambda path, options: _module("kafka_group.groups").streamed(path, options),
        ),
    )
}

__all__ = ["ADAPTERS", "Adapter", "FileCount", "Ingested", "Options", "Reason", "Rejected", "Told"]
