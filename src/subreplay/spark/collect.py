"""What comes back to the driver: membership (the timeline is folded there) and aggregates whose size the report
bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import reduce
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar

import pyspark.sql.functions as F
from pyspark.sql import DataFrame

from subreplay.membership import dispatcher_events
from subreplay.model import MembershipEvent, Scope
from subreplay.spark.log import Inputs, nanos

Rows = list[dict[str, Any]]
T = TypeVar("T")
P = ParamSpec("P")


class Start(Protocol):
    """Starts ``job(*arguments)`` and hands out what will be its result."""

    def __call__(self, job: Callable[P, T], /, *arguments: P.args, **options: P.kwargs) -> Future[T]: ...


@contextmanager
def together() -> Iterator[Start]:
    """Small independent jobs side by side: most of their time is waiting for the driver. All have ended when this
    ends."""
    with ThreadPoolExecutor(max_workers=4) as pool:
        yield pool.submit


def rows(frame: DataFrame) -> Rows:
    """A small frame as plain mappings, nested rows included."""
    return [row.asDict(recursive=True) for row in frame.collect()]


def counts(inputs: Inputs) -> Rows:
    """Valid and quarantined rows of each input table, and what their ingest had rejected already, in one job."""
    tables = {"messages": inputs.messages, "membership": inputs.membership, "deliveries": inputs.deliveries}
    if inputs.dead_letters is not None:
        tables["dead_letters"] = inputs.dead_letters
    parts = [_marked(t, True, f) for t, f in tables.items()] + [
        _marked(t, False, f) for t, f in inputs.rejected.items()
    ]
    if inputs.ingest is not None:
        parts.append(_marked("ingest", False, inputs.ingest))
    found = {
        (r["table"], r["valid"]): r["count"]
        for r in rows(reduce(DataFrame.unionAll, parts).groupBy("table", "valid").count())
    }
    names = [*tables, *(["ingest"] if ("ingest", False) in found else [])]
    return [{"table": t, "valid": found.get((t, True), 0), "quarantined": found.get((t, False), 0)} for t in names]


def _marked(table: str, valid: bool, frame: DataFrame) -> DataFrame:
    return frame.select(F.lit(table).alias("table"), F.lit(valid).alias("valid"))


def events(inputs: Inputs, carried: DataFrame | None = None) -> Mapping[Scope, tuple[MembershipEvent, ...]]:
    """Membership events of every dispatcher that has messages, deliveries, members, or a state ``carried`` from the
    night before."""
    places = inputs.messages.select("topic", "partition").unionAll(inputs.deliveries.select("topic", "partition"))
    if carried is not None:
        places = places.unionAll(carried.select("topic", "partition"))
    scopes = [(r["topic"], r["partition"]) for r in rows(places.distinct().orderBy("topic", "partition"))]
    members = inputs.membership.withColumns({"at": nanos("at", "at_nanos"), "since": nanos("since", "since_nanos")})
    return dispatcher_events(rows(members.orderBy("at", "seq", "consumer", "event")), scopes)


class Served(NamedTuple):
    """What the deliveries tell of those who were served, all together.

    ``receipts``: applications recorded what they received: some did, and nobody acknowledged deliveries without ever
    recording one. ``strangers``: somebody was served whose joining no membership event tells.
    """

    receipts: bool
    strangers: bool


def served(inputs: Inputs) -> Served:
    """See ``Served``; one look at the deliveries."""
    delivered = inputs.deliveries.where("delivered_at IS NOT NULL").groupBy("consumer")
    recorded, acknowledged = (F.bool_or(F.col(name).isNotNull()) for name in ("received_at", "acked_at"))
    consumers = delivered.agg(recorded.alias("recorded"), acknowledged.alias("acknowledged"))
    joined = inputs.membership.where("event = 'join'").select("consumer", F.lit(True).alias("joined")).distinct()
    row = (
        consumers.join(F.broadcast(joined), "consumer", "left")
        .agg(
            F.bool_or("recorded").alias("recorded"),
            F.bool_or(F.col("acknowledged") & ~F.col("recorded")).alias("silent"),
            F.bool_or(F.col("joined").isNull()).alias("strangers"),
        )
        .first()
    )
    assert row is not None  # an aggregate without groups always has one row
    return Served(bool(row.recorded) and not row.silent, bool(row.strangers))
