"""The log file of a run: output of Spark, Java and other libraries, warnings, and the traceback of a failure."""

from __future__ import annotations

import errno
import logging
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from subreplay.errors import EnvironmentFailed

if TYPE_CHECKING:
    from subreplay.reports.report_folder import ReportFolder

LOG_NAME = "subreplay.log"


def _read_modification_time(path: Path) -> int | None:
    """Return when a file was written in ns, or None if there is no file."""
    with suppress(OSError):
        return path.stat().st_mtime_ns
    return None


def _open_without_links(path: str, flags: int) -> int:
    """Open a file; fail if the name is a symbolic link, which would let another user choose the file to overwrite."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


class RunLog(logging.Handler):
    """Receives log records and warnings, and writes them to a named file or else to a temporary one."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        self._begin()

    def _begin(self) -> None:
        self.path: Path | None = None
        self._file: TextIO | None = None
        self._kept = False
        self._page: tuple[Path, int | None] | None = None
        self.folder: ReportFolder | None = None

    def open(self, location: str, settings: Mapping[str, str]) -> None:
        """Write to a permanent file in the folder of the report, which may be in a store; see ``ReportFolder``.

        Raises ``EnvironmentFailed`` if the folder is not writable, so that a long run fails at its start.
        """
        from subreplay.reports.report_folder import ReportFolder
        from subreplay.reports.write import PAGE

        self.folder = ReportFolder(location, settings)
        folder = self.folder.path
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = open(  # noqa: SIM115  it stays open until the command ends
                folder / LOG_NAME, "w", encoding="utf-8", errors="backslashreplace", opener=_open_without_links
            )
        except OSError as error:
            if error.errno == errno.ELOOP and (folder / LOG_NAME).is_symlink():
                raise EnvironmentFailed(
                    f"{folder / LOG_NAME}: this is a symbolic link, which a log file does not follow. Remove it"
                ) from error
            remedy = "choose another folder (--out, or output.report in the run file)"
            raise EnvironmentFailed(f"{folder}: cannot be written: {error.strerror}; {remedy}") from error
        self.path, self._kept = (folder / LOG_NAME).absolute(), True
        self._page = (folder / PAGE, _read_modification_time(folder / PAGE))
        self.folder.upload()

    @property
    def address(self) -> str | None:
        """The log file as its readers know it, which may be in a store."""
        return self.describe(self.path) if self.path is not None else None

    def describe(self, path: Path) -> str:
        """Return the address of a file of the run as its readers know it."""
        return str(path.resolve()) if self.folder is None else self.folder.describe(path)

    @property
    def earlier_page(self) -> Path | None:
        """The page beside the log file if an earlier run wrote it, else None.

        An earlier page stays until this run replaces it, so that a reader always finds a whole page.
        """
        page, written = self._page or (None, None)
        return page if page is not None and written is not None and _read_modification_time(page) == written else None

    @contextmanager
    def listen(self) -> Iterator[RunLog]:
        """Receive log records and warnings until the end."""
        self._begin()
        logger, raises, last = logging.getLogger(), logging.raiseExceptions, logging.lastResort
        logger.addHandler(self)
        logging.lastResort = self  # receives the records of loggers that do not propagate
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
                self._file = None  # what a program logs after a command goes to a file of its own
            if self.folder is not None and self.folder.is_in_store:
                with suppress(EnvironmentFailed):
                    self.folder.upload()
                self.folder.remove_copy()

    @contextmanager
    def capture_output(self) -> Iterator[None]:
        """Redirect standard output and standard error to the log file, also for programs that start meanwhile."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        before = [os.dup(number) for number in (1, 2)]
        try:
            for number in (1, 2):
                os.dup2(self._open_file().fileno(), number)
            yield
        finally:
            for number, saved in zip((1, 2), before, strict=True):
                os.dup2(saved, number)
                os.close(saved)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a log record."""
        with suppress(OSError):
            print(self.format(record), file=self._open_file(), flush=True)

    def traceback(self, error: BaseException) -> str | None:
        """Write the traceback of an error; return the file's address, or None if no file can be written."""
        trace = "".join(traceback.format_exception(error))
        for _ in range(2):
            try:
                print(trace, file=self._open_file(), flush=True)
                self.keep()
                return self.address
            except OSError:  # this disk may be full, and the disk of temporary files may not be
                self._file = None
        return None

    def keep(self) -> None:
        """Keep the file, because a message names it."""
        self._kept = True

    def remove_unless_kept(self) -> None:
        """Remove the file if no message has named it."""
        if self.path is not None and not self._kept:
            self.path.unlink(missing_ok=True)
            self.path = None

    def _open_file(self) -> TextIO:
        if self._file is None:
            handle, name = tempfile.mkstemp(prefix="subreplay-", suffix=".log")
            self._file = os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace")
            self.path, self._kept = Path(name), False
        return self._file
