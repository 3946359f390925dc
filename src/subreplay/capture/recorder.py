"""Move events from the application's threads into files: a bounded buffer, a reading thread and a writing thread.

The reading thread never touches the disk, so a hanging disk does not keep messages alive.
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

from subreplay.capture.capture_files import CaptureFile
from subreplay.capture.file_format import EVENTS, METADATA, VERSION, CaptureSession, EventSubject, build_batch
from subreplay.capture.key_digests import KeyDigests
from subreplay.capture.settings import Counts, Settings

log: Final = logging.getLogger("subreplay.capture")
_POLL_SECONDS: Final = 0.1  # between two checks of the buffer
_READ_ROWS: Final = 128  # events that are read before the application's threads may run again
_PAUSE_SECONDS: Final = 0.0001
_BATCH_ROWS: Final = 1_024  # events of one Arrow batch
_NO_SUBJECT: Final = EventSubject()
_KEY: Final = EventSubject._fields.index("key")
_DROPPED: Final = "events are dropped, because recording is too slow or has ended"


def start_session(library: str, subscription: str, subscription_type: str | None) -> CaptureSession:
    """Start a new session in this process."""
    instance = f"{platform.node() or 'localhost'}:{os.getpid()}:{uuid.uuid4().hex[:12]}"
    return CaptureSession(library, instance, subscription, subscription_type)


class Recorder:
    """Records the events of one consumer, whose name may change. ``read`` converts an offered subject to the fields of
    a ``EventSubject``.

    No method raises: errors are logged once and counted.
    """

    def __init__(
        self,
        folder: str | Path,
        session: CaptureSession,
        consumer: str,
        read: Callable[[str, Any], tuple[Any, ...]],
        settings: Settings,
        key_secret: str | None = None,
    ) -> None:
        self.consumer = consumer
        self._session, self._read, self._settings = session, read, settings
        self._digests = None if key_secret is None else KeyDigests(key_secret)
        self._folder = Path(folder)
        self._started = datetime.now(timezone.utc)
        self._schema = EVENTS.with_metadata({METADATA: json.dumps(self._describe()).encode()})
        # A full buffer drops its oldest event. The numbers of the others show how many it dropped, and where.
        self._buffer: deque[tuple[int, str, int, str, Any, BaseException | None]] = deque(maxlen=settings.buffer_rows)
        self._number, self._append = count().__next__, self._buffer.append
        # An application's thread takes the lock only after recording failed or ended. A signal handler may close the
        # consumer meanwhile in the same thread, so the lock is reentrant.
        self._lock = threading.RLock()
        self._seen = self._taken = self._lost = self._dropped_late = self._flushed = self._errors = 0
        self._logged: set[str] = set()
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._file_number = 0
        self._file = self._open_next_file()
        self._flushed_at = self._rotated_at = time.monotonic()
        self._closed, self._all_read = threading.Event(), threading.Event()
        self._writer = threading.Thread(target=self._write_until_closed, name="subreplay-capture-write", daemon=True)
        try:
            # pyarrow imports pandas (if installed) with its first array, which fails while the interpreter exits.
            build_batch(session, [(consumer, 0, "", 0, *_NO_SUBJECT, None)])
            threading.Thread(target=self._read_until_closed, name="subreplay-capture-read", daemon=True).start()
            self._writer.start()
            atexit.register(self.close)
        except Exception as error:
            self._append = self._drop
            self.log_failure(error)

    @property
    def buffered(self) -> int:
        """The number of events that the reading thread has not read yet."""
        return len(self._buffer)

    @property
    def counts(self) -> Counts:
        """The counts of the events so far by outcome."""
        with self._lock:
            waiting = len(self._buffer) + self._taken - self._lost - self._flushed
            dropped = self._seen - self._taken + self._lost + self._dropped_late
            return Counts(self._flushed + waiting + dropped, self._flushed, waiting, dropped, self._errors)

    def offer(self, event: str, at: int, subject: Any = _NO_SUBJECT, error: BaseException | None = None) -> None:
        """Record an event at ``at`` (ns) whose subject ``read`` understands. ``error`` is what the client's call
        raised."""
        self._append((self._number(), event, at, self.consumer, subject, error))

    def log_failure(self, error: BaseException) -> None:
        """Count and log an error of the recording; the application continues."""
        with self._lock:
            self._errors += 1
        self._log_once("recording failed; the application continues, and further errors are only counted", error)

    def close(self) -> None:
        """Write the remaining rows and finish the file; wait ``close_seconds`` at most."""
        if self._closed.is_set():
            return
        self._append = self._drop
        self._closed.set()
        with suppress(Exception):
            atexit.unregister(self.close)
            self._writer.join(self._settings.close_seconds)
        counts = self.counts
        if counts.dropped or counts.errors or counts.waiting:
            self._log_once(f"the recording is incomplete: {counts}")

    def _drop(self, _: object) -> None:
        """Count an event that arrives after the reading thread ended."""
        with self._lock:
            self._dropped_late += 1
        self._log_once(_DROPPED)

    def _log_once(self, text: str, error: BaseException | None = None) -> None:
        if text not in self._logged:
            self._logged.add(text)
            with suppress(Exception):  # a log handler of the application may fail
                log.warning("%s (%s): %s", self._session.instance, self._folder, text, exc_info=error)

    def _read_until_closed(self) -> None:
        last = False
        while not last:
            last = self._closed.wait(_POLL_SECONDS)
            try:
                self._read_buffer()
            except Exception as error:
                self.log_failure(error)
        self._all_read.set()

    def _read_buffer(self) -> None:
        """Convert all buffered events to Arrow. Pause between parts, because the application's threads wait for the
        interpreter lock meanwhile."""
        remaining, rows = len(self._buffer), []
        while remaining:
            items = [self._buffer.popleft() for _ in range(min(remaining, _READ_ROWS))]
            remaining -= len(items)
            rows += [self._build_row(*item) for item in items]
            with self._lock:
                self._taken += len(items)
                self._seen = max(self._seen, max(item[0] for item in items) + 1)
            del items
            if len(rows) >= _BATCH_ROWS or not remaining:
                self._queue(rows)
                rows = []
            time.sleep(_PAUSE_SECONDS)
        if self._seen > self._taken:
            self._log_once(_DROPPED)

    def _build_row(
        self, seq: int, event: str, at: int, consumer: str, subject: Any, error: BaseException | None
    ) -> tuple[Any, ...]:
        try:
            read = subject if subject is _NO_SUBJECT else self._read(event, subject)
            if self._digests is not None:
                keys = (None if key is None else self._digests.make(key) for key in read[_KEY : _KEY + 2])
                read = (*read[:_KEY], *keys, *read[_KEY + 2 :])
        except Exception as unreadable:
            self.log_failure(unreadable)
            read, error = _NO_SUBJECT, error or unreadable
        text = None if error is None else f"{type(error).__name__}: {error}"
        return (consumer, seq, event, at, *read, text)

    def _queue(self, rows: list[tuple[Any, ...]]) -> None:
        """Queue rows for the disk, unless writing has fallen too far behind."""
        arrow = None
        try:
            if self._pending_rows + len(rows) <= self._settings.buffer_rows:
                arrow = build_batch(self._session, rows)
        except Exception as error:
            self.log_failure(error)
        with self._lock:
            if arrow is not None:
                self._pending.append(arrow)
                self._pending_rows += len(rows)
            else:
                self._lost += len(rows)
        if arrow is None:
            self._log_once(_DROPPED)

    def _write_until_closed(self) -> None:
        last = False
        while not last:
            last = self._all_read.wait(_POLL_SECONDS)
            for write in (self._flush, self._rotate):
                try:
                    write(last)
                except Exception as error:
                    self.log_failure(error)

    def _flush(self, last: bool) -> None:
        """Write pending rows. They stay pending until they are written, so a failed write is repeated."""
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
            file, self._file, self._rotated_at = self._file, self._open_next_file(), now
            file.finish()  # if it fails, the flushes remain readable

    def _open_next_file(self) -> CaptureFile:
        self._file_number += 1
        instance = re.sub(r"[^\w.]", "-", self._session.instance, flags=re.ASCII)
        return CaptureFile(
            self._folder, f"{self._started:%Y%m%dT%H%M%SZ}-{instance}-{self._file_number:06d}", self._schema
        )

    def _describe(self) -> dict[str, Any]:
        """Build the metadata of a file."""
        session = self._session
        host, pid, _ = session.instance.rsplit(":", 2)
        return {
            "version": VERSION,
            "library": session.library,
            "library_version": _find_version(session.library),
            "host": host,
            "pid": int(pid),
            "instance": session.instance,
            "consumer": self.consumer,
            "subscription": session.subscription,
            "subscription_type": session.subscription_type,
            "started": self._started.isoformat(),
            # the digest without a key shows whether two files have the same secret
            "keys": "as given" if self._digests is None else f"digests {self._digests.check}",
        }


def _find_version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None
