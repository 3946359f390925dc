"""The log file of a run: what Spark, Java and other libraries say, warnings, and the traceback of what broke off."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from subreplay.errors import EnvironmentFailed

NAME = "subreplay.log"


def _written(path: Path) -> int | None:
    """When a file was written, in ns; None where there is none."""
    with suppress(OSError):
        return path.stat().st_mtime_ns
    return None


class RunLog(logging.Handler):
    """Takes what is logged or warned of; a file is opened in the folder for temporary files unless one was named."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        self._begin()

    def _begin(self) -> None:
        self.path: Path | None = None
        self._file: TextIO | None = None
        self._kept = False
        self._page: tuple[Path, int | None] | None = None

    def open(self, folder: Path) -> None:
        """Write to a file of this folder, which stays. Raises ``EnvironmentFailed`` where the folder is not writable,
        which is better known before a long run than after it."""
        from subreplay.reports.write import PAGE

        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = (folder / NAME).open("w", encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            remedy = "choose another folder (--out, or output.report in the run file)"
            raise EnvironmentFailed(f"{folder}: cannot be written: {error.strerror}; {remedy}") from error
        self.path, self._kept = (folder / NAME).absolute(), True
        self._page = (folder / PAGE, _written(folder / PAGE))

    @property
    def earlier_page(self) -> Path | None:
        """The page beside the log file, where it is still that of an earlier run: it stays until this run's replaces
        it, so that who looks at it meanwhile finds a whole one."""
        page, written = self._page or (None, None)
        return page if page is not None and written is not None and _written(page) == written else None

    @contextmanager
    def listening(self) -> Iterator[RunLog]:
        """Receive log records and warnings until the end."""
        self._begin()
        logger, raises, last = logging.getLogger(), logging.raiseExceptions, logging.lastResort
        logger.addHandler(self)
        logging.lastResort = self  # also of loggers that hand nothing on
        logging.captureWarnings(True)
        logging.raiseExceptions = False  # a full disk must not fill the terminal
        try:
            yield self
        finally:
            logging.raiseExceptions, logging.lastResort = raises, last
            logging.captureWarnings(False)
            logger.removeHandler(self)
            if self._file is not None:
                with suppress(OSError):
                    self._file.close()

    @contextmanager
    def instead_of_output(self) -> Iterator[None]:
        """Programs that are started meanwhile write here, instead of to standard output and standard error."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        before = [os.dup(number) for number in (1, 2)]
        try:
            for number in (1, 2):
                os.dup2(self._writable().fileno(), number)
            yield
        finally:
            for number, saved in zip((1, 2), before, strict=True):
                os.dup2(saved, number)
                os.close(saved)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a log record."""
        with suppress(OSError):
            print(self.format(record), file=self._writable(), flush=True)

    def traceback(self, error: BaseException) -> Path | None:
        """Write where an error came from; the file, or None where none can be written."""
        told = "".join(traceback.format_exception(error))
        for _ in range(2):
            try:
                print(told, file=self._writable(), flush=True)
                self.keep()
                return self.path
            except OSError:  # the disk of the named folder is full: the one of temporary files may not be
                self._file = None
        return None

    def keep(self) -> None:
        """The file stays: it is spoken of."""
        self._kept = True

    def forget(self) -> None:
        """Remove a file that nobody has heard of: all went well."""
        if self.path is not None and not self._kept:
            self.path.unlink(missing_ok=True)
            self.path = None

    def _writable(self) -> TextIO:
        if self._file is None:
            handle, name = tempfile.mkstemp(prefix="subreplay-", suffix=".log")
            self._file = os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace")
            self.path, self._kept = Path(name), False
        return self._file
