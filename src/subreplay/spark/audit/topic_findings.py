"""Findings that are not about one delivery: a key in two partitions, keyless messages astray, sticky ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
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
from subreplay.model.columns import UNKNOWN
from subreplay.model.rows import Standing
from subreplay.model.tables import VIOLATIONS
from subreplay.model.words import KeyWords
from subreplay.spark import lake
from subreplay.spark.audit.passes import key_words
from subreplay.spark.schemas import spark_schema

TOGETHER: Final = 10_000  # findings that are put into words at a time


def found(
    messages: DataFrame,
    judge: Judge,
    subscription: str,
    told: DataFrame | None = None,
    since: int = UNKNOWN,
    others: Iterable[Finding] = (),
    *,
    scattered: bool = True,
) -> DataFrame:
    """Table ``violations`` of these findings. Those of earlier nights are not told again: of keys (in words) and
    partitions in ``told``, and of what happened before ``since`` (ns). Messages of earlier days are marked
    ``before``. ``others`` are findings about a Kafka group. ``scattered``: a key may be in several partitions."""
    tell = Told(subscription, judge.standings)
    ranges = (f for d in judge.dispatchers.values() for f in sticky_ranges(d.timeline))
    rows = lake.of_arrow(messages.sparkSession, tell.table(f for f in (*ranges, *others) if f.at >= since))
    if len(judge.dispatchers) == 1:
        return rows
    if scattered:
        keyed = firsts(messages.where("key IS NOT NULL"), judge.words)
        if told is not None:
            pairs = told.select("key", "partition", F.lit(True).alias("told")).distinct()
            keyed = keyed.join(pairs, ["key", "partition"], "left")
            keyed = keyed.withColumn("known", F.col("known") | F.coalesce("told", F.lit(False)))
        rows = rows.unionAll(_each(keyed, tell.by(_of(keys_in_two_partitions))))
    routing = judge.terms.routing
    if routing is not None and routing.mode == "SinglePartition":
        strays = firsts(messages.where("key IS NULL"), judge.words)
        # where a rejected message is, its producer may have begun
        rejected = any(judge.rejects.of("messages", scope.partition) for scope in judge.dispatchers)
        excuse = Excuse.MESSAGES_REJECTED if rejected else Excuse.NONE

        def astray(mine: pa.Table) -> Iterator[Finding]:
            return (replace(finding, excuse=excuse) for finding in keyless_strays(routing, mine))

        rows = rows.unionAll(_each(strays, tell.by(_of(astray))))
    return rows


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
