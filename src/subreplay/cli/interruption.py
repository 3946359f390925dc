"""Handle Ctrl-C and SIGTERM: cancel what the engine still does for the command, then end the command."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn, TypeVar

T = TypeVar("T")
SIGNALS = (signal.SIGINT, signal.SIGTERM)
CANCEL_TIMEOUT = 5.0  # seconds after which the command ends although the engine has not answered
CANCEL_INTERVAL = 0.5  # seconds between two cancellations


class Interruption:
    """An interruption of a command by a signal; ``code`` is its exit code, 128 plus the number of the signal."""

    def __init__(self) -> None:
        self.code: int | None = None
        self._cancel: Callable[[], object] | None = None
        self._ended = threading.Event()

    @contextmanager
    def handle_signals(self) -> Iterator[Interruption]:
        """End the command at a signal while the context lasts. Outside the main thread signals are left alone."""
        self.code = self._cancel = None
        self._ended = threading.Event()
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = {number: signal.getsignal(number) for number in SIGNALS}
        hook = sys.unraisablehook
        try:
            self._listen()
            yield self
        finally:
            self._ended.set()
            sys.unraisablehook = hook
            for number, handler in before.items():
                signal.signal(number, handler)

    def cancel_with(self, cancel: Callable[[], object]) -> None:
        """Call ``cancel`` first at every later signal."""
        self._cancel = cancel

    def run_uninterrupted(self, work: Callable[[], T]) -> T:
        """Return the result of ``work``; signals that arrive meanwhile take effect after it.

        Java writes its port into a folder that pyspark removes when it is interrupted, and without that folder Java
        never ends. The work runs in a separate thread, because in the main thread pyspark's ``SparkContext`` installs
        its own handler, which calls Java in the middle of another call.
        """
        if threading.current_thread() is not threading.main_thread():
            return work()
        received: list[int] = []
        for number in SIGNALS:
            signal.signal(number, lambda number, _: received.append(number))
        try:
            with ThreadPoolExecutor(1) as thread:
                return thread.submit(work).result()
        finally:
            self._listen()
            if received:
                self._end(received[0], None)

    def _listen(self) -> None:
        for number in SIGNALS:
            signal.signal(number, self._end)

    def _end(self, number: int, frame: FrameType | None) -> NoReturn:
        self.code = 128 + number
        sys.unraisablehook = lambda _: None  # ignores half-made objects, such as a kernel that was being compiled
        if self._cancel is not None:
            # in a separate thread, because this one may be in the middle of a call on the same connection
            first = threading.Event()
            threading.Thread(
                target=self._cancel_until_ended, args=(self._cancel, first, self._ended), daemon=True
            ).start()
            first.wait(CANCEL_TIMEOUT)
        raise KeyboardInterrupt

    def _cancel_until_ended(self, cancel: Callable[[], object], first: threading.Event, ended: threading.Event) -> None:
        """Cancel running work again and again, until the command ends.

        A job that was only planned at the first cancellation would otherwise run to its end, and the command waits.
        """
        with suppress(Exception):  # the engine may be gone
            while not ended.is_set():
                cancel()
                first.set()
                ended.wait(CANCEL_INTERVAL)
        first.set()
