"""Every adapter of files as ``(spark, path, options) -> frames``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from subreplay.adapters import ADAPTERS
from subreplay.adapters.base import Adapter, Options
from subreplay.spark.adapters import broker_log, whole
from subreplay.spark.adapters.frames import Read
from subreplay.spark.kept import KeptRows

Reader = Callable[[SparkSession, KeptRows, Adapter, Path, Options], Read]
STREAMED: Final[Mapping[str, Reader]] = {"pulsar-broker-log": broker_log.read}
"""The adapters whose files are read one by one."""


def read(spark: SparkSession, kept: KeptRows, name: str, path: Path, options: Options) -> Read:
    """What an adapter reads. What it reads once is with ``kept``, to be released where the frames are done with.

    Raises ``ConfigError`` where it does not take an option, ``InputError`` or ``EnvironmentFailed`` where the source
    cannot be read.
    """
    adapter = ADAPTERS[name]
    adapter.check(options)
    return STREAMED.get(name, whole.read)(spark, kept, adapter, path, options)


@contextmanager
def reading(spark: SparkSession, name: str, path: Path, options: Options) -> Iterator[Read]:
    """The same, kept as long as the context lasts."""
    kept = KeptRows()
    try:
        yield read(spark, kept, name, path, options)
    finally:
        kept.release()
