"""A consumer of pulsar-client (``pulsar.Consumer``), recorded."""

from __future__ import annotations

from collections.abc import Callable
from time import time_ns
from typing import Any

from subreplay.capture.events import Event
from subreplay.capture.recorder import Recorder

_RECEIVE = Event.RECEIVE.value
_ACKNOWLEDGE = Event.ACKNOWLEDGE.value
_CUMULATIVE = Event.ACKNOWLEDGE_CUMULATIVE.value
_NEGATIVE = Event.NEGATIVE_ACKNOWLEDGE.value


def read(event: str, subject: Any) -> tuple[Any, ...]:
    """A message or message id as the fields of a ``Subject``; of one that is not received, its position only. What the
    client says for "none" is None: an empty key, an event time of 0. (A message that was sent with an empty key cannot
    be told from one without.)"""
    if isinstance(subject, tuple):
        return subject
    if not hasattr(subject, "message_id"):
        return (None, *_position(subject), *(None,) * 7)
    message = getattr(subject, "_message", subject)  # what the client's own class asks for everything
    position = (message.topic_name(), *_position(message.message_id()))
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


def _position(message_id: Any) -> tuple[int, int, int, int]:
    return message_id.partition(), message_id.ledger_id(), message_id.entry_id(), message_id.batch_index()


class PulsarConsumer:
    """Behaves as the consumer it was made of, and records. ``recording`` tells what was recorded.

    Messages are read on a recording thread: asking one for all that is recorded takes longer than a message may cost
    the application. So each lives until then, a tenth of a second.
    """

    def __init__(self, consumer: Any, recording: Recorder) -> None:
        self._consumer = consumer
        self._receive, self._acknowledge, self._offer = consumer.receive, consumer.acknowledge, recording.offer
        self.recording = recording

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def receive(self, *args: Any, **kwargs: Any) -> Any:
        """As the client's; recorded when it returns."""
        message = self._receive(*args, **kwargs)
        self._offer(_RECEIVE, time_ns(), message)
        return message

    def batch_receive(self, *args: Any, **kwargs: Any) -> Any:
        """As the client's; one event a message."""
        messages = self._consumer.batch_receive(*args, **kwargs)
        for message in messages:
            self.received(message)
        return messages

    def acknowledge(self, message: Any) -> Any:
        """As the client's, of a message or a message id."""
        at = time_ns()
        try:
            result = self._acknowledge(message)
        except Exception as error:
            self._offer(_ACKNOWLEDGE, at, message, error)
            raise
        self._offer(_ACKNOWLEDGE, at, message)
        return result

    def acknowledge_cumulative(self, message: Any) -> Any:
        """As the client's, of a message or a message id."""
        return self._called(_CUMULATIVE, self._consumer.acknowledge_cumulative, message)

    def negative_acknowledge(self, message: Any) -> Any:
        """As the client's, of a message or a message id."""
        return self._called(_NEGATIVE, self._consumer.negative_acknowledge, message)

    def redeliver_unacknowledged_messages(self) -> Any:
        """As the client's."""
        at = time_ns()
        result = self._consumer.redeliver_unacknowledged_messages()
        self._offer(Event.REDELIVER.value, at)
        return result

    def unsubscribe(self) -> Any:
        """As the client's, after which the consumer is of no use any more."""
        at = time_ns()
        result = self._consumer.unsubscribe()
        self._offer(Event.UNSUBSCRIBE.value, at)
        return result

    def close(self) -> Any:
        """As the client's; then the file is finished."""
        self._offer(Event.CLOSING.value, time_ns())
        result = self._consumer.close()
        self._offer(Event.CLOSE.value, time_ns())
        self.recording.close()
        return result

    def received(self, message: Any) -> None:
        """Record that the application is given this message."""
        self._offer(_RECEIVE, time_ns(), message)

    def _called(self, event: str, call: Callable[[Any], Any], message: Any) -> Any:
        at = time_ns()
        try:
            result = call(message)
        except Exception as error:
            self._offer(event, at, message, error)
            raise
        self._offer(event, at, message)
        return result
