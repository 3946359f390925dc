"""The traffic of a run as its profile, made by Spark: in this process where it fits, else where Spark's tasks are.

A task makes profiles of the messages that it reads, a block each. Blocks are a tenth of the messages and come back to
the driver, which then needs no job for a scenario. Of more messages than ``IN_PROCESS`` the blocks are parted by key
and evaluated where they are, by the same function.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame

from subreplay.model.words import KeyWords
from subreplay.spark import collect
from subreplay.spark.schemas import spark_schema
from subreplay.traffic.measuring import COLUMNS, Profiler
from subreplay.traffic.profile import TrafficProfile, joined
from subreplay.traffic.recent_load import LOAD, RecentLoad
from subreplay.traffic.storage import BLOCKS, as_blocks, from_bytes, profiles_of
from subreplay.whatif.assign import TRAFFIC, Assigner, added_up

IN_PROCESS: Final = 16_000_000
"""Messages of which the driver holds the profile: some 100 bytes each while scenarios are evaluated."""
_PART: Final = 8_000_000
"""Messages of a part, about, where they are more."""
_PARTED: Final = pa.schema([pa.field("part", pa.int64(), nullable=False), *BLOCKS])


def blocks(messages: DataFrame, words: KeyWords) -> DataFrame:
    """``BLOCKS`` rows of messages in the ``LOG`` shape."""
    profiler = Profiler(words)

    def made(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return as_blocks(profiler.profiles(batches))

    return messages.select(*COLUMNS).mapInArrow(made, spark_schema(BLOCKS))


@dataclass(frozen=True)
class Profiled:
    """The profile of ``messages`` messages, in ``blocks``."""

    blocks: DataFrame
    messages: int

    @cached_property
    def here(self) -> TrafficProfile | None:
        """All of it; None where it is too large to be held in this process."""
        if self.messages > IN_PROCESS:
            return None
        return joined([from_bytes(bytes(row["block"])) for row in collect.rows(self.blocks.select("block"))])

    def assigned(self, assigner: Assigner) -> list[dict[str, Any]]:
        """``TRAFFIC`` rows."""
        if self.here is not None:
            return list(assigner.rows(self.here))
        parts = -(-self.messages // _PART)

        def parted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for profile in profiles_of(batches):
                for part in range(parts):
                    for block in as_blocks([profile.part(part, parts)]):
                        yield pa.record_batch([pa.array([part]), *block.columns], schema=_PARTED)

        by_part = self.blocks.mapInArrow(parted, spark_schema(_PARTED)).groupBy("part")
        return added_up(collect.rows(by_part.applyInArrow(assigner.rows_of_part, spark_schema(TRAFFIC))))

    def recent(self, load: RecentLoad) -> list[dict[str, Any]]:
        """``LOAD`` rows, not summed."""
        if self.here is not None:
            return load.count(self.here).to_pylist()  # type: ignore[no-any-return]
        return collect.rows(self.blocks.mapInArrow(load.count_blocks, spark_schema(LOAD)))
