"""Profile the traffic of a run: in the driver if it fits, else in the tasks.

Each task profiles the messages that it reads, one block for each part. Blocks have a tenth of the size of the messages.
They are collected by the driver, so a scenario does not need the messages. With more than ``MAX_LOCAL_MESSAGES``
messages, the blocks are partitioned by key and evaluated by the tasks with the same function.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date as Date
from functools import cached_property, partial
from itertools import groupby
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.config.run import RunConfig
from subreplay.engine.interface import Dataset, Engine, NamedBatches
from subreplay.errors import ConfigError, InputError
from subreplay.rows.conditions import field
from subreplay.rows.intake import Profiling
from subreplay.rows.model.columns import DAY
from subreplay.rows.model.key_masking import KeyMasking
from subreplay.rows.model.stored_rows import list_names
from subreplay.rows.scan.log_rows import to_nanos
from subreplay.rows.scan.table_columns import Columns
from subreplay.rows.sorted_blocks import Order
from subreplay.whatif.message_assignment import TRAFFIC, MessageAssigner
from subreplay.whatif.traffic.evaluation_counts import BLANK, COUNTS, WHERE
from subreplay.whatif.traffic.profile_builder import BLOCK, COLUMNS, COLUMNS_OF_TOPIC, ProfileBuilder
from subreplay.whatif.traffic.profile_storage import BLOCKS, VERSION, build_blocks, iterate_profiles
from subreplay.whatif.traffic.recent_load import LOAD, RecentLoad
from subreplay.whatif.traffic.traffic_profile import HottestKey, TrafficProfile, join_profiles

MAX_LOCAL_MESSAGES: Final = 16_000_000
"""The maximum number of messages whose profile the driver holds, with about 100 bytes each while scenarios are
evaluated."""
TABLE: Final = "profile"
_MOST_DAYS: Final = 8  # the maximum in an error message
_PART: Final = 4_000_000
"""The approximate number of messages of a part. Each core evaluates one part at a time."""
_HOT: Final = "hot key"  # the level of rows that are not ``TRAFFIC``
_ASSIGNED: Final = pa.schema([*TRAFFIC, pa.field("word", pa.string()), pa.field("hash", pa.int64())])
_HOT_KEY: Final = BLANK | {"level": _HOT, "scenario": ""}
_SCOPE: Final = ("of", "part")
_BY_PART: Final = Order(
    pa.schema([pa.field("of", pa.string(), nullable=False), pa.field("part", pa.int32(), nullable=False), *BLOCKS]),
    (),
    scope=_SCOPE,
)
_DAYS: Final = pa.schema([("date", pa.date32()), ("messages", pa.int64())])
_KINDS: Final = ["date", "secret", "version"]


def build_profiling(words: KeyMasking, topic: str | None) -> Profiling:
    """Build the profiling step of the input scan, for one ``topic`` or (None) for several."""
    return Profiling(
        partial(build_message_blocks, words, topic), COLUMNS if topic is None else COLUMNS_OF_TOPIC, BLOCK, BLOCKS
    )


def build_message_blocks(
    words: KeyMasking, topic: str | None, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Build ``BLOCKS`` from messages in columns of the log."""
    return build_blocks(ProfileBuilder(words, topic).build_profiles(batches))


def write_profile_table(engine: Engine, config: RunConfig, topic: str, blocks: Dataset) -> list[dict[str, Any]]:
    """Write table ``profile`` of a topic's messages, and return the number of messages of each day.

    It replaces the rows of that topic and day. Raises ``ConfigError`` if the run does not configure the table.
    """
    location = config.traffic.profile
    if location is None:
        raise ConfigError("traffic.profile is not set. Set it to the folder for table profile.")
    where = {"topic": topic} | ({} if config.date is None else {"date": config.date.isoformat()})
    tables = engine.open_tables(location)
    new = tables.begin_write(TABLE, BLOCKS, where)
    blocks.split(_pass_through, {"": new})
    tables.commit(new)
    stored = tables.find(TABLE)
    assert stored is not None  # it has just been written
    return _count_by_day(_select_run(stored, config, topic))


def _pass_through(batches: Iterable[pa.RecordBatch]) -> NamedBatches:
    return (("", batch) for batch in batches)


def read_profile_table(
    engine: Engine, config: RunConfig, topic: str, messages: Dataset, count: int
) -> ProfiledTraffic | None:
    """Read table ``profile`` for a run's ``count`` valid ``messages``; None if the run names no such table, or it does
    not exist.

    Raises ``InputError`` or ``ConfigError`` if it does not contain these messages, or was written with another secret.
    """
    location = config.traffic.profile
    table = None if location is None else engine.open_tables(location).find(TABLE)
    if table is None:
        return None
    found = _select_run(table, config, topic)
    days = _count_by_day(found)
    again = "Run subreplay profile again, or remove traffic.profile."
    if not days and count:
        of = "" if config.date is None else f" on {config.date}"
        raise InputError(f"{location}/{TABLE} has no message of {topic}{of}. {again}")
    if {row["secret"] for row in days} - {config.keys.words.check}:
        raise ConfigError(
            f"{location}/{TABLE} was written with another keys.secret. Use that secret. Otherwise: {again}"
        )
    if other := {row["version"] for row in days} - {VERSION}:
        raise InputError(
            f"{location}/{TABLE} has version {min(other)}, but this release reads version {VERSION}. {again}"
        )
    if sum(row["messages"] for row in days) != count:
        there = {row["date"]: row["messages"] for row in days}
        counted = (
            messages.map(_count_batches_by_day, _DAYS).to_table().group_by("date").aggregate([("messages", "sum")])
        )
        now = {row["date"]: row["messages_sum"] for row in counted.to_pylist()}
        differ = sorted(str(date) for date in {*there, *now} if there.get(date) != now.get(date))
        raise InputError(
            f"{location}/{TABLE} has {sum(there.values()):,} messages of {topic}, but the input has "
            f"{count:,}. The counts differ on {', '.join(differ[:_MOST_DAYS])}. {again}"
        )
    return ProfiledTraffic(engine, found.select(BLOCKS.names), count)


def read_kept_profile(engine: Engine, config: RunConfig) -> tuple[str, ProfiledTraffic]:
    """Read table ``profile`` of the folder that the run names, without its messages; also return the topic.

    Raises ``InputError`` if there is none, if it has several topics and the run names none, or if another release wrote
    it.
    """
    location = config.traffic.profile
    table = None if location is None else engine.open_tables(location).find(TABLE)
    if table is None:
        raise InputError(f"{location}: there is no table {TABLE}. Write it with `subreplay profile`.")
    topics = sorted(set(table.select(["topic"]).to_table()["topic"].to_pylist()))
    topic = config.subscription.topic or (topics[0] if len(topics) == 1 else "")
    if topic not in topics:
        raise InputError(
            f"{location}/{TABLE} has {list_names('topic', topics)}; set subscription.topic to one of them."
        )
    found = _select_run(table, config, topic)
    days = _count_by_day(found)
    if other := {row["version"] for row in days} - {VERSION}:
        raise InputError(
            f"{location}/{TABLE} has version {min(other)}, but this release reads version {VERSION}. "
            "Run subreplay profile again."
        )
    return topic, ProfiledTraffic(engine, found.select(BLOCKS.names), sum(row["messages"] for row in days))


def _select_run(table: Dataset, config: RunConfig, topic: str) -> Dataset:
    rows = table.where(field("topic") == topic)
    return rows if config.date is None else rows.where(field("date") == config.date)


def _count_by_day(rows: Dataset) -> list[dict[str, Any]]:
    counts = rows.select([*_KINDS, "messages"]).to_table().group_by(_KINDS).aggregate([("messages", "sum")])
    found = counts.rename_columns([*_KINDS, "messages"]).to_pylist()
    return sorted(found, key=lambda row: (row["date"] or Date.min, row["secret"], row["version"]))


def _count_batches_by_day(messages: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in messages:
        days = pc.divide(to_nanos(Columns("messages", batch), "publish_time"), DAY).cast(pa.int32()).cast(pa.date32())
        counts = pc.value_counts(days)
        yield pa.RecordBatch.from_arrays([counts.field("values"), counts.field("counts")], schema=_DAYS)


class AssignedTraffic(NamedTuple):
    """Rows of ``TRAFFIC``, and the keys with the most messages, in descending order."""

    rows: list[dict[str, Any]]
    hottest: list[HottestKey]


@dataclass(frozen=True)
class ProfiledTraffic:
    """The profile of ``messages`` messages, in ``blocks``."""

    engine: Engine
    blocks: Dataset
    messages: int

    @cached_property
    def local_profile(self) -> TrafficProfile | None:
        """The whole profile; None if it is too large for this process."""
        if self.messages > MAX_LOCAL_MESSAGES:
            return None
        return join_profiles(list(iterate_profiles(self.blocks.to_table().to_batches())))

    def assign(self, assigner: MessageAssigner, limit: int) -> AssignedTraffic:
        """Assign the traffic with an assigner, and find its ``limit`` hottest keys."""
        if self.local_profile is not None:
            return AssignedTraffic(
                list(assigner.assign_rows(self.local_profile)), self.local_profile.find_hottest(limit)
            )
        if any(plan.retention is not None for plan in assigner.plans):
            raise InputError(
                f"retention: the traffic has {self.messages:,} messages, more than the maximum of "
                "{MAX_LOCAL_MESSAGES:,}. Run it for one date."
            )
        parted = self.blocks.map(partial(_split_by_key, -(-self.messages // _PART)), _BY_PART.schema)
        counts = self.engine.sort([parted], _BY_PART).map(partial(_assign_parts, assigner, limit), _ASSIGNED).to_table()
        by = [*WHERE, "word", "hash"]
        sums = counts.group_by(by, use_threads=False).aggregate([(name, "sum") for name in COUNTS])
        rows = sums.select([*by, *(f"{name}_sum" for name in COUNTS)]).rename_columns([*by, *COUNTS]).to_pylist()
        hot = [HottestKey(row["word"], row["hash"], row["messages"]) for row in rows if row["level"] == _HOT]
        traffic = [{name: row[name] for name in TRAFFIC.names} for row in rows if row["level"] != _HOT]
        traffic.sort(key=lambda row: [(row[name] is not None, row[name]) for name in WHERE])
        return AssignedTraffic(traffic, sorted(hot, key=lambda key: (-key.messages, key.word))[:limit])

    def measure_recent_load(self, load: RecentLoad) -> list[dict[str, Any]]:
        """Measure the load as ``LOAD`` rows, which are not summed."""
        if self.local_profile is not None:
            return load.count_profile(self.local_profile).to_pylist()  # type: ignore[no-any-return]
        rows: list[dict[str, Any]] = self.blocks.map(load.count_blocks, LOAD).to_table().to_pylist()
        return rows


def _split_by_key(parts: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Split blocks into the parts of their keys."""
    for profile in iterate_profiles(batches):
        for part, mine in enumerate(profile.split_by_key(parts)):
            for block in build_blocks([mine]):
                scope = [pa.array([""]), pa.array([part], pa.int32())]
                yield pa.RecordBatch.from_arrays([*scope, *block.columns], schema=_BY_PART.schema)


def _assign_parts(assigner: MessageAssigner, limit: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Assign the traffic of each part, one part after the other."""
    for _, blocks in groupby(batches, key=lambda batch: batch["part"][0].as_py()):
        profile = join_profiles(list(iterate_profiles(blocks)))
        hot = [_HOT_KEY | key._asdict() for key in profile.find_hottest(limit)]
        yield from pa.Table.from_pylist([*assigner.assign_rows(profile), *hot], _ASSIGNED).to_batches()
