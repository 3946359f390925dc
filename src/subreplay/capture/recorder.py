"""From the application's threads into files: a bounded buffer, a thread that reads it, and one that writes.

The reading thread never touches the disk, so a message lives a moment longer than without recording, not as long as a
disk may hang.
"""

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
from datetime import datetime, timezone
from importlib import metadata
from itertools import count
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from subreplay.capture.digest import Digests
from subreplay.capture.events import EVENTS, METADATA, VERSION, Session, Subject, batch
from subreplay.capture.files import CaptureFile
from subreplay.capture.settings import Counts, Settings

log: Final = logging.getLogger("subreplay.capture")
_LOOK_SECONDS: Final = 0.1  # between two looks into the buffer
_TURN: Final = 128  # events read before the application's threads get their turn again
_PAUSE_SECONDS: Final = 0.0001
_BATCH: Final = 1_024  # events made Arrow together
_NOTHING: Final = Subject()
_KEY: Final = Subject._fields.index("key")
_DROPPED: Final = "events are dropped: recording is behind, or has ended"


def session_of(library: str, subscription: str, subscription_type: str | None) -> Session:
    """A new session in this process."""
    instance = f"{platform.node() or 'localhost'}:{os.getpid()}:{uuid.uuid4().hex[:12]}"
    return Session(library, instance, subscription, subscription_type)


class Recorder:
    """Takes the events of one consumer, whose name may change. ``read`` turns what was offered into the fields of a
    ``Subject``.

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
        # A full buffer loses its oldest event, and the numbers of the others tell how many were lost, and where.
        self._buffer: deque[tuple[int, str, int, str, Any, BaseException | None]] = deque(maxlen=settings.buffer_rows)
        self._number, self._append = count().__next__, self._buffer.append
        # An application's thread takes it only where recording fails or has ended. A signal handler may close the
        # consumer amid that, so the lock is one's own to take again.
        self._lock = threading.RLock()
        self._seen = self._taken = self._lost = self._refused = self._flushed = self._errors = 0
        self._logged: set[str] = set()
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._file_number = 0
        self._file = self._next_file()
        self._flushed_at = self._rotated_at = time.monotonic()
        self._closed, self._all_read = threading.Event(), threading.Event()
        self._writer = threading.Thread(target=self._write_on, name="subreplay-capture-write", daemon=True)
        try:
            # With its first array pyarrow imports pandas, where there is one: too late while an interpreter ends.
            batch(session, [(consumer, 0, "", 0, *_NOTHING, None)])
            threading.Thread(target=self._read_on, name="subreplay-capture-read", daemon=True).start()
            self._writer.start()
            atexit.register(self.close)
        except Exception as error:
            self._append = self._refuse
            self.failed(error)

    @property
    def buffered(self) -> int:
        """Events that the reading thread has not looked at yet."""
        return len(self._buffer)

    @property
    def counts(self) -> Counts:
        """What became of the events so far."""
        with self._lock:
            waiting = len(self._buffer) + self._taken - self._lost - self._flushed
            dropped = self._seen - self._taken + self._lost + self._refused
            return Counts(self._flushed + waiting + dropped, self._flushed, waiting, dropped, self._errors)

    def offer(self, event: str, at: int, subject: Any = _NOTHING, error: BaseException | None = None) -> None:
        """An event at ``at`` (ns) about what ``read`` understands. ``error``: what the client's call raised."""
        self._append((self._number(), event, at, self.consumer, subject, error))

    def failed(self, error: BaseException) -> None:
        """Something about recording failed; the application goes on."""
        with self._lock:
            self._errors += 1
        self._log_once("recording failed; the application goes on, further errors are only counted", error)

    def close(self) -> None:
        """Write what is left and finish the file; waits ``close_seconds`` at most."""
        if self._closed.is_set():
            return
        self._append = self._refuse
        self._closed.set()
        with suppress(Exception):
            atexit.unregister(self.close)
            self._writer.join(self._settings.close_seconds)
        counts = self.counts
        if counts.dropped or counts.errors or counts.waiting:
            self._log_once(f"recording ended incomplete: {counts}")

    def _refuse(self, _: object) -> None:
        """Instead of appending, when nobody reads any more."""
        with self._lock:
            self._refused += 1
        self._log_once(_DROPPED)

    def _log_once(self, text: str, error: BaseException | None = None) -> None:
        if text not in self._logged:
            self._logged.add(text)
            with suppress(Exception):  # a handler of the application's may fail
                log.warning("%s (%s): %s", self._session.instance, self._folder, text, exc_info=error)

    def _read_on(self) -> None:
        last = False
        while not last:
            last = self._closed.wait(_LOOK_SECONDS)
            try:
                self._read_buffer()
            except Exception as error:
                self.failed(error)
        self._all_read.set()

    def _read_buffer(self) -> None:
        """What was offered until now, as Arrow. After a part of it the application's threads get their turn: they wait
        for the interpreter's lock meanwhile."""
        left, rows = len(self._buffer), []
        while left:
            items = [self._buffer.popleft() for _ in range(min(left, _TURN))]
            left -= len(items)
            rows += [self._row(*item) for item in items]
            with self._lock:
                self._taken += len(items)
                self._seen = max(self._seen, max(item[0] for item in items) + 1)
            del items
            if len(rows) >= _BATCH or not left:
                self._keep(rows)
                rows = []
            time.sleep(_PAUSE_SECONDS)
        if self._seen > self._taken:
            self._log_once(_DROPPED)

    def _row(
        self, seq: int, event: str, at: int, consumer: str, subject: Any, error: BaseException | None
    ) -> tuple[Any, ...]:
        try:
            read = subject if subject is _NOTHING else self._read(event, subject)
            if self._digests is not None:
                keys = (None if key is None else self._digests.of(key) for key in read[_KEY : _KEY + 2])
                read = (*read[:_KEY], *keys, *read[_KEY + 2 :])
        except Exception as unreadable:
            self.failed(unreadable)
            read, error = _NOTHING, error or unreadable
        words = None if error is None else f"{type(error).__name__}: {error}"
        return (consumer, seq, event, at, *read, words)

    def _keep(self, rows: list[tuple[Any, ...]]) -> None:
        """For the disk, if it has not fallen too far behind."""
        arrow = None
        try:
            if self._pending_rows + len(rows) <= self._settings.buffer_rows:
                arrow = batch(self._session, rows)
        except Exception as error:
            self.failed(error)
        with self._lock:
            if arrow is not None:
                self._pending.append(arrow)
                self._pending_rows += len(rows)
            else:
                self._lost += len(rows)
        if arrow is None:
            self._log_once(_DROPPED)

    def _write_on(self) -> None:
        last = False
        while not last:
            last = self._all_read.wait(_LOOK_SECONDS)
            for write in (self._flush, self._rotate):
                try:
                    write(last)
                except Exception as error:
                    self.failed(error)

    def _flush(self, last: bool) -> None:
        """Rows stay until they are written, so what fails is tried again."""
        now = time.monotonic()
        if self._pending_rows and (
            last
            or now - self._flushed_at >= self._settings.flush_seconds
            or self._pending_rows >= self._settings.flush_rows
        ):
            self._flushed_at = now
            with self._lock:
                batches = list(self._pending)
            self._file.flush(batches)
            with self._lock:
                rows = sum(map(len, batches))
                del self._pending[: len(batches)]
                self._pending_rows -= rows
                self._flushed += rows

    def _rotate(self, last: bool) -> None:
        now, settings = time.monotonic(), self._settings
        if last or now - self._rotated_at >= settings.rotate_seconds or self._file.rows >= settings.rotate_rows:
            file, self._file, self._rotated_at = self._file, self._next_file(), now
            file.finish()  # where it fails, the flushes stay, and are read as they are

    def _next_file(self) -> CaptureFile:
        self._file_number += 1
        instance = re.sub(r"[^\w.]", "-", self._session.instance, flags=re.ASCII)
        return CaptureFile(
            self._folder, f"{self._started:%Y%m%dT%H%M%SZ}-{instance}-{self._file_number:06d}", self._schema
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
