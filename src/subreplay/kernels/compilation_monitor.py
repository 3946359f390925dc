"""Measures the time that this process spends on compiling kernels, and reports the first compilation.

The first run in an environment compiles for several seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class CompilationMonitor:
    """The compilations in this process and its workers. Loading a cached kernel is not a compilation."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth, self._since = 0, 0.0
        self._say: Callable[[], object] | None = None

    @contextmanager
    def announce_with(self, announce: Callable[[], object]) -> Iterator[None]:
        """Call a function once, when the first kernel is compiled."""
        before, self._say = self._say, announce
        try:
            yield
        finally:
            self._say = before

    def announce(self) -> None:
        """Report that this process or another one compiles a kernel."""
        if self._say is not None:
            announce, self._say = self._say, None
            announce()

    def begin(self) -> None:
        """Record that numba begins to compile a function, or one that it calls."""
        if not self._depth:
            self._since = time.monotonic()
        self._depth += 1
        self.announce()

    def end(self) -> None:
        """Record that the compilation has ended."""
        self._depth -= 1
        if not self._depth:
            self.seconds += time.monotonic() - self._since


compilation = CompilationMonitor()
