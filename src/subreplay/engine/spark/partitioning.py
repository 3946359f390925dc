"""Distribute rows to tasks round robin, by a number such as that of their topic partition.

Spark distributes by a hash, which spreads few values unevenly. Since 4.1 it can also distribute by the number itself
(``repartitionById``). Here each number is mapped to a key with a known hash, which works in every version.
"""

from __future__ import annotations

import struct
from functools import cache

import mmh3
import pyspark.sql.functions as F
from pyspark.sql import DataFrame

MAX_TASKS: int = 1_024
"""The maximum number of tasks that get rows."""
_SEED = 42  # the seed of Spark's hash


def distribute_round_robin(rows: DataFrame, tasks: int, column: str) -> DataFrame:
    """Repartition the rows into ``tasks`` partitions: rows with the same number together, numbers round robin."""
    keys = find_distribution_keys(tasks)
    turn = F.pmod(F.col(column), F.lit(len(keys))).cast("int")
    return rows.repartition(tasks, F.get(F.array(*map(F.lit, keys)), turn))


@cache
def find_distribution_keys(tasks: int) -> tuple[int, ...]:
    """Find integers whose hashes map to different tasks.

    A row goes to ``pmod(hash(key), tasks)`` (Spark's ``HashPartitioning``, of Murmur3 with seed 42).
    """
    found: dict[int, int] = {}
    key = 0
    while len(found) < min(tasks, MAX_TASKS):
        found.setdefault(mmh3.hash(struct.pack("<i", key), _SEED) % tasks, key)
        key += 1
    return tuple(found.values())
