"""Adapters by name: one file each. A new input shape is one file and one line here."""

from __future__ import annotations

from typing import Final

from subreplay.adapters import capture, pulsar_recording
from subreplay.adapters.base import Adapter, FileCount, Ingested, Reason, Rejected

ADAPTERS: Final[dict[str, Adapter]] = {
    "capture": capture.read,
    "pulsar-recording": pulsar_recording.read,
}

__all__ = ["ADAPTERS", "Adapter", "FileCount", "Ingested", "Reason", "Rejected"]
