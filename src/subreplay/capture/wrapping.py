"""Which client a consumer is of, and how its recording begins."""

from __future__ import annotations

import inspect
import os
import platform
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from subreplay.capture import kafka, pulsar
from subreplay.capture.events import KAFKA, PULSAR, Event, Subject
from subreplay.capture.kafka import KafkaConsumer
from subreplay.capture.pulsar import PulsarConsumer
from subreplay.capture.recorder import Recorder, log, session_of
from subreplay.capture.settings import Settings


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
    """A consumer that behaves as ``consumer``, of pulsar-client or confluent-kafka, and records into ``folder``.

    ``subscription`` is its name, or the consumer group; a Pulsar consumer tells it itself, a Kafka consumer does not.
    ``subscription_type``: Exclusive, Failover, Shared or Key_Shared, which no client tells. ``name``: of the consumer;
    else Pulsar's, or the member id that the Kafka group gives. ``topics``: those of a Pulsar consumer of several, by
    their whole names. ``key_secret``: record keys as digests under it, as ``keys.secret`` of a run file makes them.
    ``settings``: fields of ``Settings``.

    Raises TypeError where the consumer is of neither client, or its methods are coroutines, and ValueError for settings
    or a subscription that are missing or wrong. Whatever goes wrong later, as with the folder, is logged and counted.
    """
    of_pulsar = _is_pulsar(consumer)
    recording = _recording(
        consumer, of_pulsar, folder, subscription, subscription_type, name, key_secret, Settings(**settings)
    )
    _started(recording, topics or (_topics(consumer) if of_pulsar else ()))
    return PulsarConsumer(consumer, recording) if of_pulsar else KafkaConsumer(consumer, recording, named=bool(name))


class Listener:
    """A ``message_listener`` for pulsar-client that records and calls another one, with a consumer that records.

    Give it to ``client.subscribe`` as ``message_listener``, and what that returns to ``wrap``, so that closing is
    recorded, too. Recording begins with the first of both.
    """

    def __init__(self, listener: Callable[[Any, Any], Any], folder: str | Path, **options: Any) -> None:
        Settings(**{k: v for k, v in options.items() if k not in _OPTIONS})  # wrong ones are told at once
        self._listener, self._folder, self._options = listener, folder, options
        self._recording: Recorder | None = None
        self._lock = threading.Lock()
        self._failed = False

    def wrap(self, consumer: Any) -> PulsarConsumer:
        """The consumer of this listener, recorded in the same file."""
        with self._lock:
            if self._recording is None:
                self._recording = wrap(consumer, self._folder, **self._options).recording
        return PulsarConsumer(consumer, self._recording)

    def __call__(self, consumer: Any, message: Any) -> Any:
        """What the client calls with each message."""
        try:
            recorded = self.wrap(consumer)
        except Exception:
            if not self._failed:
                log.warning("recording cannot begin; the application goes on without", exc_info=True)
            self._failed = True
            return self._listener(consumer, message)
        recorded.received(message)
        return self._listener(recorded, message)


def message_listener(listener: Callable[[Any, Any], Any], folder: str | Path, **options: Any) -> Listener:
    """A recording ``message_listener`` that calls ``listener``; options as of ``wrap``."""
    return Listener(listener, folder, **options)


_OPTIONS = ("subscription", "subscription_type", "name", "topics", "key_secret")


def _is_pulsar(consumer: Any) -> bool:
    """Told by methods, so neither client is imported, and stand-ins in an application's tests work alike."""
    for of_pulsar, methods in ((True, ("receive", "acknowledge")), (False, ("poll", "commit"))):
        found = [getattr(consumer, method, None) for method in methods]
        if all(map(callable, found)):
            if any(map(inspect.iscoroutinefunction, found)):
                raise TypeError(f"{type(consumer).__name__}: consumers with coroutines are not recorded")
            return of_pulsar
    raise TypeError(f"{type(consumer).__name__} is no consumer of {PULSAR} or {KAFKA}")


def _recording(
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
            raise ValueError("subscription: name the consumer group, which a Kafka consumer does not tell")
        subscription = consumer.subscription_name()
    name = name or (consumer.consumer_name() if of_pulsar else None) or f"{platform.node()}:{os.getpid()}"
    session = session_of(PULSAR if of_pulsar else KAFKA, str(subscription), subscription_type)
    return Recorder(folder, session, name, pulsar.read if of_pulsar else kafka.read, settings, key_secret)


def _started(recording: Recorder, topics: Sequence[str]) -> None:
    at = time.time_ns()
    for topic in topics or (None,):
        recording.offer(Event.START.value, at, Subject(topic))


def _topics(consumer: Any) -> tuple[str, ...]:
    """The topic of a consumer of one. The name that the client makes up for several is no topic's
    (``ClientImpl::subscribeAsync`` of the C++ client)."""
    topic = consumer.topic()
    return () if not topic or "/MultiTopicsConsumer-" in topic else (topic,)
