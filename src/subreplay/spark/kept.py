"""Rows that a session keeps, so that what made them runs once."""

from __future__ import annotations

from contextlib import suppress

from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.utils import is_remote


class KeptRows:
    """The frames that a session keeps where it may; where the platform refuses, they are computed each time they are
    looked at."""

    def __init__(self) -> None:
        self._persisted: list[DataFrame] = []

    def keep(self, rows: DataFrame, level: StorageLevel = StorageLevel.MEMORY_AND_DISK_DESER) -> DataFrame:
        """The same rows, computed once."""
        with suppress(PySparkException):  # serverless compute keeps nothing
            # Connect makes a new plan of every question, in which nobody knows persisted rows again; those of a
            # checkpoint are known by its name, and freed with its frame
            if is_remote():
                return rows.localCheckpoint(eager=False)
            self._persisted.append(rows.persist(level))
        return rows

    def release(self) -> None:
        """Free what is kept; the frames can be looked at all the same."""
        while self._persisted:
            self._persisted.pop().unpersist()
