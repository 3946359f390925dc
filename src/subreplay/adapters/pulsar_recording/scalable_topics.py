"""Read recordings of a scalable topic: its layouts, and the rows that a client of version 5 wrote.

Such a client names a message by ``MessageIdV5{segment=S, id=L:E:P[:B], ...}``. The name of the segment's topic, the
producer and the batch come from the layouts and the broker's ``produced`` events.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from subreplay.adapters.base import Reason
from subreplay.adapters.contract_types import Name, Nanos, NanosOrNever, RedeliveryCount
from subreplay.adapters.jsonl import ContractRows, read_contract_rows
from subreplay.adapters.pulsar_recording.recorded_events import Produced, RecordedMessage, RecordedReceipt
from subreplay.rows.model.segments import Segment, parse_segment
from subreplay.rows.model.text_format import format_instant

LAYOUTS: Final = "layouts"
_MESSAGE_ID: Final = r"^MessageIdV5\{segment=\d+, id=\d+:\d+:-?\d+(:\d+)?,.*\}$"
_MessageId = Annotated[str, Field(pattern=_MESSAGE_ID)]
_NUMBERS: Final = re.compile(r"segment=(\d+), id=(\d+):(\d+):-?\d+(?::(\d+))?,")
_UNKNOWN_PRODUCER: Final = "unknown"
Row = TypeVar("Row", bound=BaseModel)
Converted = TypeVar("Converted", bound=BaseModel)


class _Row(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _HashRange(_Row):
    start: Annotated[int, Field(ge=0, le=65535)]
    end: Annotated[int, Field(ge=0, le=65535)]


class _RecordedSegment(_Row):
    segment_id: Annotated[int, Field(ge=0, alias="segmentId")]
    hash_range: _HashRange = Field(alias="hashRange")
    parent_ids: tuple[int, ...] = Field((), alias="parentIds")
    created_at_ms: int = Field(0, alias="createdAtMs")
    sealed_at_ms: int = Field(-1, alias="sealedAtMs")
    splits: tuple[int, ...] = Field((), alias="entryBucketSplits")


class _Layout(_Row):
    segments: dict[str, _RecordedSegment]


class _LayoutRow(_Row):
    at_ns: Nanos
    layout: _Layout


class _ScalableMessage(_Row):
    id: _MessageId
    key: str | None
    send_ns: Nanos


class _ScalableReceipt(_Row):
    id: _MessageId
    topic: Name
    consumer: Name
    recv_ns: Nanos
    redelivery_count: RedeliveryCount
    ack_ns: NanosOrNever | None = None


def has_layouts(folder: Path) -> bool:
    """Return whether a recording is one of a scalable topic."""
    return any((folder / f"{LAYOUTS}.jsonl{suffix}").exists() for suffix in (".gz", ""))


def read_segments(folder: Path) -> tuple[Segment, ...]:
    """Read the segments of all layouts in order of id, as the last layout with each shows it; none if the recording has
    no layouts. Raises as ``read_contract_rows``."""
    if not has_layouts(folder):
        return ()
    found: dict[int, _RecordedSegment] = {}
    rows = read_contract_rows(folder, LAYOUTS, TypeAdapter(_LayoutRow)).rows.values()
    for row in sorted(rows, key=lambda row: row.at_ns):
        found |= {segment.segment_id: segment for segment in row.layout.segments.values()}
    return tuple(
        Segment(
            id=each.segment_id,
            first=each.hash_range.start,
            last=each.hash_range.end,
            buckets=len(each.splits) + 1,
            parents=each.parent_ids,
            created=each.created_at_ms * 1_000_000,
            sealed=each.sealed_at_ms * 1_000_000 if each.sealed_at_ms >= 0 else None,
        )
        for _, each in sorted(found.items())
    )


def describe_segment(segment: Segment) -> dict[str, Any]:
    """Describe a segment as an entry of ``topic.segments`` of a run file."""
    described: dict[str, Any] = {"id": segment.id, "hashes": [segment.first, segment.last], "buckets": segment.buckets}
    if segment.parents:
        described["parents"] = [*segment.parents]
    described["created"] = format_instant(segment.created)
    return described if segment.sealed is None else described | {"sealed": format_instant(segment.sealed)}


def read_messages(folder: Path, events: Iterable[Any]) -> ContractRows[RecordedMessage]:
    """Read the messages of a recording; ``events`` are those of its broker. Raises as ``read_contract_rows``."""
    if not has_layouts(folder):
        return read_contract_rows(folder, "messages", TypeAdapter(RecordedMessage))
    produced = [event for event in events if isinstance(event, Produced)]
    producers = {(event.topic, event.ledger, event.entry): event.producer for event in produced}
    topics = {named[1]: event.topic for event in produced if (named := parse_segment(event.topic))}
    found = read_contract_rows(folder, "messages", TypeAdapter(_ScalableMessage))

    def convert(row: _ScalableMessage) -> RecordedMessage | None:
        segment, ledger, entry, batch_index = _parse_id(row.id)
        topic = topics.get(segment)
        if topic is None:
            return None
        return RecordedMessage(
            topic=topic,
            ledger=ledger,
            entry=entry,
            batch_index=batch_index,
            partition=-1,
            key=row.key,
            producer=producers.get((topic, ledger, entry)) or _UNKNOWN_PRODUCER,
            sequence_id=-1,  # unknown within a batch
            publish_time_ms=row.send_ns // 1_000_000,
            payload_size=0,
        )

    return _convert_rows(found, convert)


def read_receipts(folder: Path, subscription: str | None) -> ContractRows[RecordedReceipt]:
    """Read the receipts of applications, all of one ``subscription`` where the topic is scalable. Raises as
    ``read_contract_rows``."""
    if not has_layouts(folder):
        return read_contract_rows(folder, "deliveries", TypeAdapter(RecordedReceipt), required=False)
    found = read_contract_rows(folder, "deliveries", TypeAdapter(_ScalableReceipt), required=False)

    def convert(row: _ScalableReceipt) -> RecordedReceipt:
        _, ledger, entry, batch_index = _parse_id(row.id)
        values = row.model_dump(include={"topic", "consumer", "recv_ns", "redelivery_count", "ack_ns"})
        return RecordedReceipt(
            ledger=ledger, entry=entry, batch_index=batch_index, subscription=subscription or "", **values
        )

    return _convert_rows(found, convert)


def _parse_id(text: str) -> tuple[int, int, int, int]:
    """Parse a message id into segment, ledger, entry and batch index (-1: no batch)."""
    found = _NUMBERS.search(text)
    assert found is not None  # its pattern was checked
    segment, ledger, entry, batch_index = (int(number or -1) for number in found.groups(default="-1"))
    return segment, ledger, entry, batch_index


def _convert_rows(found: ContractRows[Row], convert: Callable[[Row], Converted | None]) -> ContractRows[Converted]:
    """Convert the rows of a file, and reject those of a segment in which the broker reports no message."""
    rows: ContractRows[Converted] = ContractRows(found.table, found.file, rejected=found.rejected)
    for line, row in found.rows.items():
        converted = convert(row)
        if converted is not None:
            rows.rows[line] = converted
            continue
        reason = Reason("id", str(getattr(row, "id", "")), "broker_events must contain a message of its segment",
                        "take both files from the same session")  # fmt: skip
        rows.reject(line, row.model_dump_json(), reason)
    return rows
