"""Build the canonical messages of a recorded Kafka group or share group from its produced records."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

from subreplay.adapters.capture.capture_summary import UNKNOWN_PRODUCER
from subreplay.adapters.kafka_recording.recording_rows import ProducedRecord


def build_message(row: ProducedRecord) -> dict[str, Any]:
    """Build the row of ``MESSAGES`` of a produced record."""
    micros = row.timestamp * 1_000
    return {
        "date": date(1970, 1, 1) + timedelta(microseconds=micros),
        "topic": row.topic,
        "partition": row.partition,
        "ledger": 0,
        "entry": row.offset,
        "batch_index": -1,
        "key": row.key,
        "producer": UNKNOWN_PRODUCER,
        "sequence_id": -1,  # the consumer's client does not report it
        "publish_time": micros,
        "size": row.size,
    }
