"""From the application's threads into files: a bounded buffer, and a thread that empties it."""

from __future__ import annotations

import atexit
import json
import logging
import os
import platform
import re
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from subreplay.capture.digest import Digests
from subreplay.capture.events import EVENTS, METADATA, VERSION, Session, Subject, batch
from subreplay.capture.files import CaptureFile

log: Final = logging.getLogger("subreplay.capture")
_LOOK_SECONDS: Final = 0.1  # between two looks into the buffer: so long a message of Pulsar is held there
_TOGETHER: Final = 128  # events read before the application's threads get their turn again
_TURN_SECONDS: Final = 0.0001
_NOTHING: Final = Subject()
_KEY: Final = Subject._fields.index("key")


@dataclass(frozen=True)
class Settings:
    """When to write, and how much may wait. Raises ValueError for what is not above 0."""

    flush_seconds: float = 5.0  # what a killed process loses at most, with what is in the buffer
    flush_rows: int = 10_000
    rotate_seconds: float = 3_600.0
    rotate_rows: int = 1_000_000
    buffer_rows: int = 100_000  # events that wait for being written; more are dropped
    buffer_bytes: int = 64 << 20  # of payloads of messages that wait for being read
    close_seconds: float = 10.0  # what closing waits for the last rows at most

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ValueError(f"{name} = {value}: must be above 0")


class Counts(NamedTuple):
    """What became of the events so far: ``seen`` is the sum of the others but ``errors``."""

    seen: int
    flushed: int
    waiting: int
    dropped: int
    errors: int


def session_of(library: str, subscription: str, subscription_type: str | None) -> Session:
    """A new session in this process."""
    instance = f"{platform.node() or 'localhost'}:{os.getpid()}:{uuid.uuid4().hex[:12]}"
    return Session(library, instance, subscription, subscription_type)


class Recorder:
    """Takes the events of one consumer. ``read`` turns what was offered into a ``Subject``, on the writing thread.

    No method raises: errors are logged once and counted.
    """

    def __init__(
        self,
        folder: str | Path,
        session: Session,
        consumer: str,
        read: Callable[[str, Any], tuple[Any, ...]],
        settings: Settings,
        key_secret: str | None = None,
    ) -> None:
        self.consumer = consumer
        self._session, self._read, self._settings = session, read, settings
        self._digests = None if key_secret is None else Digests(key_secret)
        self._folder = Path(folder)
        self._started = datetime.now(timezone.utc)
        self._schema = EVENTS.with_metadata({METADATA: json.dumps(self._description()).encode()})
        # An application may close its consumer in a signal handler, amid an event: the lock is one's own to take again.
        self._lock = threading.RLock()
        self._buffer: deque[tuple[Any, ...]] = deque()
        self._seen = self._dropped = self._errors = self._flushed = 0
        self._bytes_in = self._bytes_out = 0
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._number = 0
        self._file = self._next_file()
        self._flushed_at = self._rotated_at = time.monotonic()
        self._logged: set[str] = set()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="subreplay-capture", daemon=True)
        try:
            self._thread.start()
            atexit.register(self.close)
        except Exception as error:
            self._closed.set()
            self.failed(error)

    @property
    def counts(self) -> Counts:
        """What became of the events so far."""
        with self._lock:
            waiting = self._seen - self._flushed - self._dropped
            return Counts(self._seen, self._flushed, waiting, self._dropped, self._errors)

    @property
    def buffered(self) -> int:
        """Events that the writing thread has not looked at yet."""
        return len(self._buffer)

    def offer(
        self, event: str, at: int, subject: Any = _NOTHING, error: BaseException | None = None, size: int = 0
    ) -> None:
        """An event at ``at`` (ns); ``subject`` is what ``read`` understands, and keeps ``size`` bytes alive until it
        is read."""
        with self._lock:
            seq = self._seen
            self._seen = seq + 1
            waiting = self._bytes_in - self._bytes_out
            room = not waiting or waiting + size <= self._settings.buffer_bytes
            if room and len(self._buffer) < self._settings.buffer_rows and not self._closed.is_set():
                self._bytes_in += size
                self._buffer.append((seq, event, at, self.consumer, subject, error, size))
                return
            self._dropped += 1
        self._log_once("dropped", "recording is behind, or ended: events are dropped, which leaves gaps in seq")

    def failed(self, error: BaseException) -> None:
        """Something about recording failed; the application goes on."""
        with self._lock:
            self._errors += 1
        self._log_once(
            "failed", "recording failed; the application goes on, further errors are counted only", exc_info=error
        )

    def close(self) -> None:
        """Write what is left and finish the file; waits ``close_seconds`` at most."""
        if self._closed.is_set():
            return
        self._closed.set()
        with suppress(Exception):
            atexit.unregister(self.close)
            self._thread.join(self._settings.close_seconds)
        counts = self.counts
        if counts.dropped or counts.errors or counts.waiting:
            self._log_once("closed", f"recording ended incomplete: {counts}")

    def _log_once(self, what: str, text: str, **details: Any) -> None:
        if what not in self._logged:
            self._logged.add(what)
            with suppress(Exception):  # a handler of the application may fail
                log.warning("%s (%s): %s", self._session.instance, self._folder, text, **details)

    def _run(self) -> None:
        last = False
        while not last:
            last = self._closed.wait(_LOOK_SECONDS)
            try:
                self._drain()
                self._write(last)
            except Exception as error:
                self.failed(error)

    def _drain(self) -> None:
        """What was offered until now, as Arrow. After a part of it the application's threads get their turn: they wait
        for the interpreter's lock meanwhile."""
        for _ in range(0, len(self._buffer), _TOGETHER):
            items = [self._buffer.popleft() for _ in range(min(_TOGETHER, len(self._buffer)))]
            try:
                self._pending.append(batch(self._session, [self._row(item) for item in items]))
                self._pending_rows += len(items)
            except Exception as error:
                self._lose(len(items), error)
            self._bytes_out += sum(item[-1] for item in items)
            del items
            time.sleep(_TURN_SECONDS)

    def _row(self, item: tuple[Any, ...]) -> tuple[Any, ...]:
        seq, event, at, consumer, subject, error, _ = item
        try:
            read = subject if subject is _NOTHING else self._read(event, subject)
            if self._digests is not None:
                keys = (None if key is None else self._digests.of(key) for key in read[_KEY : _KEY + 2])
                read = (*read[:_KEY], *keys, *read[_KEY + 2 :])
        except Exception as unreadable:
            self.failed(unreadable)
            read, error = _NOTHING, error or unreadable
        return (consumer, seq, event, at, *read, None if error is None else f"{type(error).__name__}: {error}")

    def _write(self, last: bool) -> None:
        settings, now = self._settings, time.monotonic()
        due = now - self._flushed_at >= settings.flush_seconds or self._pending_rows >= settings.flush_rows
        if self._pending_rows and (due or last):
            self._flushed_at = now
            self._flush()
        elif not self._pending_rows:
            self._flushed_at = now
        old = now - self._rotated_at >= settings.rotate_seconds or self._file.rows >= settings.rotate_rows
        if last or (old and self._file.rows):
            self._rotate()

    def _flush(self) -> None:
        try:
            self._file.flush(self._pending)
        except Exception as error:
            # kept for the next time, as far as they have room
            self.failed(error)
            if self._pending_rows < self._settings.buffer_rows:
                return
            self._lose(self._pending_rows, error=None)
        else:
            with self._lock:
                self._flushed += self._pending_rows
        self._pending, self._pending_rows = [], 0

    def _rotate(self) -> None:
        file, self._file = self._file, self._next_file()
        self._rotated_at = time.monotonic()
        file.finish()  # where it fails, the flushes stay, and are read as they are

    def _lose(self, rows: int, error: Exception | None) -> None:
        with self._lock:
            self._dropped += rows
        if error is not None:
            self.failed(error)

    def _next_file(self) -> CaptureFile:
        self._number += 1
        host, pid, word = self._session.instance.rsplit(":", 2)
        safe = re.sub(r"[^\w.-]", "_", f"{host}-{pid}-{word}", flags=re.ASCII)
        return CaptureFile(
            self._folder, f"{self._started:%Y%m%dT%H%M%SZ}-{safe}-{self._number:06d}", self._schema
        )

    def _description(self) -> dict[str, Any]:
        """What stands in a file's metadata."""
        session = self._session
        host, pid, _ = session.instance.rsplit(":", 2)
        return {
            "version": VERSION,
            "library": session.library,
            "library_version": _version(session.library),
            "host": host,
            "pid": int(pid),
            "instance": session.instance,
            "consumer": self.consumer,
            "subscription": session.subscription,
            "subscription_type": session.subscription_type,
            "started": self._started.isoformat(),
            # the digest of no key tells whether two files have the same secret
            "keys": "as given" if self._digests is None else f"digests {self._digests.check}",
        }


def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None
