"""Wrap and record a share consumer of confluent-kafka (``confluent_kafka.ShareConsumer``, 2.16)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import time_ns
from typing import Any

from subreplay.capture.file_format import CaptureEvent
from subreplay.capture.kafka_consumer import build_position
from subreplay.capture.recorder import Recorder

_ACKNOWLEDGEMENTS = (CaptureEvent.ACKNOWLEDGE, CaptureEvent.NEGATIVE_ACKNOWLEDGE, CaptureEvent.REJECT)
_RECEIVE = CaptureEvent.RECEIVE.value
_Record = tuple[str, int, int]
"""Topic, partition and offset."""


class KafkaShareConsumer:
    """Behaves like the share consumer that it wraps, and records. ``recording`` has the recording and its counts.

    Until the application acknowledges a record itself, each call that commits accepts the records of the last poll,
    as the client does in implicit mode. An acknowledgement that the broker refused is recorded when the client reports
    it, so the callback of ``set_acknowledgement_commit_callback`` is called by this class.
    """

    def __init__(self, consumer: Any, recording: Recorder) -> None:
        self._consumer = consumer
        self._offer = recording.offer
        self._implicit = True
        self._in_hand: list[_Record] = []
        self._topics: tuple[str, ...] = ()
        self._callback: Callable[[Any, Any], Any] | None = None
        self.recording = recording
        self._record_safely(lambda: consumer.set_acknowledgement_commit_callback(self._on_acknowledged))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def __enter__(self) -> KafkaShareConsumer:
        self._consumer.__enter__()
        return self

    def __exit__(self, *raised: object) -> Any:
        return self._close(lambda: self._consumer.__exit__(*raised))

    def poll(self, *args: Any, **kwargs: Any) -> Any:
        """Poll like the client. A message with an error is not a receipt."""
        self._accept_in_hand(time_ns())
        messages = self._consumer.poll(*args, **kwargs)
        for message in messages or ():
            self._record_receipt(message)
        return messages

    def acknowledge(self, message: Any, *args: Any, **kwargs: Any) -> Any:
        """Acknowledge like the client: accept, release or reject a record."""
        place = message.topic(), message.partition(), message.offset()
        return self._acknowledge(place, lambda: self._consumer.acknowledge(message, *args, **kwargs), args, kwargs)

    def acknowledge_offset(self, topic: str, partition: int, offset: int, *args: Any, **kwargs: Any) -> Any:
        """Acknowledge like the client, by position."""
        place = topic, partition, offset
        return self._acknowledge(
            place, lambda: self._consumer.acknowledge_offset(*place, *args, **kwargs), args, kwargs
        )

    def commit_sync(self, *args: Any, **kwargs: Any) -> Any:
        """Commit acknowledgements like the client."""
        self._accept_in_hand(time_ns())
        return self._consumer.commit_sync(*args, **kwargs)

    def commit_async(self) -> Any:
        """Commit acknowledgements like the client."""
        self._accept_in_hand(time_ns())
        return self._consumer.commit_async()

    def set_acknowledgement_commit_callback(self, callback: Callable[[Any, Any], Any] | None) -> None:
        """Set the callback of the application, which is called after the recording."""
        self._callback = callback

    def subscribe(self, topics: Any) -> Any:
        """Subscribe like the client."""
        at = time_ns()
        result = self._consumer.subscribe(topics)
        before, self._topics = self._topics, tuple(topics)
        self._offer_topics(CaptureEvent.REVOKE, at, [topic for topic in before if topic not in self._topics])
        self._offer_topics(CaptureEvent.SUBSCRIBE, at, [topic for topic in self._topics if topic not in before])
        return result

    def unsubscribe(self) -> Any:
        """Unsubscribe like the client."""
        at = time_ns()
        result = self._consumer.unsubscribe()
        self._topics = ()
        self._offer(CaptureEvent.UNSUBSCRIBE.value, at)
        return result

    def close(self) -> Any:
        """Close like the client, then finish the file. Records in hand that were not acknowledged are released."""
        return self._close(self._consumer.close)

    def _close(self, close: Callable[[], Any]) -> Any:
        self._offer(CaptureEvent.CLOSING.value, time_ns())
        result = close()
        self._offer(CaptureEvent.CLOSE.value, time_ns())
        self.recording.close()
        return result

    def _record_receipt(self, message: Any) -> None:
        at = time_ns()
        try:
            if message.error() is not None:
                return
            value = message.value()  # a deserializer may have made it an object without a size
            size = 0 if value is None else len(value) if type(value) is bytes else None
            place = message.topic(), message.partition(), message.offset()
            subject = (*place, message.key(), message.timestamp(), size, message.delivery_count() - 1)
        except Exception as error:
            self.recording.log_failure(error)
            self._offer(_RECEIVE, at, error=error)
        else:
            self._in_hand.append(place)
            self._offer(_RECEIVE, at, subject)

    def _accept_in_hand(self, at: int) -> None:
        """Record that a call accepts the records of the last poll, if the client does so by itself."""
        records, self._in_hand = self._in_hand, []
        if self._implicit:
            self._offer_records(CaptureEvent.ACKNOWLEDGE, at, records)

    def _acknowledge(self, place: _Record, call: Callable[[], Any], args: Any, kwargs: Any) -> Any:
        at = time_ns()
        kind = kwargs.get("ack_type", args[0] if args else 1)
        result = call()
        self._implicit = False
        self._record_safely(lambda: self._offer_records(_ACKNOWLEDGEMENTS[int(kind) - 1], at, [place]))
        return result

    def _on_acknowledged(self, offsets: Any, error: Any) -> None:
        at = time_ns()
        if error is not None:
            self._record_safely(
                lambda: self._offer_records(
                    CaptureEvent.ACKNOWLEDGEMENT_REFUSED,
                    at,
                    [(p.topic, p.partition, offset) for p, refused in offsets.items() for offset in sorted(refused)],
                )
            )
        if self._callback is not None:
            self._callback(offsets, error)

    def _offer_records(self, event: CaptureEvent, at: int, records: Iterable[_Record]) -> None:
        for record in records:
            self._offer(event.value, at, build_position(*record))

    def _offer_topics(self, event: CaptureEvent, at: int, topics: Iterable[str]) -> None:
        for topic in topics:
            self._offer(event.value, at, build_position(topic, -1))

    def _record_safely(self, record: Callable[[], Any]) -> None:
        try:
            record()
        except Exception as error:
            self.recording.log_failure(error)
