"""Adapters by name: one file each. A new input shape is one file and one line here."""

from __future__ import annotations

from typing import Final

from subreplay.adapters.base import Adapter, FileCount, Ingested, Reason, Rejected
from subreplay.adapters.capture import adapter as capture_adapter
from subreplay.adapters.pulsar_recording import adapter as pulsar_recording_adapter

ADAPTERS: Final[dict[str, Adapter]] = {
    "capture": capture_adapter.read,
    "pulsar-recording": pulsar_recording_adapter.read,
}

__all__ = ["ADAPTERS", "Adapter", "FileCount", "Ingested", "Reason", "Rejected"]
