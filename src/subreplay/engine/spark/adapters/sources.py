"""Every adapter of files as ``(spark, path, options) -> frames``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from subreplay.adapters import ADAPTERS
from subreplay.adapters.base import Ingested, Options
from subreplay.adapters.broker_log.logs import NAME as BROKER_LOG
from subreplay.adapters.streams import size_of
from subreplay.engine.spark import local_delta
from subreplay.engine.spark.adapters import broker_log, streamed, whole
from subreplay.engine.spark.adapters.frames import Read
from subreplay.engine.spark.session import KeptRows

AT_ONCE: int = 2**21
"""Bytes of files that one task reads in one go though they could be streamed, as it takes no stages for that: some
150,000 captured events."""
HERE: int = 2**21
"""Bytes of files of this machine that the driver reads itself, for which no task has to start; those of a broker's log
are larger."""


def read(spark: SparkSession, kept: KeptRows, name: str, path: Path, options: Options) -> Read:
    """What an adapter reads. What it reads once is with ``kept``, to be released where the frames are done with.

    Raises ``ConfigError`` where it does not take an option, ``InputError`` or ``EnvironmentFailed`` where the source
    cannot be read.
    """
    adapter = ADAPTERS[name]
    adapter.check(options)
    if adapter.streamed is not None and (source := adapter.streamed(path, options)).size > AT_ONCE:
        return streamed.read(spark, kept, source)
    return (broker_log.read if name == BROKER_LOG else whole.read)(spark, kept, adapter, path, options)


@contextmanager
def reading(spark: SparkSession, name: str, path: Path, options: Options) -> Iterator[Read | Ingested]:
    """The same, kept as long as the context lasts; of few bytes on this machine what the driver read itself."""
    paths = [each for each in (path, options.coordinator_log, options.statistics) if each is not None]
    if name != BROKER_LOG and local_delta.is_here(spark, str(path)) and sum(map(_size, paths)) <= HERE:
        yield ADAPTERS[name](path, options)
        return
    kept = KeptRows()
    try:
        yield read(spark, kept, name, path, options)
    finally:
        kept.release()


def _size(path: Path) -> int:
    """The bytes of a file, or of all files of a folder."""
    return size_of([path] if path.is_file() else (file for file in path.rglob("*") if file.is_file()))
