"""Read dead letters of a recording: messages whose properties name the original message."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from subreplay.adapters.canonical import encode_text, split_topic, utc_date
from subreplay.adapters.contract_types import BatchIndex, Entry, Ledger, Millis, Name, Partition, Size, TopicName
from subreplay.adapters.pulsar_recording.recorded_events import Position

# A message id as clients print it: "ledger:entry:partition[:batch index]" in Java; C++ and
# Python print it in parentheses with commas. The id of a chunked message ends with that of its last chunk.
_MESSAGE_ID = re.compile(r"\(?(\d+)[:,](\d+)[:,]-?\d+(?:[:,](-?\d+))?\)?$")


class _Origin(BaseModel):
    """The original message of a dead letter."""

    topic: TopicName
    ledger: Ledger
    entry: Entry
    batch_index: BatchIndex

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> _Origin | None:
        """Parse the properties; None for a message that no consumer moved there."""
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
        """The entry and batch index of the original message; None for a message that no consumer moved there."""
        found = _Origin.of(self.properties)
        return None if found is None else (Position(found.topic, found.ledger, found.entry), found.batch_index)

    @field_validator("properties")
    @classmethod
    def _name_a_position(cls, properties: dict[str, str]) -> dict[str, str]:
        try:
            _Origin.of(properties)
        except ValidationError as error:
            wrong = error.errors(include_url=False)[0]
            context = {"rule": f"ORIGIN_MESSAGE_ID or REAL_TOPIC: {wrong['msg']}", "remedy": "correct the property"}
            raise PydanticCustomError("contract", "{rule}", context) from error
        return properties


def build_dead_letter_rows(letters: Iterable[DeadLetter]) -> Iterator[dict[str, Any]]:
    """Build canonical ``messages`` rows. Clients write a missing ordering key as an empty one."""
    for letter in letters:
        topic, partition = split_topic(letter.topic)
        published = letter.publish_time_ms * 1000
        yield {
            "date": utc_date(published),
            "topic": topic,
            "partition": partition,
            "ledger": letter.ledger,
            "entry": letter.entry,
            "batch_index": letter.batch_index,
            "key": encode_text(letter.key),
            "ordering_key": encode_text(letter.ordering_key or None),
            "producer": letter.producer,
            "sequence_id": -1,
            "publish_time": published,
            "size": letter.size,
            "origin": _build_origin(letter),
        }


def _build_origin(letter: DeadLetter) -> dict[str, Any] | None:
    if letter.origin is None:
        return None
    position, batch_index = letter.origin
    topic, partition = split_topic(position.topic)
    place = {"ledger": position.ledger, "entry": position.entry, "batch_index": batch_index}
    return {"topic": topic, "partition": partition} | place


def infer_dead_letter_policy(
    letters: Iterable[DeadLetter], deliveries: Iterable[dict[str, Any]], topic: str | None
) -> dict[str, Any] | None:
    """Infer the dead letter policy of ``topic``: the topic of its dead letters, and the redelivery count at which most
    of them were last delivered."""
    topics = {o: letter.topic for letter in letters if (o := letter.origin) and split_topic(o[0].topic)[0] == topic}
    origins = {(*split_topic(position.topic), *position[1:], batch_index) for position, batch_index in topics}
    highest: dict[tuple[Any, ...], int] = {}
    for row in deliveries:
        place = tuple(row[name] for name in ("topic", "partition", "ledger", "entry", "batch_index"))
        if place in origins:
            highest[place] = max(highest.get(place, 0), row["redelivery_count"])
    if not highest:
        return None
    limit = Counter(highest.values()).most_common(1)[0][0]
    return {"topic": split_topic(min(topics.values()))[0], "max_redeliveries": limit} if limit else None
