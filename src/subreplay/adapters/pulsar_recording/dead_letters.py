"""Dead letters as a recording has them: messages whose properties name the message that was given up."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from subreplay.adapters.canonical import base_topic, day, encoded
from subreplay.adapters.contract_types import BatchIndex, Entry, Ledger, Millis, Name, Partition, Size, TopicName
from subreplay.adapters.pulsar_recording.rows import Position

# The client's text of a message id: "ledger:entry:partition[:batch index]" in Java, in parentheses with commas in C++
# and Python; of a chunked message the last chunk's stands last.
_MESSAGE_ID = re.compile(r"\(?(\d+)[:,](\d+)[:,]-?\d+(?:[:,](-?\d+))?\)?$")


class _Origin(BaseModel):
    """The message that a dead letter was."""

    topic: TopicName
    ledger: Ledger
    entry: Entry
    batch_index: BatchIndex

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> _Origin | None:
        """None for a message that a consumer did not put there."""
        place = _MESSAGE_ID.search(properties.get("ORIGIN_MESSAGE_ID", ""))
        if place is None or "REAL_TOPIC" not in properties:
            return None
        ledger, entry, batch_index = (int(number or -1) for number in place.groups())
        return cls(topic=properties["REAL_TOPIC"], ledger=ledger, entry=entry, batch_index=batch_index)


class DeadLetter(BaseModel):
    """A message as it arrived on the dead letter topic (``ConsumerImpl.processPossibleToDLQ``; row D-DLQ-1)."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    topic: TopicName
    ledger: Ledger
    entry: Entry
    batch_index: BatchIndex = -1
    partition: Partition = -1
    key: str | None = None
    ordering_key: str | None = None
    producer: Name
    publish_time_ms: Millis
    size: Size
    properties: dict[str, str] = Field(default_factory=dict)

    @property
    def position(self) -> Position:
        return Position(self.topic, self.ledger, self.entry)

    @property
    def origin(self) -> tuple[Position, int] | None:
        """The entry and batch index of the message it was; None for a message that a consumer did not put there."""
        of = _Origin.of(self.properties)
        return None if of is None else (Position(of.topic, of.ledger, of.entry), of.batch_index)

    @field_validator("properties")
    @classmethod
    def _name_a_position(cls, properties: dict[str, str]) -> dict[str, str]:
        try:
            _Origin.of(properties)
        except ValidationError as error:
            wrong = error.errors(include_url=False)[0]
            told = {"rule": f"ORIGIN_MESSAGE_ID or REAL_TOPIC: {wrong['msg']}", "remedy": "correct the property"}
            raise PydanticCustomError("contract", "{rule}", told) from error
        return properties


def dead_letter_rows(letters: Iterable[DeadLetter]) -> Iterator[dict[str, Any]]:
    """Canonical ``messages`` rows; clients write the ordering key that a message lacks as an empty one."""
    for letter in letters:
        topic, partition = base_topic(letter.topic)
        published = letter.publish_time_ms * 1000
        yield {
            "date": day(published),
            "topic": topic,
            "partition": partition,
            "ledger": letter.ledger,
            "entry": letter.entry,
            "batch_index": letter.batch_index,
            "key": encoded(letter.key),
            "ordering_key": encoded(letter.ordering_key or None),
            "producer": letter.producer,
            "sequence_id": -1,
            "publish_time": published,
            "size": letter.size,
            "origin": _origin(letter),
        }


def _origin(letter: DeadLetter) -> dict[str, Any] | None:
    if letter.origin is None:
        return None
    position, batch_index = letter.origin
    topic, partition = base_topic(position.topic)
    place = {"ledger": position.ledger, "entry": position.entry, "batch_index": batch_index}
    return {"topic": topic, "partition": partition} | place


def recorded_policy(
    letters: Iterable[DeadLetter], deliveries: Iterable[dict[str, Any]], topic: str | None
) -> dict[str, Any] | None:
    """The dead letter policy that a recording of ``topic`` shows: where its dead letters went, and the redelivery count
    at which most of them were last delivered."""
    mine = {o: letter.topic for letter in letters if (o := letter.origin) and base_topic(o[0].topic)[0] == topic}
    origins = {(*base_topic(position.topic), *position[1:], batch_index) for position, batch_index in mine}
    highest: dict[tuple[Any, ...], int] = {}
    for row in deliveries:
        place = tuple(row[name] for name in ("topic", "partition", "ledger", "entry", "batch_index"))
        if place in origins:
            highest[place] = max(highest.get(place, 0), row["redelivery_count"])
    if not highest:
        return None
    limit = Counter(highest.values()).most_common(1)[0][0]
    return {"topic": base_topic(min(mine.values()))[0], "max_redeliveries": limit} if limit else None
