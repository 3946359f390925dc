"""Messages with their deliveries as one stream of rows: the log of a subscription."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial, reduce

import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame

from subreplay.engine.spark.read.direct import Reading
from subreplay.engine.spark.read.inputs import Asked, Inputs
from subreplay.engine.spark.schemas import spark_schema
from subreplay.rows.model.columns import UNKNOWN
from subreplay.rows.model.contracts import KEYS
from subreplay.rows.model.tables import COMMIT, COMMIT_AUTOMATIC, COMMIT_REFUSED, DELIVERY, INPUTS, LOG


@dataclass(frozen=True)
class Log:
    """Messages and deliveries in the ``LOG`` shape, times in ns (``frames``); each with its own columns, since Spark
    takes as long for those that are null in all rows. ``checkpoint`` is what the night before handed on. ``here``:
    these are few rows, which the driver has.

    ``direct``: messages and deliveries once more, as they can be read without Spark, but for the rows of ``others``,
    those of other days."""

    frames: Asked[DataFrame]
    checkpoint: DataFrame | None = None
    here: bool = False
    direct: tuple[Reading, ...] = ()
    others: tuple[DataFrame, ...] = ()

    @property
    def messages(self) -> DataFrame:
        """Its messages."""
        return self.frames["messages"]

    @property
    def deliveries(self) -> DataFrame:
        """Its deliveries and commits."""
        return self.frames["deliveries"]

    @property
    def parts(self) -> list[DataFrame]:
        """What it consists of, all of it read by Spark."""
        return [part for part in (self.messages, self.deliveries, self.checkpoint) if part is not None]

    @property
    def waits(self) -> bool:
        """Whether ``direct`` waits in files, as blocks."""
        return any(reading.folder is not None for reading in self.direct)

    @property
    def cheapest(self) -> list[DataFrame | Reading]:
        """What it consists of, read without Spark as far as that is possible."""
        if not self.direct:
            return [*self.parts]
        return [*self.direct, *self.beside]

    @property
    def beside(self) -> list[DataFrame]:
        """What there is beside ``direct``, which Spark has to read."""
        return [*self.others, *([] if self.checkpoint is None else [self.checkpoint])]

    def where(self, condition: Column) -> Log:
        """The rows that meet a condition on columns that all of them have."""
        checkpoint = None if self.checkpoint is None else self.checkpoint.where(condition)
        return Log(self._each(lambda frame: frame.where(condition)), checkpoint, self.here)

    def with_other_days(self, **rows: DataFrame) -> Log:
        """The same with messages, or deliveries, of other days."""
        frames = {name: partial(_with_more, self.frames, name, rows.get(name)) for name in self.frames}
        return replace(self, frames=Asked(frames), others=(*self.others, *rows.values()))

    def with_deliveries(self, change: Callable[[DataFrame], DataFrame]) -> Log:
        """The same with changed deliveries."""
        return Log(self._each(change, "deliveries"), self.checkpoint, self.here)

    def rows(self) -> DataFrame:
        """All of it in one frame, with every column."""
        return reduce(DataFrame.unionAll, [_whole(part) for part in self.parts])

    def _each(self, change: Callable[[DataFrame], DataFrame], *names: str) -> Asked[DataFrame]:
        made = {name: partial(_changed, self.frames, name, change) for name in names or self.frames}
        return Asked({name: partial(self.frames.__getitem__, name) for name in self.frames} | made)


def _changed(frames: Asked[DataFrame], name: str, change: Callable[[DataFrame], DataFrame]) -> DataFrame:
    return change(frames[name])


def _with_more(frames: Asked[DataFrame], name: str, more: DataFrame | None) -> DataFrame:
    return frames[name] if more is None else frames[name].unionAll(more)


def as_log(inputs: Inputs, *, here: bool = False) -> Log:
    """Messages and deliveries as a log; ``here``: they are local frames."""
    frames: Mapping[str, Callable[[], DataFrame]] = {
        "messages": lambda: message_rows(inputs.messages, F.lit(True), before=False),
        "deliveries": lambda: delivery_rows(inputs.deliveries, before=False),
    }
    readings = tuple(inputs.direct[name] for name in ("messages", "deliveries") if name in inputs.direct)
    return Log(Asked(frames), here=here, direct=readings if len(readings) == 2 else ())


def message_rows(messages: DataFrame, judged: Column, *, before: bool) -> DataFrame:
    """Messages as ``LOG`` rows; what deliveries have is left out."""
    content = [c for c in INPUTS["messages"].names if c != "date"]
    return _log_rows(
        messages,
        {
            "kind": F.lit(0),
            "at": nanos("publish_time"),
            "seq": F.lit(0),
            "judged": judged,
            "before": F.lit(before),
            "content": F.xxhash64(*content),
            **{c: F.col(c) for c in ("key", "ordering_key", "batch_key", "batch_ordering_key", "producer")},
            "sequence_id": F.coalesce("batch_sequence_id", "sequence_id"),
            "own_sequence_id": F.col("sequence_id"),
            "deliver_at": nanos("deliver_at"),
            **{c: F.col(c) for c in ("size", "chunk_id", "chunk_count", "replicated_from", "aborted")},
        },
    )


def delivery_rows(deliveries: DataFrame, *, before: bool) -> DataFrame:
    """Deliveries and commits as ``LOG`` rows; what messages have is left out."""
    committed = nanos("acked_at", "acked_nanos")
    return _log_rows(
        deliveries,
        {
            "kind": F.when(~is_commit(), DELIVERY)
            .when(F.col("outcome") == "refused", COMMIT_REFUSED)
            .when(F.col("ack_type") == "AutoCommit", COMMIT_AUTOMATIC)
            .otherwise(COMMIT),
            "at": F.coalesce(happened(), F.when(is_commit(), committed), F.lit(UNKNOWN)),
            "by_receipt": F.col("delivered_at").isNull() & F.col("received_at").isNotNull(),
            "seq": F.col("seq"),
            "before": F.lit(before),
            "consumer": F.col("consumer"),
            "instance": F.col("instance"),
            "redelivery_count": F.col("redelivery_count"),
            "received_at": nanos("received_at"),
            "acked_at": committed,
            "nacked_at": nanos("nacked_at", "nacked_nanos"),
            "cumulative": F.col("ack_type") == "Cumulative",
        },
    )


def _log_rows(rows: DataFrame, given: Mapping[str, Column]) -> DataFrame:
    position = {c: F.col(c) for c in ("topic", "partition", "ledger", "entry", "batch_index")}
    of = position | dict(given)
    return rows.select(*[of[f.name].cast(f.dataType).alias(f.name) for f in spark_schema(LOG) if f.name in of])


def _whole(rows: DataFrame) -> DataFrame:
    have = set(rows.columns)
    return rows.select(
        *[F.col(f.name) if f.name in have else F.lit(None).cast(f.dataType).alias(f.name) for f in spark_schema(LOG)]
    )


def key_bytes() -> Column:
    """How many bytes the keys of a message have."""
    lengths = [F.coalesce(F.octet_length(name), F.lit(0)) for name in KEYS]
    return reduce(Column.__add__, lengths)


def is_commit() -> Column:
    """Whether a row of ``deliveries`` is none, but the commit of an offset."""
    return F.coalesce(F.col("ack_type").isin("Commit", "AutoCommit"), F.lit(False))


def happened() -> Column:
    """When a delivery happened, in ns: dispatched, or else received; null for an acknowledgement without one."""
    return F.coalesce(nanos("delivered_at", "delivered_nanos"), nanos("received_at"))


def nanos(time: str, beyond: str | None = None) -> Column:
    """A timestamp column in ns, with the column of what lies beyond the microsecond."""
    whole = F.unix_micros(time) * 1_000
    return whole if beyond is None else whole + F.coalesce(F.col(beyond).cast("long"), F.lit(0))
