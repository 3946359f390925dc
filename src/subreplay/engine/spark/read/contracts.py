"""The contract of each input row in Spark: what must hold, and what to do where it does not. Rows in = valid +
quarantined."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame

from subreplay.rows.model.contracts import KEYS, LEGAL, MOST_SHOWN, OF_A_LEDGER, Legal, Times, Words
from subreplay.rows.model.tables import INPUTS

MOST_OF_A_VALUE: Final = 200  # characters


class Contract(NamedTuple):
    """One condition on one column; a row for which it is not true (or not known) goes to quarantine."""

    column: str
    holds: str  # SQL
    rule: str
    remedy: str


def utc_day(time: str) -> str:
    """The UTC date of a timestamp as SQL, whatever the session's time zone."""
    return f"date_from_unix_date(cast(unix_micros({time}) div 86400000000 as int))"


_OF_A_LEDGER = Contract(
    "entry",
    f"ledger = 0 OR entry <= {OF_A_LEDGER.most}",
    OF_A_LEDGER.rule,
    OF_A_LEDGER.remedy,
)
# Conditions that one column alone cannot tell
_TOGETHER: Final = {
    "messages": (
        _OF_A_LEDGER,
        Contract(
            "batch_index",
            "batch_size IS NULL OR batch_index < batch_size",
            "a batch index is less than the size of its batch",
            "correct batch_size, or write null",
        ),
        Contract(
            "chunk_id",
            "(chunk_id IS NULL) = (chunk_count IS NULL) AND (chunk_id IS NULL OR chunk_id < chunk_count)",
            "a chunk has a number, less than the count of chunks",
            "map chunk_id and chunk_count",
        ),
        Contract(
            "date",
            f"(date = {utc_day('publish_time')}) IS NOT FALSE",
            "date is the UTC day of publish_time",
            "derive it from publish_time",
        ),
    ),
    "membership": (
        Contract(
            "since",
            "since IS NULL OR since <= at",
            "time runs backwards: asked for after it was complete",
            "correct the clock, or leave since null",
        ),
        Contract(
            "ranges",
            "ranges IS NULL OR forall(ranges, r -> r.start <= r.end)",
            "a range starts before it ends",
            "swap its ends",
        ),
        Contract(
            "date", f"(date = {utc_day('at')}) IS NOT FALSE", "date is the UTC day of the event", "derive it from at"
        ),
    ),
    "deliveries": (
        _OF_A_LEDGER,
        Contract(
            "delivered_at",
            "delivered_at IS NOT NULL OR received_at IS NOT NULL OR acked_at IS NOT NULL",
            "a delivery happened, or at least its receipt or its ack did",
            "leave the row out",
        ),
        Contract(
            "nacked_at",
            "nacked_at IS NULL OR delivered_at IS NULL OR nacked_at >= delivered_at",
            "time runs backwards: redelivery asked for before the delivery",
            "correct the clock, or leave nacked_at null",
        ),
        Contract(
            "date",
            f"(date = {utc_day('coalesce(delivered_at, received_at, acked_at)')}) IS NOT FALSE",
            "date is the UTC day of the delivery, else of its receipt, else of its ack",
            "derive it from delivered_at",
        ),
    ),
}


@dataclass(frozen=True)
class Split:
    """The rows of an input table by its contract. Where they have column ``rejected``, that of a source (``traffic``),
    rows for which that is not null are rejected already, with their reasons.

    Each frame is planned when it is asked for: hardly any run needs ``rejected``, which takes by far the longest.
    """

    table: str
    rows: DataFrame

    @cached_property
    def valid(self) -> DataFrame:
        """Rows that keep the contract."""
        return self._read.where(self._good)

    @cached_property
    def rejected(self) -> DataFrame:
        """The others as ``quarantine`` rows, with every reason."""
        file = F.col("_metadata.file_path") if "_metadata" in self._read.columns else F.lit(self.table)
        found = self._read.where(~self._good).select(
            F.lit(self.table).alias("table"),
            file.alias("file"),
            F.lit(-1).cast("long").alias("row"),
            _raw(self._read).alias("raw"),
            _reasons(contracts(self.table)).alias("reasons"),
        )
        if not self._of_source:
            return found
        return found.unionByName(self._unread.select(F.lit(self.table).alias("table"), "rejected.*"))

    @cached_property
    def checked(self) -> DataFrame:
        """All rows, of which column ``valid`` tells whether they are valid."""
        found = self._read.withColumn("valid", self._good)
        if not self._of_source:
            return found
        return found.unionByName(self._unread.drop("rejected").withColumn("valid", F.lit(False)))

    @cached_property
    def _of_source(self) -> bool:
        return "rejected" in self.rows.columns

    @cached_property
    def _read(self) -> DataFrame:
        return self.rows.where("rejected IS NULL").drop("rejected") if self._of_source else self.rows

    @property
    def _unread(self) -> DataFrame:
        return self.rows.where("rejected IS NOT NULL")

    @cached_property
    def _good(self) -> Column:
        return _known(" AND ".join(f"({check.holds})" for check in contracts(self.table)))


def _known(condition: str) -> Column:
    """Whether a condition is known to be true."""
    return F.expr(_sure(condition))


def _sure(condition: str) -> str:
    return f"coalesce({condition}, false)"


def contracts(table: str) -> tuple[Contract, ...]:
    """Every condition on the rows of an input table."""
    required = tuple(
        Contract(f.name, f"{f.name} IS NOT NULL", "the column is required", "fill it at the source")
        for f in INPUTS[table]
        if not f.nullable
    )
    return required + tuple(_of_column(*legal) for legal in LEGAL[table].items()) + _TOGETHER[table]


def _of_column(name: str, legal: Legal) -> Contract:
    """What one column, a field of a struct, or of each element of a list, must be; null is for others to judge."""
    column, _, field = name.partition(".")
    of_elements = f"forall({column}, r -> {_within(f'r.{field}', legal)})"
    holds = of_elements if column == "ranges" else _within(name, legal)
    return Contract(name, f"{column} IS NULL OR {holds}", legal.rule, legal.remedy)


def _within(value: str, legal: Legal) -> str:
    if isinstance(legal, Words):
        known = ", ".join(f"'{word}'" for word in legal.known)
        return f"{value} IN ({known})" if known else f"{value} <> ''"  # its length would take longer than all the rest
    number = f"unix_micros({value})" if isinstance(legal, Times) else value
    return f"{number} BETWEEN {legal.least} AND {legal.most}"


def readable(table: str, column: str) -> Column:
    """A column where it keeps its contracts, null where it does not: what stands there then may be anything."""
    mine = (f"({contract.holds})" for contract in contracts(table) if contract.column == column)
    return F.when(_known(" AND ".join(mine) or "true"), F.col(column))


def _reasons(checks: Sequence[Contract]) -> Column:
    """Every contract that a row breaks, with the value that breaks it.

    The conditions are one SQL text, because each column function that Python calls costs a round trip to Java. The
    words of the contracts are a literal beside it, because SQL dialects differ in how they quote.
    """
    words = [{"column": check.column, "rule": check.rule, "remedy": check.remedy} for check in checks]
    known = F.from_json(F.lit(json.dumps(words)), "array<struct<column string, rule string, remedy string>>")
    broken = F.expr(f"array_compact(array({', '.join(_broken(nr, check) for nr, check in enumerate(checks))}))")

    def told(found: Column) -> Column:
        of = known[found["nr"]]
        return F.struct(of["column"].alias("column"), found["value"].alias("value"), of["rule"].alias("rule"),
                        of["remedy"].alias("remedy"))  # fmt: skip

    return F.transform(broken, told)


def _broken(nr: int, check: Contract) -> str:
    given = f"cast({check.column} as string)"
    value = f"CASE WHEN {given} = '' THEN '(empty)' ELSE coalesce({_shortened(given, MOST_OF_A_VALUE)}, '(null)') END"
    return f"CASE WHEN NOT {_sure(check.holds)} THEN named_struct('nr', {nr}, 'value', {value}) END"


def _raw(frame: DataFrame) -> Column:
    """A row as JSON: of keys their length only, and of all of it what fits a table that is read by people."""
    parts = [_length(name).alias(name) if name in KEYS else F.col(name) for name in frame.columns]
    text = F.to_json(F.struct(*parts))
    length = F.length(text)
    cut = F.concat(F.substring(text, 1, MOST_SHOWN), F.format_string("… (%,d characters)", length))
    return F.when(length <= MOST_SHOWN, text).otherwise(cut)


def _length(key: str) -> Column:
    return F.when(F.col(key).isNotNull(), F.format_string("(%,d bytes)", F.octet_length(key)))


def _shortened(text: str, most: int) -> str:
    """``contracts.shortened`` as SQL."""
    cut = f"concat(substring({text}, 1, {most}), format_string('… (%,d characters)', length({text})))"
    return f"CASE WHEN length({text}) <= {most} THEN {text} ELSE {cut} END"
