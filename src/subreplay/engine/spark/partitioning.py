"""Rows dealt out to tasks in turn, by a number such as that of their topic partition.

Spark deals by a hash, of which few values fall unevenly, or, from 4.1 on, by the number itself (``repartitionById``).
Here each number is given a key whose hash is known, so that one way does for all versions.
"""

from __future__ import annotations

import struct
from functools import cache

import mmh3
import pyspark.sql.functions as F
from pyspark.sql import DataFrame

MOST: int = 1_024
"""Into so many tasks rows are dealt at most; of more tasks the others get none."""
_SEED = 42  # of Spark's hash


def dealt(rows: DataFrame, tasks: int, column: str) -> DataFrame:
    """The rows in ``tasks`` partitions: those of one number together, and numbers in turn."""
    keys = dealing_keys(tasks)
    turn = F.pmod(F.col(column), F.lit(len(keys))).cast("int")
    return rows.repartition(tasks, F.get(F.array(*map(F.lit, keys)), turn))


@cache
def dealing_keys(tasks: int) -> tuple[int, ...]:
    """Integers whose hashes fall into different ones of so many tasks.

    A row goes to ``pmod(hash(key), tasks)`` (Spark's ``HashPartitioning``, of Murmur3 with seed 42).
    """
    found: dict[int, int] = {}
    key = 0
    while len(found) < min(tasks, MOST):
        found.setdefault(mmh3.hash(struct.pack("<i", key), _SEED) % tasks, key)
        key += 1
    return tuple(found.values())
