"""What a run's tables hold, from one look at each: rows that keep the contract and others, the time they span, topic
partitions, members, and who was served."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from operator import itemgetter
from typing import Final, NamedTuple

import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame

from subreplay.audit.needs import Need
from subreplay.audit.passes.beginning import FirstServed, Position
from subreplay.audit.passes.repeats import members_once
from subreplay.audit.rules.assignments import GroupStory
from subreplay.engine.spark.collect import Rows, rows, together
from subreplay.engine.spark.read.inputs import Inputs
from subreplay.engine.spark.read.log import happened, is_commit, key_bytes, nanos
from subreplay.errors import InputError
from subreplay.rows.model.columns import NEVER, UNKNOWN
from subreplay.rows.model.contracts import KEYS
from subreplay.rows.model.rows import MembershipEvent, Scope
from subreplay.semantics.timelines.membership import Present, dispatcher_events, inferred, unknown_consumers

INGEST: Final = "ingest"
MOST_EVENTS: Final = 1_000_000
"""So many rows of a membership come to the driver, which folds them; about a gigabyte."""


class InputStatistics(NamedTuple):
    """``counts``: valid and quarantined rows of each table, and what an ingest had rejected already.

    ``extent``: first and last publish time (ns; of a day when nothing was published: delivery time), and how many
    messages and deliveries there are; 0 for none.
    ``events``: membership of every dispatcher that has messages, deliveries, members, or a state of the night before.
    ``lacking``: what rules need and the tables do not have.
    ``uncovered``: dispatchers that made their last delivery before the membership has anybody join.
    ``repeated``, ``contradicted``: rows of the membership that say the same as another one, and otherwise.
    ``unknown_consumers``: who was served, and when, though no membership event tells its joining.
    ``lowest``, ``served``: the lowest position of each log, and what was delivered first of it (see ``beginning``).
    ``widest``: bytes of the keys of the message with the longest ones.
    ``plain``: each message has a key of its own, which is all that decides where it goes.
    ``last``: the last delivery (ns), ``last_served`` that of each consumer.
    ``first``, ``end``: the first and the last delivery, publication, membership event or, of the last, commit (ns).
    ``copies``: so many messages are exact copies of others, and are left out.
    ``crowded``, ``constant``: some messages have the same position; all of a topic partition have.
    ``group``: what is known of a Kafka group beside its deliveries.
    """

    counts: Rows
    extent: Mapping[str, int]
    events: Mapping[Scope, tuple[MembershipEvent, ...]]
    lacking: frozenset[Need]
    uncovered: frozenset[Scope]
    repeated: int
    contradicted: int
    unknown_consumers: Mapping[str, Present]
    lowest: Mapping[Scope, Position]
    served: Mapping[Scope, FirstServed]
    widest: int
    plain: bool
    last: int
    last_served: Mapping[str, int]
    first: int
    end: int
    group: GroupStory = GroupStory()
    copies: int = 0
    crowded: bool = False
    constant: bool = False

    @property
    def traffic(self) -> int:
        """How many messages and deliveries there are, valid or not."""
        mine = (row for row in self.counts if row["table"] in ("messages", "deliveries"))
        return sum(row["valid"] + row["quarantined"] for row in mine)

    @property
    def with_rejected(self) -> list[str]:
        """The tables of which rows are in quarantine."""
        return [row["table"] for row in self.counts if row["quarantined"]]


def input_statistics(inputs: Inputs, checkpoint: DataFrame | None = None) -> InputStatistics:
    """Look at each table once; ``checkpoint`` is what the night before handed on. Raises ``direct.Unreadable``."""
    with together() as start:
        messages = start(_counts_of, inputs, "messages")
        deliveries = start(_counts_of, inputs, "deliveries")
        others = [start(_counted, inputs, name) for name in inputs.checked if name not in ("messages", "deliveries")]
        changes = start(_events, inputs, "membership")
        of_group = start(_events, inputs, "group") if "group" in inputs.valid else None
        ingest = start(lambda: inputs.ingest.count)
        open_ = start(rows, checkpoint.select("partition").distinct()) if checkpoint is not None else None
    stored, served, members = messages.result(), deliveries.result(), changes.result()
    partitions = {row["partition"] for row in (*stored, *served) if row["valid"]}
    partitions |= {row["partition"] for row in open_.result()} if open_ is not None else set()
    delivered = [row for row in served if row["valid"] and row["last"] is not None]
    events, repeated, contradicted = members_once(inferred(delivered, inputs.topic) if inputs.inferred else members)
    untold = {row["consumer"] for row in delivered if row["instance"] is None}
    joins = [row for row in events if row["event"] == "join"]
    scopes = [(scope.topic, scope.partition) for scope in inputs.scopes]
    seen = dispatcher_events(events, scopes or [(inputs.topic, number) for number in sorted(partitions)], untold)
    group = GroupStory() if of_group is None else GroupStory.of(seen, events, of_group.result())
    last = {Scope(inputs.topic, row["partition"]): row["last"] for row in sorted(delivered, key=itemgetter("last"))}
    last = {} if inputs.scopes else last  # deliveries are counted by partition, whatever the topic
    uncovered = frozenset(scope for scope, at in last.items() if _first_join(seen[scope]) > at)
    return InputStatistics(
        counts=_counts(
            [
                *_named("messages", stored),
                {"table": "messages", "valid": True, "count": inputs.copies},
                *_named("deliveries", served),
                *(r for each in others for r in each.result()),
            ],
            inputs,
            ingest.result(),
        ),
        extent=_extent([r for r in stored if r["valid"]], [r for r in served if r["valid"]]),
        events=seen,
        lacking=_lacking(delivered, len(delivered) < sum(row["valid"] for row in served))
        | _lacking_in_messages([row for row in stored if row["valid"]], inputs.absent.get("messages", frozenset()))
        | group.lacking
        | ({Need.COMMITS} if not any(row["commits"] for row in served) else set())
        | ({Need.EXACT_MEMBERSHIP} if inputs.inferred else set())
        | ({Need.EVERY_DELIVERY} if inputs.sampled else set())
        | ({Need.PRIORITIES} if not inputs.ranked and any(row["priority"] is None for row in joins) else set())
        | ({Need.MEMBERSHIP} if not joins or (last and uncovered == set(last)) else set()),
        uncovered=uncovered,
        repeated=repeated,
        contradicted=contradicted,
        unknown_consumers=unknown_consumers(delivered, events),
        lowest={Scope(inputs.topic, row["partition"]): tuple(row["lowest"].values()) for row in stored if row["valid"]},
        served=_first_of(delivered, inputs.topic),
        widest=max((row["widest"] for row in stored), default=0),
        plain=not any(row["other"] for row in stored if row["valid"]),
        last=max((row["last"] for row in delivered), default=UNKNOWN),
        last_served={row["consumer"]: row["last"] for row in sorted(delivered, key=itemgetter("last"))},
        first=min(
            (
                *(row["first"] for row in (*stored, *served) if row["valid"] and row["first"] is not None),
                *(event.since.at for of_scope in seen.values() for event in of_scope),
            ),
            default=UNKNOWN,
        ),
        end=max(
            (
                *(row["last"] for row in (*stored, *served) if row["valid"] and row["last"] is not None),
                *(row["committed"] for row in served if row["valid"] and row["committed"] is not None),
                *(event.at.at for of_scope in seen.values() for event in of_scope),
            ),
            default=UNKNOWN,
        ),
        group=group,
        copies=inputs.copies,
        crowded=any(row["crowded"] for row in stored if row["valid"]),
        constant=all(row["constant"] for row in stored if row["valid"]) and any(row["valid"] for row in stored),
    )


def _counts_of(inputs: Inputs, name: str) -> Rows:
    reading = inputs.direct.get(name)
    if reading is not None:
        return reading.counts()
    return rows((_stored if name == "messages" else _served)(inputs.checked[name]))


def _events(inputs: Inputs, name: str) -> Rows:
    reading = inputs.direct.get(name)
    if reading is not None and reading.small:
        return reading.members()
    membership = _in_nanos(inputs.valid[name])
    return bounded(rows(membership.orderBy("at", "seq", "consumer", "event").limit(MOST_EVENTS + 1)))


def bounded(events: Rows) -> Rows:
    """Events that the driver can fold. Raises ``InputError`` where there are more: a group of many partitions whose
    owners change often tells of each at each change."""
    if len(events) > MOST_EVENTS:
        raise InputError(
            f"membership: more than {MOST_EVENTS:,} rows, which is more than the driver folds; give a shorter time, or "
            "leave out rows of events assigned, revoked, lost, owner and withdrawn: owners are then what the assignor "
            "makes of the members"
        )
    return events


def _in_nanos(membership: DataFrame) -> DataFrame:
    return membership.withColumns({"at": nanos("at", "at_nanos"), "since": nanos("since", "since_nanos")})


def _first_join(events: tuple[MembershipEvent, ...]) -> int:
    """When the first join of a dispatcher was asked for, ns."""
    return min((event.since.at for event in events if event.event == "join"), default=NEVER)


def _lacking(delivered: Rows, acknowledged_only: bool) -> frozenset[Need]:
    """What rules need and deliveries (as ``_served`` counts them) do not tell. Receipts are recorded if some are, and
    nobody acknowledged deliveries without ever recording one. ``acknowledged_only``: there are acknowledgements without
    a delivery."""
    recorded = {row["consumer"] for row in delivered if row["recorded"]}
    silent = {row["consumer"] for row in delivered if row["acknowledged"]} - recorded
    told = {
        Need.RECEIPTS: bool(recorded) and not silent,
        Need.ACKNOWLEDGEMENTS: any(row["ended"] for row in delivered),
        Need.DISPATCH_TIMES: any(row["dispatched"] for row in delivered),
        Need.DELIVERIES: bool(delivered) or not acknowledged_only,
    }
    return frozenset(need for need, known in told.items() if not known)


def _lacking_in_messages(stored: Rows, absent: frozenset[str]) -> frozenset[Need]:
    """What rules need and messages (as ``_stored`` counts them) do not tell; ``absent`` are columns that their table
    does not have. A table with the columns of keys and nothing in them tells of keys where it tells of producers: then
    no message has a key, and else the source has none."""
    told = {
        Need.KEYS: not {"key", "ordering_key"} <= absent and (not stored or any(row["sticky"] for row in stored)),
        Need.SOME_KEY: not stored or any(row["keyed"] for row in stored),
        Need.PRODUCERS: not stored or any(row["numbered"] for row in stored),
        Need.STICKY_KEYS: not any(row["slotless"] for row in stored),
    }
    return frozenset(need for need, known in told.items() if not known)


# Spark sorts all rows before it aggregates a struct, so rows are first added up by ledger, as plain values: of those
# few rows the struct with the lowest position is asked.


def _stored(checked: DataFrame) -> DataFrame:
    """By topic partition. ``lowest``: of an entry other than a ledger's first the batch index is not told."""
    at = _if_valid(nanos("publish_time"))
    numbered = F.col("producer").isNotNull() & F.col("sequence_id").isNotNull()
    keyed = F.coalesce(*KEYS).isNotNull()
    told = {
        "numbered": numbered,
        "keyed": keyed,
        "sticky": keyed | numbered,
        "slotless": ~keyed & ~numbered,
        "other": F.col("key").isNull() | F.coalesce(*KEYS[1:]).isNotNull() | (F.col("batch_index") >= 0),
    }
    entry = _if_valid(F.col("entry"))
    batched = F.coalesce(F.bool_or(_if_valid(F.col("batch_index") >= 0)), F.lit(False))
    by_ledger = checked.groupBy("valid", *map(_valid, ("partition", "ledger"))).agg(
        F.count("*").alias("count"),
        F.min(at).alias("first"),
        F.max(at).alias("last"),
        F.max(key_bytes()).alias("widest"),
        *[F.bool_or(fact).alias(name) for name, fact in told.items()],
        F.min("entry").alias("entry"),
        F.min(F.when(F.col("entry") == 0, F.col("batch_index"))).alias("batch_index"),
        (~batched & (F.count("*") > F.max(entry) - F.min(entry) + 1)).alias("crowded"),
        (F.max(entry) == F.min(entry)).alias("constant"),
    )
    alone = F.count("*") == 1  # of a topic partition's ledgers
    return by_ledger.groupBy("valid", "partition").agg(
        *_count_and_extent(),
        F.max("widest").alias("widest"),
        *[F.bool_or(name).alias(name) for name in told],
        F.coalesce(F.bool_or("crowded"), F.lit(False)).alias("crowded"),
        F.coalesce(F.bool_and(F.col("crowded") & F.col("constant")) & alone, F.lit(False)).alias("constant"),
        F.min(F.struct("ledger", "entry", _batch_index())).alias("lowest"),
    )


def _served(checked: DataFrame) -> DataFrame:
    """By consumer; what is asked of deliveries leaves out acknowledgements without one. ``lowest``: when the lowest
    position was delivered first is told of a ledger's first message."""
    at = _if_valid(happened())
    told = {
        name: at.isNotNull() & F.col(column).isNotNull()
        for name, column in (("recorded", "received_at"), ("acknowledged", "acked_at"), ("given_back", "nacked_at"))
    }
    told["dispatched"] = F.col("delivered_at").isNotNull()
    again = F.coalesce(F.col("redelivery_count") > 0, F.lit(False))
    begins = {"alone": -1, "batched": 0}  # batch indexes that a ledger's first message may have
    first = {name: at.isNotNull() & (F.col("entry") == 0) & (F.col("batch_index") == i) for name, i in begins.items()}
    whose = ("partition", "consumer", "instance")
    by_ledger = checked.groupBy("valid", *map(_valid, (*whose, "ledger"))).agg(
        F.count("*").alias("count"),
        F.min(at).alias("first"),
        F.max(at).alias("last"),
        *[F.bool_or(fact).alias(name) for name, fact in told.items()],
        F.count_if(is_commit()).alias("commits"),
        F.max(_if_valid(F.when(is_commit(), nanos("acked_at", "acked_nanos")))).alias("committed"),
        F.min(F.when(at.isNotNull(), F.col("entry"))).alias("entry"),
        F.min(F.when(at.isNotNull() & (F.col("entry") == 0), F.col("batch_index"))).alias("batch_index"),
        *[F.min(F.when(mine, at)).alias(name) for name, mine in first.items()],
        *[F.min(F.when(mine & ~again, at)).alias(f"{name}_new") for name, mine in first.items()],
    )
    when, new = (
        F.coalesce(
            *[F.when(F.col("batch_index") == i, F.col(f"{name}{suffix}")) for name, i in begins.items()], F.lit(NEVER)
        )
        for suffix in ("", "_new")
    )
    lowest = F.struct("ledger", "entry", _batch_index(), when.alias("at"), (new > when).alias("again"))
    return by_ledger.groupBy("valid", *whose).agg(
        *_count_and_extent(),
        *[F.bool_or(name).alias(name) for name in told],
        F.bool_or(F.col("acknowledged") | F.col("given_back")).alias("ended"),
        F.sum("commits").alias("commits"),
        F.max("committed").alias("committed"),
        F.min(F.when(F.col("entry").isNotNull(), lowest)).alias("lowest"),
    )


def _count_and_extent() -> list[Column]:
    return [F.sum("count").alias("count"), F.min("first").alias("first"), F.max("last").alias("last")]


def _batch_index() -> Column:
    return F.coalesce("batch_index", F.lit(-1)).alias("batch_index")


def _first_of(delivered: Rows, topic: str) -> dict[Scope, FirstServed]:
    found: dict[Scope, FirstServed] = {}
    for row in delivered:
        (*position, at, again), scope = row["lowest"].values(), Scope(topic, row["partition"])
        mine = FirstServed(row["first"], tuple(position), at, again)
        found[scope] = mine.with_others(found.get(scope, mine))
    return found


def _valid(column: str) -> Column:
    return _if_valid(F.col(column)).alias(column)


def _if_valid(value: Column) -> Column:
    """What is not valid may be anything, of any number, and too large to be computed with."""
    return F.when(F.col("valid"), value)


def _counted(inputs: Inputs, name: str) -> Rows:
    reading = inputs.direct.get(name)
    if reading is not None and reading.small:
        return _named(name, reading.count())
    return _named(name, rows(inputs.checked[name].groupBy("valid").count()))


def _named(table: str, found: Rows) -> Rows:
    return [{"table": table, "valid": row["valid"], "count": row["count"]} for row in found]


def _counts(found: Rows, inputs: Inputs, of_ingest: int) -> Rows:
    count: Counter[tuple[str, bool]] = Counter()
    for row in found:
        count[row["table"], row["valid"]] += row["count"]
    count[INGEST, False] = of_ingest
    names = [*inputs.checked, *([INGEST] if count[INGEST, False] else [])]
    return [{"table": name, "valid": count[name, True], "quarantined": count[name, False]} for name in names]


def _extent(stored: Rows, served: Rows) -> dict[str, int]:
    timed = [row for row in stored or served if row["last"] is not None]
    return {
        "first": min((row["first"] for row in timed), default=0),
        "last": max((row["last"] for row in timed), default=0),
        "messages": sum(row["count"] for row in stored),
        "deliveries": sum(row["count"] for row in served),
    }
