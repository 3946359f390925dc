"""Whether this process compiles kernels, and how long: the first run in an environment takes seconds for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class CompilationMonitor:
    """What numba does in this process (``numba_internals``), and in others that work for it. A kernel that is loaded,
    as an earlier run has kept it, is not compiled."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth, self._since = 0, 0.0
        self._say: Callable[[], object] | None = None

    @contextmanager
    def announce_with(self, announce: Callable[[], object]) -> Iterator[None]:
        """Call a function where a kernel is compiled, once."""
        before, self._say = self._say, announce
        try:
            yield
        finally:
            self._say = before

    def announce(self) -> None:
        """A kernel is compiled, in this process or another one."""
        if self._say is not None:
            announce, self._say = self._say, None
            announce()

    def begin(self) -> None:
        """numba begins to compile a function, or one that it calls."""
        if not self._depth:
            self._since = time.monotonic()
        self._depth += 1
        self.announce()

    def end(self) -> None:
        """It has ended."""
        self._depth -= 1
        if not self._depth:
            self.seconds += time.monotonic() - self._since


compilation = CompilationMonitor()
