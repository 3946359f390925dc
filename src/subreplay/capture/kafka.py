"""A consumer of confluent-kafka (``confluent_kafka.Consumer``), recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import time_ns
from typing import Any

from subreplay.capture.events import Event
from subreplay.capture.recorder import Recorder

_RECEIVE = Event.RECEIVE.value
_COMMIT = Event.COMMIT.value
_STORE = Event.STORE_OFFSETS.value
_Callback = Callable[[Any, Any], Any]


def read(event: str, subject: tuple[Any, ...]) -> tuple[Any, ...]:
    """What was offered as the fields of a ``Subject``. Of a message its fields were, which costs less than keeping its
    payload alive."""
    if event != _RECEIVE:
        return subject
    topic, partition, offset, key, (kind, timestamp), size = subject
    if isinstance(key, str):  # a deserializer, or the application, made a text of it
        key = key.encode()
    elif not (key is None or isinstance(key, bytes)):
        raise TypeError(f"the message's key is a {type(key).__name__}; wrap the consumer before keys are deserialized")
    return (topic, partition, 0, offset, -1, key, None, None, timestamp if kind else None, None, size, 0)


def _position(topic: str | None, partition: int | None, offset: int | None = None) -> tuple[Any, ...]:
    ledger = None if offset is None else 0
    return (topic, partition, ledger, offset, None if offset is None else -1, *(None,) * 7)


class KafkaConsumer:
    """Behaves as the consumer it was made of, and records. ``recording`` tells what was recorded.

    The client commits by itself where ``enable.auto.commit`` is not false, and tells only the callback ``on_commit`` of
    its configuration: pass it on to ``on_commit`` here. ``named``: whether the recording's name of the consumer was
    given; else it is the member id that the group gave it.
    """

    def __init__(self, consumer: Any, recording: Recorder, *, named: bool = True) -> None:
        self._consumer = consumer
        self._poll, self._offer = consumer.poll, recording.offer
        self._named = named
        self._subscribed = False
        self._assigned: list[Any] = []  # by hand
        self.recording = recording

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def __enter__(self) -> KafkaConsumer:
        self._consumer.__enter__()
        return self

    def __exit__(self, *raised: object) -> Any:
        return self._closed(lambda: self._consumer.__exit__(*raised))

    def poll(self, *args: Any, **kwargs: Any) -> Any:
        """As the client's; a message that is an error, or the end of a partition, is no receipt."""
        message = self._poll(*args, **kwargs)
        if message is not None:
            self._received(message)
        return message

    def consume(self, *args: Any, **kwargs: Any) -> Any:
        """As the client's; one event a message."""
        messages = self._consumer.consume(*args, **kwargs)
        for message in messages:
            self._received(message)
        return messages

    def commit(self, *args: Any, **kwargs: Any) -> Any:
        """As the client's, of a message, of offsets, or of what the client has stored. Without message and offsets, and
        asynchronously, the client does not tell which offsets: ``on_commit`` does."""
        return self._offsets(_COMMIT, self._consumer.commit, args, kwargs)

    def store_offsets(self, *args: Any, **kwargs: Any) -> Any:
        """As the client's, of a message or of offsets."""
        return self._offsets(_STORE, self._consumer.store_offsets, args, kwargs)

    def on_commit(self, error: Any, partitions: Any) -> None:
        """To be called by the ``on_commit`` of the consumer's configuration."""
        at = time_ns()
        self._safely(lambda: self._offer_offsets(_COMMIT, at, partitions, error))

    def subscribe(
        self,
        topics: Any,
        on_assign: _Callback | None = None,
        on_revoke: _Callback | None = None,
        on_lost: _Callback | None = None,
        **kwargs: Any,
    ) -> Any:
        """As the client's. The callbacks are given this consumer, so what they commit is recorded, too."""
        at = time_ns()
        callbacks = {
            "on_assign": self._on_assign(on_assign),
            "on_revoke": self._on_gone(Event.REVOKE, on_revoke),
            # without a callback of its own, losing partitions is told to on_revoke
            "on_lost": self._on_gone(Event.LOST, on_lost or on_revoke),
        }
        result = self._consumer.subscribe(topics, **callbacks, **kwargs)
        self._subscribed = True
        self._safely(lambda: self._offer_each(Event.SUBSCRIBE, at, [_position(topic, None) for topic in topics]))
        return result

    def unsubscribe(self) -> Any:
        """As the client's."""
        at = time_ns()
        result = self._consumer.unsubscribe()
        self._subscribed = False
        self._offer(Event.UNSUBSCRIBE.value, at)
        return result

    def assign(self, partitions: Any) -> Any:
        """As the client's; recorded where the group does not assign, but the application."""
        result = self._consumer.assign(partitions)
        if not self._subscribed:
            at, before, self._assigned = time_ns(), self._assigned, list(partitions)
            self._safely(lambda: self._offer_partitions(Event.REVOKE, at, before) if before else None)
            self._safely(lambda: self._offer_partitions(Event.ASSIGN, at, self._assigned))
        return result

    def unassign(self) -> Any:
        """As the client's; recorded where the application had assigned."""
        result = self._consumer.unassign()
        if not self._subscribed:
            at, before, self._assigned = time_ns(), self._assigned, []
            self._safely(lambda: self._offer_partitions(Event.REVOKE, at, before))
        return result

    def close(self) -> Any:
        """As the client's, during which it may call callbacks; then the file is finished."""
        return self._closed(self._consumer.close)

    def _closed(self, close: Callable[[], Any]) -> Any:
        self._offer(Event.CLOSING.value, time_ns())
        result = close()
        self._offer(Event.CLOSE.value, time_ns())
        self.recording.close()
        return result

    def _received(self, message: Any) -> None:
        at = time_ns()
        try:
            if message.error() is not None:
                return
            value = message.value()  # which a deserializer may have made something without a size
            size = 0 if value is None else len(value) if type(value) is bytes else None
            subject = (
                message.topic(), message.partition(), message.offset(), message.key(), message.timestamp(), size,
            )  # fmt: skip
        except Exception as error:
            self.recording.failed(error)
            self._offer(_RECEIVE, at, error=error)
        else:
            self._offer(_RECEIVE, at, subject)

    def _on_assign(self, callback: _Callback | None) -> _Callback:
        def assigned(_: Any, partitions: Any) -> None:
            at = time_ns()
            self._safely(self._take_name)
            self._safely(lambda: self._offer_partitions(Event.ASSIGN, at, partitions))
            if callback is not None:
                callback(self, partitions)

        return assigned

    def _on_gone(self, event: Event, callback: _Callback | None) -> _Callback:
        def gone(_: Any, partitions: Any) -> None:
            try:
                if callback is not None:
                    callback(self, partitions)
            finally:  # until then the consumer may still commit
                at = time_ns()
                self._safely(lambda: self._offer_partitions(event, at, partitions))

        return gone

    def _take_name(self) -> None:
        if not self._named and (member := self._consumer.memberid()):
            self.recording.consumer = member

    def _offsets(self, event: str, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        at = time_ns()
        try:
            result = call(*args, **kwargs)
        except Exception as error:
            raised = error
            self._safely(lambda: self._offer_offsets(event, at, _named(None, args, kwargs), raised))
            raise
        self._safely(lambda: self._offer_offsets(event, at, _named(result, args, kwargs)))
        return result

    def _offer_offsets(self, event: str, at: int, partitions: Any, raised: Any = None) -> None:
        for p in partitions or ():
            self._offer(event, at, _position(p.topic, p.partition, p.offset), raised or p.error)
        if not partitions:
            self._offer(event, at, _position(None, None), raised)

    def _offer_partitions(self, event: Event, at: int, partitions: Any) -> None:
        self._offer_each(event, at, [_position(p.topic, p.partition) for p in partitions] or [_position(None, None)])

    def _offer_each(self, event: Event, at: int, subjects: Iterable[tuple[Any, ...]]) -> None:
        for subject in subjects:
            self._offer(event.value, at, subject)

    def _safely(self, record: Callable[[], Any]) -> None:
        try:
            record()
        except Exception as error:
            self.recording.failed(error)


def _named(result: Any, args: Any, kwargs: Any) -> Any:
    """The offsets that a call was about, as partitions: those it came back with, else those it was given."""
    if result is not None:
        return result
    message, offsets = (*args, None, None)[:2]
    message, offsets = kwargs.get("message", message), kwargs.get("offsets", offsets)
    return offsets if message is None else [_Next(message)]


class _Next:
    """The position after a message, as a partition with an offset."""

    error = None

    def __init__(self, message: Any) -> None:
        self.topic, self.partition, self.offset = message.topic(), message.partition(), message.offset() + 1
