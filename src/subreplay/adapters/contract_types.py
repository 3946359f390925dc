"""What a field of a recorded row may be: the contracts of the canonical columns, as types of pydantic models."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from subreplay.adapters.canonical import base_topic
from subreplay.rows.model.contracts import (
    BATCH_INDEX,
    HAPPENED,
    LARGEST,
    LEDGER,
    MAY_HAPPEN,
    OF_A_LEDGER,
    PARTITION,
    PRIORITY,
    QUEUE_SIZE,
    REDELIVERY_COUNT,
    SEQ,
    SEQUENCE_ID,
    SIZE,
    SLOT,
    Numbers,
    Times,
)


def _legal(of: Numbers | Times, scale: Fraction = Fraction(1)) -> AfterValidator:
    """That a number is in the range of its canonical column, of whose unit it counts ``scale``."""
    least, most = math.ceil(of.least / scale), math.ceil((of.most + 1) / scale) - 1

    def check(value: int) -> int:
        if not least <= value <= most:
            raise PydanticCustomError("contract", "{rule}", {"rule": of.rule, "remedy": of.remedy})
        return value

    return AfterValidator(check)


def _partition_is_legal(topic: str) -> str:
    if base_topic(topic)[1] > PARTITION.most:
        remedy = "correct the topic's name"
        raise PydanticCustomError("contract", "{rule}", {"rule": PARTITION.rule, "remedy": remedy})
    return topic


_Strict = Field(strict=True)
Natural = Annotated[int, Field(ge=0, le=LARGEST, strict=True)]
Name = Annotated[str, Field(min_length=1)]
TopicName = Annotated[Name, AfterValidator(_partition_is_legal)]
Ledger = Annotated[int, _Strict, _legal(LEDGER)]
Entry = Annotated[int, _Strict, _legal(OF_A_LEDGER)]
BatchIndex = Annotated[int, _Strict, _legal(BATCH_INDEX)]
Partition = Annotated[int, _Strict, _legal(PARTITION)]
SequenceId = Annotated[int, _Strict, _legal(SEQUENCE_ID)]
Size = Annotated[int, _Strict, _legal(SIZE)]
Seq = Annotated[int, _Strict, _legal(SEQ)]
RedeliveryCount = Annotated[int, _Strict, _legal(REDELIVERY_COUNT)]
Priority = Annotated[int, _Strict, _legal(PRIORITY)]
QueueSize = Annotated[int, _Strict, _legal(QUEUE_SIZE)]
Slot = Annotated[int, _Strict, _legal(SLOT)]
Nanos = Annotated[int, _Strict, _legal(HAPPENED, Fraction(1, 1_000))]
NanosOrNever = Annotated[int, _Strict, _legal(MAY_HAPPEN, Fraction(1, 1_000))]
Millis = Annotated[int, _Strict, _legal(HAPPENED, Fraction(1_000))]
MillisOrNever = Annotated[int, _Strict, _legal(MAY_HAPPEN, Fraction(1_000))]
