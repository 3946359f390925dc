"""Findings that are not about one delivery: a key in two partitions, keyless messages astray, sticky ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Final

import pyarrow as pa
import pyspark.sql.functions as F
from pyspark.sql import DataFrame

from subreplay.audit.codes import Code, Excuse
from subreplay.audit.findings import Finding, violations_of
from subreplay.audit.judge import Judge
from subreplay.audit.rules.partitions import FIRST_MESSAGES, keyless_strays, keys_in_two_partitions
from subreplay.audit.rules.ranges import sticky_ranges
from subreplay.audit.rules.registry import RULES
from subreplay.engine.spark.audit.passes import key_words
from subreplay.engine.spark.schemas import spark_schema
from subreplay.rows.model.columns import UNKNOWN
from subreplay.rows.model.partitioners import Partitioners
from subreplay.rows.model.rows import Standing
from subreplay.rows.model.tables import VIOLATIONS
from subreplay.rows.model.words import KeyWords

TOGETHER: Final = 10_000  # findings that are put into words at a time


def of_ranges(judge: Judge, subscription: str, since: int = UNKNOWN, others: Iterable[Finding] = ()) -> pa.Table:
    """Findings about sticky ranges, and ``others``, which are about a Kafka group; what happened before ``since`` (ns)
    was told by an earlier night."""
    ranges = (f for d in judge.dispatchers.values() for f in sticky_ranges(d.timeline, judge.dates))
    return Told(subscription, judge.standings).table(f for f in (*ranges, *others) if f.at >= since)


def of_keys(
    messages: DataFrame,
    judge: Judge,
    subscription: str,
    told: DataFrame | None = None,
    partitioners: Partitioners | None = None,
) -> DataFrame:
    """Table ``violations`` of keys in two partitions. Those of earlier nights are not told again: of keys (in words)
    and partitions in ``told``. Messages of earlier days are marked ``before``. ``partitioners`` may explain them."""
    keyed = firsts(messages.where("key IS NOT NULL"), judge.words)
    if told is not None:
        pairs = told.select("key", "partition", F.lit(True).alias("told")).distinct()
        keyed = keyed.join(pairs, ["key", "partition"], "left")
        keyed = keyed.withColumn("known", F.col("known") | F.coalesce("told", F.lit(False)))
    rule = partial(keys_in_two_partitions, partitioners=partitioners, dates=judge.dates)
    return _each(keyed, Told(subscription, judge.standings).by(_of(rule)))


def may_stray(judge: Judge) -> bool:
    """Whether messages without a key may be where their producer does not put them."""
    routing = judge.terms.routing
    return len(judge.dispatchers) > 1 and routing is not None and routing.mode == "SinglePartition"


def astray(messages: DataFrame, judge: Judge, subscription: str) -> DataFrame:
    """Table ``violations`` of these."""
    routing = judge.terms.routing
    assert routing is not None  # or none may
    # where a rejected message is, its producer may have begun
    rejected = any(judge.rejects.of("messages", scope.partition) for scope in judge.dispatchers)
    excuse, dates = Excuse.MESSAGES_REJECTED if rejected else Excuse.NONE, judge.dates

    def strays(mine: pa.Table) -> Iterator[Finding]:
        return (replace(finding, excuse=excuse) for finding in keyless_strays(routing, mine, dates))

    rows = firsts(messages.where("key IS NULL"), judge.words)
    return _each(rows, Told(subscription, judge.standings).by(_of(strays)))


@dataclass(frozen=True)
class Told:
    """Tells findings as rows of table ``violations``."""

    subscription: str
    standings: Mapping[Code, Standing]

    def table(self, findings: Iterable[Finding]) -> pa.Table:
        return violations_of(findings, self.subscription, RULES, self.standings)

    def by(
        self, rule: Callable[[Iterable[pa.RecordBatch]], Iterator[Finding]]
    ) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """What a rule finds in batches."""

        def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            findings = rule(batches)
            while some := [*islice(findings, TOGETHER)]:
                yield from self.table(some).to_batches()

        return rows


def _each(rows: DataFrame, tell: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> DataFrame:
    """``FIRST_MESSAGES`` told of, those of one key together: as many as the topic has partitions."""
    mine = F.collect_list(F.struct(*FIRST_MESSAGES.names)).alias("firsts")
    return rows.groupBy("topic", "whose").agg(mine).select("firsts").mapInArrow(tell, spark_schema(VIOLATIONS))


def _of(rule: Callable[[pa.Table], Iterator[Finding]]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[Finding]]:
    """A rule about ``FIRST_MESSAGES`` of whole keys, applied to batches that have the list of a key in each row."""

    def findings(batches: Iterable[pa.RecordBatch]) -> Iterator[Finding]:
        for batch in batches:
            rows = pa.Table.from_struct_array(batch.column("firsts").flatten())
            yield from rule(rows.cast(FIRST_MESSAGES))

    return findings


def firsts(messages: DataFrame, words: KeyWords) -> DataFrame:
    """``FIRST_MESSAGES`` by key (where null: by producer) and partition, of those in more than one partition."""
    position = F.struct("ledger", "entry", "batch_index")
    whose = F.coalesce("key", F.col("producer").cast("binary"))
    messages = messages.withColumns({"whose": whose, "hash": F.xxhash64("topic", whose)})
    # none is, or few are: all messages are looked at for their partition only
    partitions = messages.groupBy("hash").agg(F.min("partition").alias("least"), F.max("partition").alias("most"))
    spread = partitions.where("least < most").select("hash")
    messages = messages.where("false") if spread.isEmpty() else messages.join(spread, "hash", "left_semi")
    by_partition = messages.groupBy("topic", "whose", "partition").agg(
        F.min(position).alias("first"),
        F.min_by(F.struct("at", "producer", "key"), position).alias("its"),
        F.count("*").alias("messages"),
        F.bool_or("before").alias("known"),
    )
    several = by_partition.groupBy("topic", "whose").count().where("count > 1").select("topic", "whose")
    rows = by_partition.join(several, ["topic", "whose"], "left_semi")
    return rows.select(
        "whose", "topic", "partition", "first.*", F.col("its.at").alias("published"), "its.producer",
        key_words(F.col("its.key"), words).alias("key"), "messages", "known",
    )  # fmt: skip
