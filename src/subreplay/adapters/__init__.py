"""Adapters by name. A new input shape is a function from a path to ``Ingested`` or ``Streamed``, and one line here."""

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
            streamed=lambda path, _: _module("capture.folds").streamed(path),
        ),
        Adapter("pulsar-recording", read=lambda path, _: _module("pulsar_recording.adapter").read(path)),
        Adapter(
            "pulsar-broker-log",
            ("topic", "subscription", "statistics"),
        ),
        Adapter(
            "pulsar-stats",
            ("topic", "subscription", "times"),
            streamed=lambda path, options: _module("pulsar_stats.folds").streamed(path, options),
            assumed=lambda path: _module("pulsar_stats.adapter").assumed(path),
        ),
        Adapter(
            "otlp-spans",
            ("topic", "subscription", "sampled"),
            streamed=lambda path, options: _module("otlp.folds").streamed(path, options),
        ),
        Adapter(
            "kafka-text",
            ("topic",),
            streamed=lambda path, options: _module("kafka_text").streamed(path, options),
            assumed=lambda path: _module("kafka_text").assumed(path),
        ),
        Adapter("kafka-recording", read=lambda path, _: _module("kafka_recording.adapter").read(path)),
        Adapter(
            "kafka-group",
            ("topic", "subscription", "coordinator_log", "time_zone"),
            streamed=lambda path, options: _module("kafka_group.groups").streamed(path, options),
        ),
    )
}

__all__ = ["ADAPTERS", "Adapter", "FileCount", "Ingested", "Options", "Reason", "Rejected", "Told"]
