"""The traffic of a run as its profile, made by Spark: in this process where it fits, else where Spark's tasks are.

A task makes profiles of the messages that it reads, a block each. Blocks are a tenth of the messages and come back to
the driver, or wait for it in files, so it needs no job for a scenario. Of more messages than ``IN_PROCESS`` the blocks
are parted by key and evaluated where they are, by the same function.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyspark.sql.functions as F
from pyspark.sql import DataFrame, SparkSession

from subreplay.config.run import RunConfig
from subreplay.engine.spark import collect, lake
from subreplay.engine.spark.arrow_files import frame_of, opened
from subreplay.engine.spark.collect import Rows, mapped
from subreplay.engine.spark.schemas import spark_schema
from subreplay.errors import ConfigError, InputError
from subreplay.rows.model.columns import DAY
from subreplay.rows.model.words import KeyWords
from subreplay.whatif.assign import TRAFFIC, Assigner
from subreplay.whatif.traffic.evaluation import BLANK, COUNTS, WHERE
from subreplay.whatif.traffic.measuring import COLUMNS, OF_TOPIC, PLAIN, Profiler
from subreplay.whatif.traffic.profile import HotKey, TrafficProfile, joined
from subreplay.whatif.traffic.recent_load import LOAD, RecentLoad
from subreplay.whatif.traffic.storage import BLOCKS, VERSION, as_blocks, profiles_of

IN_PROCESS: Final = 16_000_000
"""Messages of which the driver holds the profile: some 100 bytes each while scenarios are evaluated."""
TABLE: Final = "profile"
_TOLD: Final = 8  # days that an error names
_PART: Final = 4_000_000
"""Messages of a part, about, where they are more: each core evaluates one at a time."""
_HOT: Final = "hot key"  # the level of a row that is none of ``TRAFFIC``
_ASSIGNED: Final = pa.schema([*TRAFFIC, pa.field("word", pa.string()), pa.field("hash", pa.int64())])
_HOT_KEY: Final = BLANK | {"level": _HOT, "scenario": ""}
_PARTED: Final = pa.schema([pa.field("part", pa.int64(), nullable=False), *BLOCKS])


def blocks(
    messages: DataFrame, words: KeyWords, topic: str | None, *, plain: bool = False, here: bool = False
) -> DataFrame:
    """``BLOCKS`` rows of messages in the ``LOG`` shape, of one topic or (None) of several; ``plain``: ``PLAIN`` columns
    tell all of them; ``here``, of few, the driver makes them."""
    return mapped(messages.select(*columns(plain, topic)), partial(made, words, topic), BLOCKS, here=here)


def columns(plain: bool, topic: str | None) -> tuple[str, ...]:
    """The columns of messages in the ``LOG`` shape that a profile needs: each costs as much as a scan of it."""
    return COLUMNS if topic is None else PLAIN if plain else OF_TOPIC


def made(words: KeyWords, topic: str | None, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """``BLOCKS`` of such rows."""
    return as_blocks(Profiler(words, topic).profiles(batches))


def left(spark: SparkSession, paths: Sequence[str], messages: int) -> DataFrame | pa.Table:
    """``BLOCKS`` rows that tasks left in files, of so many messages: a table where the driver holds their profile."""
    if messages > IN_PROCESS:
        return frame_of(spark, paths, BLOCKS)
    return pa.concat_tables(opened(path).read_all() for path in paths)


def write(spark: SparkSession, config: RunConfig, topic: str, messages: DataFrame) -> Rows:
    """Write table ``profile`` of a topic's messages, in place of what it had of that topic and day; returns how many
    messages it now has of each day. Raises ``ConfigError`` where the run does not say where it is."""
    location = config.traffic.profile
    if location is None:
        raise ConfigError("traffic.profile is not set: it is the folder to write table profile to")
    where = {"topic": topic} | ({} if config.date is None else {"date": config.date.isoformat()})
    lake.replace(blocks(messages, config.keys.words, topic), location, TABLE, "delta", **where)
    return _by_day(_stored(spark, config, topic))


def stored(spark: SparkSession, config: RunConfig, topic: str, messages: DataFrame, count: int) -> Profiled | None:
    """What table ``profile`` has of a run's ``count`` messages; None where the run names no such table, or nobody has
    written it.

    Raises ``InputError`` or ``ConfigError`` where it has not these messages, or cannot be read with this run's secret.
    """
    location = config.traffic.profile
    if location is None or lake.find(spark, location, TABLE) is None:
        return None
    found = _stored(spark, config, topic)
    days = _by_day(found)
    again = "run subreplay profile of them, or leave traffic.profile out"
    if not days and count:
        of = "" if config.date is None else f" on {config.date}"
        raise InputError(f"{location}/{TABLE} has no message of {topic}{of}; {again}")
    if {row["secret"] for row in days} - {config.keys.words.check}:
        raise ConfigError(f"{location}/{TABLE} was written under another keys.secret; use that one, or {again}")
    if other := {row["version"] for row in days} - {VERSION}:
        raise InputError(f"{location}/{TABLE} is of version {min(other)}, this release reads {VERSION}; {again}")
    if sum(row["messages"] for row in days) != count:
        there = {row["date"]: row["messages"] for row in days}
        day = F.date_from_unix_date((F.floor(F.col("at") / F.lit(DAY))).cast("int")).alias("date")
        counted = collect.rows(messages.groupBy(day).agg(F.count("*").alias("messages")))
        now = {row["date"]: row["messages"] for row in counted}
        differ = sorted(str(date) for date in {*there, *now} if there.get(date) != now.get(date))
        raise InputError(
            f"{location}/{TABLE} has {sum(there.values()):,} messages of {topic}, and there are {count:,}: "
            f"they differ on {', '.join(differ[:_TOLD])}; {again}"
        )
    return Profiled(found, count)


def _stored(spark: SparkSession, config: RunConfig, topic: str) -> DataFrame:
    rows = lake.read(spark, str(config.traffic.profile), TABLE, "delta").where(F.col("topic") == topic)
    return rows if config.date is None else rows.where(F.col("date") == F.lit(config.date))


def _by_day(rows: DataFrame) -> Rows:
    return collect.rows(
        rows.groupBy("date", "secret", "version").agg(F.sum("messages").alias("messages")).orderBy("date")
    )


class Assigned(NamedTuple):
    """``TRAFFIC`` rows, and the keys that have the most messages, the most first."""

    rows: list[dict[str, Any]]
    hottest: list[HotKey]


@dataclass(frozen=True)
class Profiled:
    """The profile of ``messages`` messages, in ``blocks``; of few, which the driver has, as a table."""

    blocks: DataFrame | pa.Table
    messages: int

    @cached_property
    def here(self) -> TrafficProfile | None:
        """All of it; None where it is too large to be held in this process."""
        if self.messages > IN_PROCESS:
            return None
        mine = self.blocks.select(["block"])
        rows = mine if isinstance(mine, pa.Table) else collect.rows_of(mine)
        return joined(list(profiles_of(rows.to_batches())))

    def assigned(self, assigner: Assigner, few: int) -> Assigned:
        """What an assigner makes of it, and its ``few`` hottest keys."""
        if self.here is not None:
            return Assigned(list(assigner.rows(self.here)), self.here.hottest(few))
        if any(plan.retention is not None for plan in assigner.plans):
            raise InputError(
                f"retention is answered of up to {IN_PROCESS:,} messages, and there are {self.messages:,}; "
                "ask it of a date"
            )
        parts = -(-self.messages // _PART)

        def parted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for profile in profiles_of(batches):
                for part, mine in enumerate(profile.parts(parts)):
                    for block in as_blocks([mine]):
                        yield pa.record_batch([pa.array([part]), *block.columns], schema=_PARTED)

        def assigned(blocks: pa.Table) -> pa.Table:  # all there is of the keys of a part
            profile = joined(list(profiles_of(blocks.to_batches())))
            hot = [_HOT_KEY | key._asdict() for key in profile.hottest(few)]
            return pa.Table.from_pylist([*assigner.rows(profile), *hot], _ASSIGNED)

        by_part = self.blocks.select(*BLOCKS.names).mapInArrow(parted, spark_schema(_PARTED)).groupBy("part")
        counts = by_part.applyInArrow(assigned, spark_schema(_ASSIGNED)).groupBy(*WHERE, "word", "hash")
        rows = collect.rows(counts.agg(*[F.sum(name).alias(name) for name in COUNTS]))  # of all parts
        hot = [HotKey(row["word"], row["hash"], row["messages"]) for row in rows if row["level"] == _HOT]
        traffic = [{name: row[name] for name in TRAFFIC.names} for row in rows if row["level"] != _HOT]
        traffic.sort(key=lambda row: [(row[name] is not None, row[name]) for name in WHERE])
        return Assigned(traffic, sorted(hot, key=lambda key: (-key.messages, key.word))[:few])

    def recent(self, load: RecentLoad) -> list[dict[str, Any]]:
        """``LOAD`` rows, not summed."""
        if self.here is not None:
            return load.count(self.here).to_pylist()  # type: ignore[no-any-return]
        return collect.rows(self.blocks.select(*BLOCKS.names).mapInArrow(load.count_blocks, spark_schema(LOAD)))
