"""Ctrl-C and SIGTERM: what the engine still does for the command is cancelled, then the command ends."""

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
PATIENCE = 5.0  # seconds until the command ends without an answer
PAUSE = 0.5  # seconds between two cancellings


class Interruption:
    """What happens to a command from outside; ``code`` is the exit code then: 128 and the number of the signal."""

    def __init__(self) -> None:
        self.code: int | None = None
        self._cancel: Callable[[], object] | None = None
        self._ended = threading.Event()

    @contextmanager
    def expected(self) -> Iterator[Interruption]:
        """Signals end the command until this ends. Elsewhere than in the main thread they are others' business."""
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

    def cancelling(self, cancel: Callable[[], object]) -> None:
        """From now on call ``cancel`` first."""
        self._cancel = cancel

    def deferred(self, work: Callable[[], T]) -> T:
        """What ``work`` gives; a signal takes effect when it ends, and so do those that follow it.

        Java writes where it listens into a folder that pyspark removes when it is broken off, and without that folder
        Java never ends. The work has a thread of its own, because in the main thread pyspark's ``SparkContext`` puts
        its own handler in place, which calls Java in the middle of another call.
        """
        if threading.current_thread() is not threading.main_thread():
            return work()
        waiting: list[int] = []
        for number in SIGNALS:
            signal.signal(number, lambda number, _: waiting.append(number))
        try:
            with ThreadPoolExecutor(1) as thread:
                return thread.submit(work).result()
        finally:
            self._listen()
            if waiting:
                self._end(waiting[0], None)

    def _listen(self) -> None:
        for number in SIGNALS:
            signal.signal(number, self._end)

    def _end(self, number: int, frame: FrameType | None) -> NoReturn:
        self.code = 128 + number
        sys.unraisablehook = lambda _: None  # of what was half made, as a kernel that was being compiled
        if self._cancel is not None:
            # in a thread of its own: this one may be in the middle of a call, on the same connection
            first = threading.Event()
            threading.Thread(
                target=self._cancel_until_ended, args=(self._cancel, first, self._ended), daemon=True
            ).start()
            first.wait(PATIENCE)
        raise KeyboardInterrupt

    def _cancel_until_ended(self, cancel: Callable[[], object], first: threading.Event, ended: threading.Event) -> None:
        """Cancel what is under way, and again what other threads of the command have begun since: a job that was only
        planned at the first time would run to its end, for which the command waits."""
        with suppress(Exception):  # nobody is there any more who could be asked
            while not ended.is_set():
                cancel()
                first.set()
                ended.wait(PAUSE)
        first.set()
