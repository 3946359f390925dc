"""Detect the client library of a consumer, and start its recording."""

from __future__ import annotations

import inspect
import os
import platform
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from subreplay.capture import kafka_consumer, pulsar_consumer
from subreplay.capture.file_format import KAFKA, PULSAR, SHARE, CaptureEvent, EventSubject
from subreplay.capture.kafka_consumer import KafkaConsumer
from subreplay.capture.pulsar_consumer import PulsarConsumer
from subreplay.capture.recorder import Recorder, log, start_session
from subreplay.capture.settings import Settings
from subreplay.capture.share_consumer import KafkaShareConsumer


def wrap(
    consumer: Any,
    folder: str | Path,
    *,
    subscription: str | None = None,
    subscription_type: str | None = None,
    name: str | None = None,
    topics: Sequence[str] = (),
    key_secret: str | None = None,
    **settings: Any,
) -> Any:
    """Wrap a consumer of pulsar-client or confluent-kafka (also a ``ShareConsumer``): it behaves the same, and records
    into ``folder``.

    ``subscription`` is its name, or the consumer group; it is required for Kafka, because a Kafka consumer does not
    report it. ``subscription_type`` is Exclusive, Failover, Shared or Key_Shared, which clients do not report. ``name``
    is the consumer's name; the default is Pulsar's name, or the member id of the Kafka group. ``topics`` are the full
    topic names of a Pulsar consumer of several topics. ``key_secret`` records keys as digests under this secret, equal
    to those of ``keys.secret`` of a run file. ``settings`` are fields of ``Settings``.

    Raises TypeError where the consumer is of neither client or has coroutines, and ValueError for missing or wrong
    settings or subscription. Later errors, as of the folder, are logged and counted.
    """
    client = _find_client(consumer)
    of_pulsar, of_share_group = client == PULSAR, client == SHARE
    subscription_type = SHARE if of_share_group else subscription_type
    recording = _start_recorder(
        consumer, of_pulsar, folder, subscription, subscription_type, name, key_secret, Settings(**settings)
    )
    _record_start(recording, topics or (_find_topics(consumer) if of_pulsar else ()))
    if of_share_group:
        return KafkaShareConsumer(consumer, recording)
    return PulsarConsumer(consumer, recording) if of_pulsar else KafkaConsumer(consumer, recording, named=bool(name))


class Listener:
    """A ``message_listener`` for pulsar-client that records each message and passes it to another listener.

    Pass it to ``client.subscribe`` as ``message_listener``, and pass the returned consumer to ``wrap``, so that closing
    is recorded too. Recording begins with the first of both.
    """

    def __init__(self, listener: Callable[[Any, Any], Any], folder: str | Path, **options: Any) -> None:
        Settings(**{k: v for k, v in options.items() if k not in _OPTIONS})  # raises at once for wrong settings
        self._listener, self._folder, self._options = listener, folder, options
        self._recording: Recorder | None = None
        self._lock = threading.Lock()
        self._failed = False

    def wrap(self, consumer: Any) -> PulsarConsumer:
        """Wrap the consumer of this listener, recording into the same file."""
        with self._lock:
            if self._recording is None:
                self._recording = wrap(consumer, self._folder, **self._options).recording
        return PulsarConsumer(consumer, self._recording)

    def __call__(self, consumer: Any, message: Any) -> Any:
        """Record a message from the client and pass it on."""
        try:
            recorded = self.wrap(consumer)
        except Exception:
            if not self._failed:
                log.warning("recording cannot begin; the application continues without it", exc_info=True)
            self._failed = True
            return self._listener(consumer, message)
        recorded.record_receipt(message)
        return self._listener(recorded, message)


def message_listener(listener: Callable[[Any, Any], Any], folder: str | Path, **options: Any) -> Listener:
    """Build a recording ``message_listener`` that calls ``listener``; the options are those of ``wrap``."""
    return Listener(listener, folder, **options)


_OPTIONS = ("subscription", "subscription_type", "name", "topics", "key_secret")


_METHODS = {
    PULSAR: ("receive", "acknowledge"),
    KAFKA: ("poll", "commit"),
    SHARE: ("poll", "acknowledge", "commit_sync"),
}
"""The methods of the consumers of each client."""


def _find_client(consumer: Any) -> str:
    """Find the client by the methods of its consumer. This needs no import of a client, and works for test doubles."""
    for client, methods in _METHODS.items():
        found = [getattr(consumer, method, None) for method in methods]
        if all(map(callable, found)):
            if any(map(inspect.iscoroutinefunction, found)):
                raise TypeError(
                    f"{type(consumer).__name__} has coroutine methods, which cannot be recorded. Wrap a "
                    "consumer with blocking methods"
                )
            return client
    raise TypeError(
        f"{type(consumer).__name__} is not a consumer of {PULSAR} or {KAFKA}. Wrap a consumer of one of them"
    )


def _start_recorder(
    consumer: Any,
    of_pulsar: bool,
    folder: str | Path,
    subscription: str | None,
    subscription_type: str | None,
    name: str | None,
    key_secret: str | None,
    settings: Settings,
) -> Recorder:
    if not subscription:
        if not of_pulsar:
            raise ValueError("subscription is missing, and a Kafka consumer does not report its group. "
                             "Pass subscription with the name of the consumer group")  # fmt: skip
        subscription = consumer.subscription_name()
    name = name or (consumer.consumer_name() if of_pulsar else None) or f"{platform.node()}:{os.getpid()}"
    session = start_session(PULSAR if of_pulsar else KAFKA, str(subscription), subscription_type)
    return Recorder(
        folder,
        session,
        name,
        pulsar_consumer.read_subject if of_pulsar else kafka_consumer.read_subject,
        settings,
        key_secret,
    )


def _record_start(recording: Recorder, topics: Sequence[str]) -> None:
    at = time.time_ns()
    for topic in topics or (None,):
        recording.offer(CaptureEvent.START.value, at, EventSubject(topic))


def _find_topics(consumer: Any) -> tuple[str, ...]:
    """Return the topic of a consumer of one topic. For several topics the client makes up a name, which is ignored
    (``ClientImpl::subscribeAsync`` of the C++ client)."""
    topic = consumer.topic()
    return () if not topic or "/MultiTopicsConsumer-" in topic else (topic,)
