"""The audit on Spark: two streaming passes over each topic partition, then windows and counts of what they found."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import chain
from uuid import uuid4

import pyarrow as pa
import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql.types import StructType

from subreplay.audit.codes import LEGAL, Code, Excuse, mask
from subreplay.audit.explain.findings import Explainer
from subreplay.audit.judge import Judge
from subreplay.audit.passes.loads import ACT, ADDED, ALL_TIME, OF
from subreplay.audit.sums import NOT_OF_DELIVERIES, TOTALS
from subreplay.engine.spark import collect
from subreplay.engine.spark.arrow_functions import of_arrays
from subreplay.engine.spark.partitioning import by_turn, dealt
from subreplay.engine.spark.read.direct import Batches, Reading
from subreplay.engine.spark.read.log import Log
from subreplay.engine.spark.schemas import spark_schema
from subreplay.engine.spark.session import partitions, scratch
from subreplay.rows.block_files import leave, sizes, waiting
from subreplay.rows.model.columns import DAY
from subreplay.rows.model.tables import JUDGED, LOAD, VIOLATIONS
from subreplay.rows.model.words import KeyWords
from subreplay.rows.sorted_blocks import (
    BLOCKS,
    BY_POSITION,
    BY_TIME,
    WAITING_BLOCK,
    ShuffleBlock,
    external_merge,
    packed,
    shuffle_blocks,
    sorted_on_disk,
    unpacked,
)
from subreplay.whatif.balance import Connected


def judged(log: Log, judge: Judge) -> DataFrame:
    """The ``LOG`` of one topic and subscription, judged: a hot partition costs time, not memory.

    Topic partitions are dealt out in turn, which balances better than a hash of few values. Few rows are judged by the
    driver.
    """
    spark = log.messages.sparkSession
    if log.here:
        return collect.of_rows(spark, judged_here(log, judge), JUDGED)
    if log.waits:
        return of_files(log, judge, iter, spark_schema(JUDGED))
    blocks = dealt(reduce(DataFrame.unionAll, map(_blocks, log.cheapest)), partitions(spark), "partition")
    # by all columns: what is judged together, and so added up, is the same in every run
    return blocks.sortWithinPartitions(*BLOCKS.names).mapInArrow(
        lambda batches: _both_passes(judge, unpacked(batches)), spark_schema(JUDGED)
    )


def judged_here(log: Log, judge: Judge) -> pa.Table:
    """The same of few rows, which the driver has, as ``JUDGED``."""
    rows = (shuffle_blocks(rows_here(part), BY_POSITION) for part in log.cheapest)
    ordered = sorted(chain.from_iterable(rows), key=lambda block: (block.scope, block.first_key))
    return pa.Table.from_batches(_both_passes(judge, ordered), JUDGED)


def of_files(log: Log, judge: Judge, of_task: Callable[[Batches], Batches], schema: StructType | str) -> DataFrame:
    """What ``of_task`` makes of the judged rows of a task, of a log that waits in files: tasks take topic partitions
    from them, the largest first."""
    spark, paths = log.messages.sparkSession, [path for reading in log.direct for path in reading.paths]
    for number, part in enumerate(log.beside):
        paths += _left(part, f"{log.direct[0].folder}/more-{number}")
    of_each = sizes(paths)
    hands = by_turn(sorted(of_each), partitions(spark), operator.itemgetter(1))
    hands.sort(key=lambda hand: -sum(of_each[scope] for scope in hand))

    def both_passes(batches: Iterable[pa.RecordBatch]) -> Batches:
        numbers = chain.from_iterable(batch.column(0).to_pylist() for batch in batches)
        return of_task(chain.from_iterable(_both_passes(judge, waiting(paths, hands[number])) for number in numbers))

    tasks = max(1, len(hands))
    return spark.range(0, tasks, 1, tasks).mapInArrow(both_passes, schema)


def _left(part: DataFrame, path: str) -> list[str]:
    """The files in which Spark's tasks left the blocks of a part of a log."""

    def left(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        mine = f"{path}-{uuid4()}"  # a task may be run twice
        leave(shuffle_blocks(batches, BY_POSITION), mine)
        yield pa.RecordBatch.from_pydict({"path": [mine]})

    return [row["path"] for row in collect.rows(part.mapInArrow(left, "path string"))]


def rows_here(part: DataFrame | Reading) -> Iterable[pa.RecordBatch]:
    """The rows of a part of a log that the driver has."""
    if isinstance(part, Reading):
        return part.log_rows()
    batches: list[pa.RecordBatch] = collect.rows_of(part).to_batches()
    return batches


def _blocks(part: DataFrame | Reading) -> DataFrame:
    def blocks(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return packed(shuffle_blocks(rows, BY_POSITION))

    return part.of_log(blocks, BLOCKS) if isinstance(part, Reading) else part.mapInArrow(blocks, spark_schema(BLOCKS))


def _both_passes(judge: Judge, log: Iterable[ShuffleBlock]) -> Iterator[pa.RecordBatch]:
    """By position and then by time; in between the facts of a topic partition wait where Spark keeps its own files."""
    facts = shuffle_blocks(judge.by_position(external_merge(log, BY_POSITION)), BY_TIME, WAITING_BLOCK)
    yield from judge.by_time(external_merge(sorted_on_disk(facts, scratch()), BY_TIME))


def published(rows: DataFrame, subscription: str, judge: Judge) -> DataFrame:
    """Judged rows as table ``audited``: without hashes of keys, times also as timestamps."""
    at = F.when(F.col("delivered"), F.col("at")).otherwise(F.col("published"))
    return rows.drop("key_id", "hash").withColumns(
        {
            "slot": F.col("slot") if judge.words.shows_slots(judge.policy.space) else F.lit(-1).cast("long"),
            "subscription": F.lit(subscription),
            "delivered_at": F.when(F.col("delivered"), timestamp(F.col("at"))),
            "published_at": F.when(F.col("published") > 0, timestamp(F.col("published"))),
            "date": day_of(at),
        }
    )


def deliveries(rows: DataFrame) -> DataFrame:
    """Judged rows without those that hold state or sums."""
    return rows.where("checkpoint IS NULL AND load IS NULL").drop("checkpoint", "load")


def sums(rows: DataFrame) -> DataFrame:
    """The ``LOAD`` rows among judged ones."""
    return rows.where("load IS NOT NULL").select("load.*")


def added_up(sums: DataFrame) -> DataFrame:
    """``LOAD`` rows, those of one pane and consumer added up: many batches have some of them."""
    how = {name: F.sum for name in LOAD.names if name not in OF} | {"begin": F.min, "end": F.max}
    return sums.groupBy(*OF).agg(*[how[name](name).alias(name) for name in how])


def key_words(key: Column, words: KeyWords) -> Column:
    """A column of keys as they may leave the system. For few rows only: each goes to Python and back."""

    def in_words(keys: pa.Array) -> pa.Array:
        return words.words(keys)

    return of_arrays(in_words, "string")(key)


def violations(rows: DataFrame, explainer: Explainer) -> DataFrame:
    """The findings of judged rows, in words."""
    worth = rows.where(_failing(explainer.judge).bitwiseOR(F.col("shown")) != 0)
    needed = [name for name in JUDGED.names if name in rows.columns]
    return worth.select(*needed).mapInArrow(explainer.violations, spark_schema(VIOLATIONS))


def _failing(judge: Judge) -> Column:
    """The bits of findings that fail: promised by the policy, and not legal by an excuse."""
    excused = [
        F.when(F.col("excuses").bitwiseAND(excuse.bit) != 0, mask(excuse.codes)).otherwise(0)
        for excuse in LEGAL
        if mask(excuse.codes) & judge.promised
    ]
    failing = F.col("codes").bitwiseAND(judge.promised)
    return failing.bitwiseAND(F.bitwise_not(reduce(Column.bitwiseOR, excused, F.lit(0).cast("long"))))


def timestamp(at: Column) -> Column:
    """A time in ns as a timestamp."""
    return F.timestamp_micros(F.call_function("div", at, F.lit(1_000)))


def day_of(at: Column) -> Column:
    """The UTC day of a time in ns."""
    return F.date_from_unix_date(F.call_function("div", at, F.lit(DAY)).cast("int"))


def window_start(at: Column, width: int) -> Column:
    """The start of the tumbling window of ``width`` ns that holds a time in ns."""
    return at - F.pmod(at, F.lit(width))


def load(sums: DataFrame) -> DataFrame:
    """What each consumer was given in all: messages, bytes, keys of each topic partition, redeliveries; ``sums`` are
    ``LOAD`` rows."""
    mine = sums.where((F.col("width") == ALL_TIME.width) & F.col("consumer").isNotNull())
    added = [F.sum(name).alias(name) for name in (*ADDED, "keys")]
    return mine.groupBy("consumer").agg(*added).orderBy("consumer")


def lags(sums: DataFrame) -> DataFrame:
    """The lags of each consumer, counted by size (``audit.clocks.may_be_off``); ``sums`` are ``LOAD`` rows."""
    mine = sums.where(F.col("lag") != ACT).groupBy("consumer", "lag", "size")
    return mine.agg(F.sum("messages").alias("messages")).orderBy("consumer", "lag", "size")


def fits(sums: DataFrame) -> DataFrame:
    """How many deliveries are at their owners under each selector that was compared; ``sums`` are ``LOAD`` rows."""
    added = [F.sum(name).alias(name) for name in ("outside", "at_owner")]
    return sums.where("selector IS NOT NULL").groupBy("selector").agg(*added).orderBy("selector")


def acts(sums: DataFrame) -> DataFrame:
    """What acts of operators and clients had redelivered (``audit.passes.loads.ACT``), in order of time."""
    names = ("pane", "consumer", "messages", "redelivered", "begin", "end")
    return sums.where(F.col("lag") == ACT).select(*names).orderBy("pane", "consumer")


def has(code: Code) -> Column:
    """Whether a judged row has a finding of that code."""
    return F.col("codes").bitwiseAND(code.bit) != 0


def finding_counts(rows: DataFrame, judge: Judge, width: int) -> DataFrame:
    """Findings counted by window, code, excuse and consumer: all of them, whether they fail or not."""
    # as one SQL text, because each column function that Python calls costs a round trip to Java
    each = (
        f"CASE WHEN codes & {code.bit}L != 0 THEN named_struct('code', '{code.name}', 'excuse', {_excuse(code)}) END"
        for code in Code
        if judge.applicable & code.bit
    )
    # the type is named because there may be no rule that applies
    found = F.expr(f"array_compact(CAST(array({', '.join(each)}) AS ARRAY<STRUCT<code: STRING, excuse: INT>>))")
    at = F.when(F.col("delivered"), F.col("at")).otherwise(F.col("published"))
    return (
        rows.where("codes != 0")
        .select(window_start(at, width).alias("window"), "consumer", F.explode(found).alias("f"))
        .groupBy("window", "consumer", "f.code", "f.excuse")
        .count()
        .orderBy("window", "code", "excuse", "consumer")
    )


def counts_of_others(found: DataFrame, width: int) -> DataFrame:
    """Findings of table ``violations`` that are not about one delivery, counted as ``finding_counts`` counts."""
    # of a message without a key: it is about its producer, and names no consumer
    stray = (F.col("code") == Code.ROUTING_MISMATCH.name) & F.col("consumer").isNull() & F.col("at").isNotNull()
    mine = found.where(F.col("code").isin([code.name for code in NOT_OF_DELIVERIES]) | stray)
    window = window_start(F.unix_micros("moment") * 1_000, width).alias("window")
    excuses = [F.when(F.col("excuse") == e.sentence, e.value) for e in Excuse if e]
    excuse = F.coalesce(*excuses, F.lit(Excuse.NONE.value)).alias("excuse")
    return mine.groupBy(window, "consumer", "code", excuse).count()


def _excuse(code: Code) -> str:
    """``codes.excuse_of`` as SQL."""
    cases = " ".join(f"WHEN excuses & {e.bit}L != 0 THEN {e.value}" for e in Excuse if code in e.codes)
    return f"CASE {cases} ELSE {Excuse.NONE.value} END" if cases else f"{Excuse.NONE.value}"


def coarser(counts: DataFrame, width: int) -> DataFrame:
    """Finding counts summed into windows of ``width`` ns."""
    keys = [window_start(F.col("window"), width).alias("window"), *map(F.col, ("code", "excuse", "consumer"))]
    return counts.groupBy(*keys).agg(F.sum("count").alias("count")).orderBy("window", "code", "excuse", "consumer")


def assignments(loads: DataFrame, spark: SparkSession, intervals: Sequence[Connected], width: int) -> DataFrame:
    """Loads by window with share and skew: 1 is perfect balance among the most consumers connected at once in that
    window."""
    schema = "start long, end long, connected int"
    spans = F.broadcast(spark.createDataFrame([tuple(i) for i in intervals], schema))
    overlap = (F.col("window") < F.col("end")) & (F.col("start") < F.col("window") + width)
    windows = (
        loads.select("window")
        .distinct()
        .join(spans, overlap)
        .groupBy("window")
        .agg(F.max("connected").alias("connected"))
    )
    share = F.col("messages") / F.sum("messages").over(Window.partitionBy("window"))
    return (
        loads.join(windows, "window", "left")
        .withColumn("share", share)
        .withColumn("skew", F.col("share") * F.coalesce("connected", F.lit(1)))
    )


def totals(sums: DataFrame) -> dict[str, int]:
    """The headline figures of an audit; ``sums`` are ``LOAD`` rows."""
    mine = sums.where(F.col("width") == ALL_TIME.width)
    row = mine.agg(
        *[F.sum(column).alias(name) for name, column in TOTALS.items()],
        F.min("begin").alias("first"),
        F.max("end").alias("last"),
    ).first()
    assert row is not None  # an aggregate without groups always has one row
    return {name: value if value is not None else 0 for name, value in row.asDict().items()}


def scattered_keys(rows: DataFrame) -> tuple[int, int]:
    """Keys that reached several consumers within one epoch, and keys in all: what mixed batches do to a steady
    group."""
    per_key = (
        rows.where("delivered and key is not null")
        .groupBy("key", "epoch")
        .agg(F.countDistinct("consumer").alias("consumers"))
        .groupBy("key")
        .agg(F.max("consumers").alias("consumers"))
    )
    row = per_key.agg(F.count_if(F.col("consumers") > 1).alias("scattered"), F.count("*").alias("keys")).first()
    assert row is not None
    return int(row.scattered), int(row["keys"])
