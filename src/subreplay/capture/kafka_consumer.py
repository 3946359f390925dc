"""Wrap and record a consumer of confluent-kafka (``confluent_kafka.Consumer``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import time_ns
from typing import Any

from subreplay.capture.file_format import CaptureEvent
from subreplay.capture.recorder import Recorder

_RECEIVE = CaptureEvent.RECEIVE.value
_COMMIT = CaptureEvent.COMMIT.value
_STORE = CaptureEvent.STORE_OFFSETS.value
_Callback = Callable[[Any, Any], Any]


def read_subject(event: str, subject: tuple[Any, ...]) -> tuple[Any, ...]:
    """Convert an offered subject to the fields of a ``Subject``. For a message the subject is already a tuple of its
    fields, which costs less than keeping its payload alive."""
    if event != _RECEIVE:
        return subject
    topic, partition, offset, key, (kind, timestamp), size, redelivery_count = subject
    if isinstance(key, str):  # a deserializer or the application made it text
        key = key.encode()
    elif not (key is None or isinstance(key, bytes)):
        raise TypeError(
            f"the message key is a {type(key).__name__}, which cannot be recorded. Wrap the consumer before "
            "keys are deserialized"
        )
    return (topic, partition, 0, offset, -1, key, None, None, timestamp if kind else None, None, size, redelivery_count)


def build_position(topic: str | None, partition: int | None, offset: int | None = None) -> tuple[Any, ...]:
    """Build the subject of an event about a position, or about a topic or a partition."""
    ledger = None if offset is None else 0
    return (topic, partition, ledger, offset, None if offset is None else -1, *(None,) * 7)


class KafkaConsumer:
    """Behaves like the consumer that it wraps, and records. ``recording`` has the recording and its counts.

    With ``enable.auto.commit`` the client commits by itself, and reports these commits only to the callback
    ``on_commit`` of its configuration. Let that callback call ``on_commit`` of this class. ``named`` says whether the
    application named the consumer; else its name is the member id from the group.
    """

    def __init__(self, consumer: Any, recording: Recorder, *, named: bool = True) -> None:
        self._consumer = consumer
        self._poll, self._offer = consumer.poll, recording.offer
        self._named = named
        self._subscribed = False
        self._assigned: list[Any] = []  # by the application, not by the group
        self.recording = recording

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def __enter__(self) -> KafkaConsumer:
        self._consumer.__enter__()
        return self

    def __exit__(self, *raised: object) -> Any:
        return self._close(lambda: self._consumer.__exit__(*raised))

    def poll(self, *args: Any, **kwargs: Any) -> Any:
        """Poll like the client. A message with an error, or the end of a partition, is not a receipt."""
        message = self._poll(*args, **kwargs)
        if message is not None:
            self._record_receipt(message)
        return message

    def consume(self, *args: Any, **kwargs: Any) -> Any:
        """Consume like the client. Record one event per message."""
        messages = self._consumer.consume(*args, **kwargs)
        for message in messages:
            self._record_receipt(message)
        return messages

    def commit(self, *args: Any, **kwargs: Any) -> Any:
        """Commit like the client: a message, offsets, or the client's stored offsets. An asynchronous commit of stored
        offsets does not return them, so only ``on_commit`` records them."""
        return self._call_with_offsets(_COMMIT, self._consumer.commit, args, kwargs)

    def store_offsets(self, *args: Any, **kwargs: Any) -> Any:
        """Store the offset of a message, or offsets, like the client."""
        return self._call_with_offsets(_STORE, self._consumer.store_offsets, args, kwargs)

    def on_commit(self, error: Any, partitions: Any) -> None:
        """Record a commit. Let the ``on_commit`` callback of the consumer's configuration call this."""
        at = time_ns()
        self._record_safely(lambda: self._offer_offsets(_COMMIT, at, partitions, error))

    def subscribe(
        self,
        topics: Any,
        on_assign: _Callback | None = None,
        on_revoke: _Callback | None = None,
        on_lost: _Callback | None = None,
        **kwargs: Any,
    ) -> Any:
        """Subscribe like the client. The callbacks receive this consumer, so that their commits are recorded too."""
        at = time_ns()
        callbacks = {
            "on_assign": self._on_assign(on_assign),
            "on_revoke": self._on_revoked_or_lost(CaptureEvent.REVOKE, on_revoke),
            # without on_lost, the client reports lost partitions to on_revoke
            "on_lost": self._on_revoked_or_lost(CaptureEvent.LOST, on_lost or on_revoke),
        }
        result = self._consumer.subscribe(topics, **callbacks, **kwargs)
        self._subscribed = True
        self._record_safely(
            lambda: self._offer_each(CaptureEvent.SUBSCRIBE, at, [build_position(topic, None) for topic in topics])
        )
        return result

    def unsubscribe(self) -> Any:
        """Unsubscribe like the client."""
        at = time_ns()
        result = self._consumer.unsubscribe()
        self._subscribed = False
        self._offer(CaptureEvent.UNSUBSCRIBE.value, at)
        return result

    def assign(self, partitions: Any) -> Any:
        """Assign like the client. Record it where the application assigns partitions, not the group."""
        result = self._consumer.assign(partitions)
        if not self._subscribed:
            at, before, self._assigned = time_ns(), self._assigned, list(partitions)
            self._record_safely(lambda: self._offer_partitions(CaptureEvent.REVOKE, at, before) if before else None)
            self._record_safely(lambda: self._offer_partitions(CaptureEvent.ASSIGN, at, self._assigned))
        return result

    def unassign(self) -> Any:
        """Unassign like the client. Record it where the application had assigned partitions."""
        result = self._consumer.unassign()
        if not self._subscribed:
            at, before, self._assigned = time_ns(), self._assigned, []
            self._record_safely(lambda: self._offer_partitions(CaptureEvent.REVOKE, at, before))
        return result

    def close(self) -> Any:
        """Close like the client, which may call callbacks meanwhile; then finish the file."""
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
            subject = (
                message.topic(), message.partition(), message.offset(), message.key(), message.timestamp(), size, 0,
            )  # fmt: skip
        except Exception as error:
            self.recording.log_failure(error)
            self._offer(_RECEIVE, at, error=error)
        else:
            self._offer(_RECEIVE, at, subject)

    def _on_assign(self, callback: _Callback | None) -> _Callback:
        def assigned(_: Any, partitions: Any) -> None:
            at = time_ns()
            self._record_safely(self._take_name)
            self._record_safely(lambda: self._offer_partitions(CaptureEvent.ASSIGN, at, partitions))
            if callback is not None:
                callback(self, partitions)

        return assigned

    def _on_revoked_or_lost(self, event: CaptureEvent, callback: _Callback | None) -> _Callback:
        def gone(_: Any, partitions: Any) -> None:
            try:
                if callback is not None:
                    callback(self, partitions)
            finally:  # the consumer may still commit in its callback
                at = time_ns()
                self._record_safely(lambda: self._offer_partitions(event, at, partitions))

        return gone

    def _take_name(self) -> None:
        if not self._named and (member := self._consumer.memberid()):
            self.recording.consumer = member

    def _call_with_offsets(self, event: str, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        at = time_ns()
        try:
            result = call(*args, **kwargs)
        except Exception as error:
            raised = error
            self._record_safely(lambda: self._offer_offsets(event, at, _list_offsets(None, args, kwargs), raised))
            raise
        self._record_safely(lambda: self._offer_offsets(event, at, _list_offsets(result, args, kwargs)))
        return result

    def _offer_offsets(self, event: str, at: int, partitions: Any, raised: Any = None) -> None:
        for p in partitions or ():
            self._offer(event, at, build_position(p.topic, p.partition, p.offset), raised or p.error)
        if not partitions:
            self._offer(event, at, build_position(None, None), raised)

    def _offer_partitions(self, event: CaptureEvent, at: int, partitions: Any) -> None:
        self._offer_each(
            event, at, [build_position(p.topic, p.partition) for p in partitions] or [build_position(None, None)]
        )

    def _offer_each(self, event: CaptureEvent, at: int, subjects: Iterable[tuple[Any, ...]]) -> None:
        for subject in subjects:
            self._offer(event.value, at, subject)

    def _record_safely(self, record: Callable[[], Any]) -> None:
        try:
            record()
        except Exception as error:
            self.recording.log_failure(error)


def _list_offsets(result: Any, args: Any, kwargs: Any) -> Any:
    """Return the offsets of a call as partitions: those that it returned, else those that it received."""
    if result is not None:
        return result
    message, offsets = (*args, None, None)[:2]
    message, offsets = kwargs.get("message", message), kwargs.get("offsets", offsets)
    return offsets if message is None else [_PositionAfter(message)]


class _PositionAfter:
    """The position after a message, with the fields of a partition with an offset."""

    error = None

    def __init__(self, message: Any) -> None:
        self.topic, self.partition, self.offset = message.topic(), message.partition(), message.offset() + 1
