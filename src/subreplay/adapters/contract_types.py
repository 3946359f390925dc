"""The contracts of the canonical columns as pydantic types, for the fields of recorded rows."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from subreplay.adapters.canonical import split_topic
from subreplay.rows.model.contracts import (
    BATCH_INDEX,
    HAPPENED,
    LARGEST,
    LEDGER,
    LEDGER_ENTRY,
    MAY_HAPPEN,
    PARTITION,
    PRIORITY,
    QUEUE_SIZE,
    REDELIVERY_COUNT,
    SEQ,
    SEQUENCE_ID,
    SIZE,
    SLOT,
    NumberRange,
    TimeRange,
)


def _build_range_check(contract: NumberRange | TimeRange, scale: Fraction = Fraction(1)) -> AfterValidator:
    """Build a check that a number is in the range of its canonical column. One is ``scale`` units of the column."""
    least, most = math.ceil(contract.least / scale), math.ceil((contract.most + 1) / scale) - 1

    def check(value: int) -> int:
        if not least <= value <= most:
            raise PydanticCustomError("contract", "{rule}", {"rule": contract.rule, "remedy": contract.remedy})
        return value

    return AfterValidator(check)


def _check_partition(topic: str) -> str:
    if split_topic(topic)[1] > PARTITION.most:
        remedy = "correct the topic's name"
        raise PydanticCustomError("contract", "{rule}", {"rule": PARTITION.rule, "remedy": remedy})
    return topic


_Strict = Field(strict=True)
Natural = Annotated[int, Field(ge=0, le=LARGEST, strict=True)]
Name = Annotated[str, Field(min_length=1)]
TopicName = Annotated[Name, AfterValidator(_check_partition)]
Ledger = Annotated[int, _Strict, _build_range_check(LEDGER)]
Entry = Annotated[int, _Strict, _build_range_check(LEDGER_ENTRY)]
BatchIndex = Annotated[int, _Strict, _build_range_check(BATCH_INDEX)]
Partition = Annotated[int, _Strict, _build_range_check(PARTITION)]
SequenceId = Annotated[int, _Strict, _build_range_check(SEQUENCE_ID)]
Size = Annotated[int, _Strict, _build_range_check(SIZE)]
Seq = Annotated[int, _Strict, _build_range_check(SEQ)]
RedeliveryCount = Annotated[int, _Strict, _build_range_check(REDELIVERY_COUNT)]
Priority = Annotated[int, _Strict, _build_range_check(PRIORITY)]
QueueSize = Annotated[int, _Strict, _build_range_check(QUEUE_SIZE)]
Slot = Annotated[int, _Strict, _build_range_check(SLOT)]
Nanos = Annotated[int, _Strict, _build_range_check(HAPPENED, Fraction(1, 1_000))]
NanosOrNever = Annotated[int, _Strict, _build_range_check(MAY_HAPPEN, Fraction(1, 1_000))]
Millis = Annotated[int, _Strict, _build_range_check(HAPPENED, Fraction(1_000))]
MillisOrNever = Annotated[int, _Strict, _build_range_check(MAY_HAPPEN, Fraction(1_000))]
