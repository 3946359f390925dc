"""Wrap and record a consumer of pulsar-client (``pulsar.Consumer``)."""

from __future__ import annotations

from collections.abc import Callable
from time import time_ns
from typing import Any

from subreplay.capture.file_format import CaptureEvent
from subreplay.capture.recorder import Recorder

_RECEIVE = CaptureEvent.RECEIVE.value
_ACKNOWLEDGE = CaptureEvent.ACKNOWLEDGE.value
_CUMULATIVE = CaptureEvent.ACKNOWLEDGE_CUMULATIVE.value
_NEGATIVE = CaptureEvent.NEGATIVE_ACKNOWLEDGE.value


def read_subject(event: str, subject: Any) -> tuple[Any, ...]:
    """Convert a message or message id to the fields of a ``Subject``; only a received message has more than a position.

    The client's values for "none" become None: an empty key, and an event time of 0. A message with an empty key
    therefore looks like a message without a key.
    """
    if isinstance(subject, tuple):
        return subject
    if not hasattr(subject, "message_id"):
        return (None, *_read_position(subject), *(None,) * 7)
    message = getattr(subject, "_message", subject)  # the object behind the client's own class
    position = (message.topic_name(), *_read_position(message.message_id()))
    if event != _RECEIVE:
        return (*position, *(None,) * 7)
    return (
        *position,
        message.partition_key().encode() or None,
        message.ordering_key().encode() or None,
        message.producer_name() or None,
        message.publish_timestamp(),
        message.event_timestamp() or None,
        message.length() if hasattr(message, "length") else len(message.data()),
        message.redelivery_count(),
    )


def _read_position(message_id: Any) -> tuple[int, int, int, int]:
    return message_id.partition(), message_id.ledger_id(), message_id.entry_id(), message_id.batch_index()


class PulsarConsumer:
    """Behaves like the consumer that it wraps, and records. ``recording`` has the recording and its counts.

    A recording thread reads the messages, because reading all fields costs more than the application should wait. So
    each message lives about a tenth of a second longer.
    """

    def __init__(self, consumer: Any, recording: Recorder) -> None:
        self._consumer = consumer
        self._receive, self._acknowledge, self._offer = consumer.receive, consumer.acknowledge, recording.offer
        self.recording = recording

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def receive(self, *args: Any, **kwargs: Any) -> Any:
        """Receive like the client. Record the message when the call returns."""
        message = self._receive(*args, **kwargs)
        self._offer(_RECEIVE, time_ns(), message)
        return message

    def batch_receive(self, *args: Any, **kwargs: Any) -> Any:
        """Receive a batch like the client. Record one event per message."""
        messages = self._consumer.batch_receive(*args, **kwargs)
        for message in messages:
            self.record_receipt(message)
        return messages

    def acknowledge(self, message: Any) -> Any:
        """Acknowledge a message or a message id like the client."""
        at = time_ns()
        try:
            result = self._acknowledge(message)
        except Exception as error:
            self._offer(_ACKNOWLEDGE, at, message, error)
            raise
        self._offer(_ACKNOWLEDGE, at, message)
        return result

    def acknowledge_cumulative(self, message: Any) -> Any:
        """Acknowledge cumulatively up to a message or a message id like the client."""
        return self._call_and_record(_CUMULATIVE, self._consumer.acknowledge_cumulative, message)

    def negative_acknowledge(self, message: Any) -> Any:
        """Negatively acknowledge a message or a message id like the client."""
        return self._call_and_record(_NEGATIVE, self._consumer.negative_acknowledge, message)

    def redeliver_unacknowledged_messages(self) -> Any:
        """Request all unacknowledged messages again like the client."""
        at = time_ns()
        result = self._consumer.redeliver_unacknowledged_messages()
        self._offer(CaptureEvent.REDELIVER.value, at)
        return result

    def unsubscribe(self) -> Any:
        """Unsubscribe like the client, which ends the consumer."""
        at = time_ns()
        result = self._consumer.unsubscribe()
        self._offer(CaptureEvent.UNSUBSCRIBE.value, at)
        return result

    def close(self) -> Any:
        """Close like the client; then finish the file."""
        self._offer(CaptureEvent.CLOSING.value, time_ns())
        result = self._consumer.close()
        self._offer(CaptureEvent.CLOSE.value, time_ns())
        self.recording.close()
        return result

    def record_receipt(self, message: Any) -> None:
        """Record that the application receives this message."""
        self._offer(_RECEIVE, time_ns(), message)

    def _call_and_record(self, event: str, call: Callable[[Any], Any], message: Any) -> Any:
        at = time_ns()
        try:
            result = call(message)
        except Exception as error:
            self._offer(event, at, message, error)
            raise
        self._offer(event, at, message)
        return result
