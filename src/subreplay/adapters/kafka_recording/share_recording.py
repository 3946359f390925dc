"""Read the folder of a recorded share group for re-enactments and predictions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from subreplay.adapters.jsonl import read_contract_rows
from subreplay.adapters.kafka_recording.share_rows import (
    DecodedRecord,
    LogBatch,
    ShareDelivery,
    SharedRecord,
    ShareEvent,
    ShareRequest,
    ShareScenario,
    TransactionEnd,
)
from subreplay.errors import InputError

Row = TypeVar("Row", bound=BaseModel)


@dataclass(frozen=True)
class ShareRecording:
    """The rows of a recording in file order."""

    scenario: ShareScenario
    records: tuple[SharedRecord, ...]
    transactions: tuple[TransactionEnd, ...]
    batches: tuple[LogBatch, ...]
    deliveries: tuple[ShareDelivery, ...]
    events: tuple[ShareEvent, ...]
    requests: tuple[ShareRequest, ...]
    share_state: tuple[DecodedRecord, ...]
    group_records: tuple[DecodedRecord, ...]


def read_share_recording(folder: Path) -> ShareRecording:
    """Read one recording. Raises ``InputError`` where a needed file is missing, unreadable or malformed."""
    path = folder / "scenario.json"
    try:
        scenario = ShareScenario.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"{folder}: the recording has no readable file scenario.json: {error}") from error
    except ValidationError as error:
        raise InputError(f"{path}: this is not the plan of a share group: {error.errors()[0]['msg']}") from error
    return ShareRecording(
        scenario,
        _read_rows(folder, "records", SharedRecord),
        _read_rows(folder, "transactions", TransactionEnd, required=False),
        _read_rows(folder, "batches", LogBatch),
        _read_rows(folder, "deliveries", ShareDelivery),
        _read_rows(folder, "membership", ShareEvent),
        _read_rows(folder, "requests", ShareRequest),
        _read_rows(folder, "share_group_state", DecodedRecord),
        _read_rows(folder, "consumer_offsets", DecodedRecord),
    )


def _read_rows(folder: Path, name: str, contract: type[Row], required: bool = True) -> tuple[Row, ...]:
    """Read a file whose rows must all fit the contract."""
    rows = read_contract_rows(folder, name, TypeAdapter(contract), required=required)
    if rows.rejected:
        first = next(iter(rows.rejected.values()))
        raise InputError(
            f"{folder / rows.file}: {len(rows.rejected)} rows do not fit the contract. The first is {first}"
        )
    return tuple(rows.rows.values())
