"""Summarize the input tables of a run from one scan of each: valid and rejected rows, time range, topic partitions,
members and consumers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.audit.needs import Need
from subreplay.audit.passes.beginning import FirstServed, Position
from subreplay.audit.passes.repeats import drop_repeated_members
from subreplay.audit.rules.assignments import GroupEvents
from subreplay.errors import InputError
from subreplay.rows.model.columns import NEVER, UNKNOWN
from subreplay.rows.model.rows import MembershipEvent, Scope
from subreplay.semantics.timelines.membership import (
    OWNERSHIP,
    ServedInterval,
    build_dispatcher_events,
    find_unknown_consumers,
    infer_membership,
)

Rows = list[dict[str, Any]]
INGEST_TABLE: Final = "ingest"
MOST_EVENTS: Final = 1_000_000
"""The largest number of membership rows that the driver folds; about a gigabyte."""
_LOWEST: Final = ("ledger", "entry", "batch_index")


@dataclass(frozen=True)
class InputFacts:
    """The properties of the input tables that are known without reading their rows.

    ``absent``: columns that the source of the messages does not have. ``inferred``: there is no membership, and each
    consumer with deliveries counts as a member. ``sampled``: the deliveries are a sample. ``ranked``: an unrecorded
    priority is 0, not unknown. ``ingest``: the number of rows that an ingest rejected. ``copies``: the number of
    messages that are dropped as exact copies. ``open_partitions``: the partitions with open positions of an earlier
    day.
    """

    topic: str
    scopes: Sequence[Scope] = ()
    absent: frozenset[str] = frozenset()
    inferred: bool = False
    sampled: bool = False
    ranked: bool = True
    ingest: int = 0
    copies: int = 0
    open_partitions: Collection[int] = ()


class InputStatistics(NamedTuple):
    """The statistics of the input tables.

    ``counts``: valid and quarantined rows of each table, and the rows that an ingest rejected. ``extent``: the first
    and the last publish time (ns; delivery time on a day without publications), and the numbers of messages and
    deliveries; 0 for none. ``events``: the membership of every dispatcher with messages, deliveries, members, or state
    of the previous day. ``lacking``: what rules need and the tables do not contain. ``uncovered``: dispatchers whose
    last delivery precedes the first join. ``repeated``, ``contradicted``: membership rows that repeat or contradict
    another row. ``find_unknown_consumers``: consumers with deliveries but without a recorded join, and when they
    received messages. ``lowest``, ``served``: the lowest position of each log, and its first delivery (see
    ``beginning``). ``widest``: the largest key size of a message, in bytes. ``plain``: each message has its own key,
    which alone decides its owner. ``last``: the last delivery (ns); ``last_served`` that of each consumer. ``first``,
    ``end``: the first and the last instant (ns) of deliveries, publications, membership events and (``end``) commits.
    ``copies``: the number of dropped exact copies. ``crowded``, ``constant``: some messages, or all of a topic
    partition, have the same position. ``group``: the events of a Kafka group beside its deliveries.
    """

    counts: Rows
    extent: Mapping[str, int]
    events: Mapping[Scope, tuple[MembershipEvent, ...]]
    lacking: frozenset[Need]
    uncovered: frozenset[Scope]
    repeated: int
    contradicted: int
    unknown_consumers: Mapping[str, ServedInterval]
    lowest: Mapping[Scope, Position]
    served: Mapping[Scope, FirstServed]
    widest: int
    plain: bool
    last: int
    last_served: Mapping[str, int]
    first: int
    end: int
    group: GroupEvents = GroupEvents()
    copies: int = 0
    crowded: bool = False
    constant: bool = False

    @property
    def traffic(self) -> int:
        """The number of messages and deliveries, valid or not."""
        selected = (row for row in self.counts if row["table"] in ("messages", "deliveries"))
        return sum(row["valid"] + row["quarantined"] for row in selected)

    @property
    def with_rejected(self) -> list[str]:
        """The tables with quarantined rows."""
        return [row["table"] for row in self.counts if row["quarantined"]]


def input_statistics(
    facts: InputFacts,
    summaries: Mapping[str, pa.Table],
    numbers: Mapping[str, pa.Table],
    members: Rows,
    of_group: Rows | None,
    tables: Sequence[str],
) -> InputStatistics:
    """Summarize the tables.

    ``summaries`` are ``counts.summarize_counts`` of messages and deliveries. ``numbers`` (``intake.NUMBERS``) are those
    of the other tables; several of these rows may belong together. ``members`` and ``of_group`` are the valid
    membership in order (``list_members``), each at most ``MOST_EVENTS`` rows (``check_event_count``). ``tables`` has
    the names of all tables in the order of ``counts``.
    """
    stored, served = (_select_valid(summaries[name]) for name in ("messages", "deliveries"))
    delivered = served.filter(served["last"].is_valid())
    by_consumer = _group_by_consumer(delivered)
    partitions = {*stored["partition"].to_pylist(), *served["partition"].to_pylist(), *facts.open_partitions}
    events, repeated, contradicted = drop_repeated_members(
        _infer_membership(delivered, facts.topic) if facts.inferred else members
    )
    without_instance = {row["consumer"] for row in by_consumer if row["instance"] is None}
    joins = [row for row in events if row["event"] == "join"]
    scopes = [(scope.topic, scope.partition) for scope in facts.scopes]
    seen = build_dispatcher_events(
        events, scopes or [(facts.topic, number) for number in sorted(partitions)], without_instance
    )
    group = GroupEvents() if of_group is None else GroupEvents.from_rows(seen, events, of_group)
    last = (
        {} if facts.scopes else _find_last_deliveries(delivered, facts.topic)
    )  # deliveries are counted whatever the topic
    uncovered = frozenset(scope for scope, at in last.items() if _find_first_join(seen[scope]) > at)
    changes = [event for of_scope in seen.values() for event in of_scope]
    return InputStatistics(
        counts=_count_rows(summaries, numbers, facts, tables),
        extent=_measure_extent(stored, served),
        events=seen,
        lacking=_find_lacking(by_consumer, len(delivered) < len(served))
        | _find_lacking_in_messages(stored, facts.absent)
        | group.lacking
        | ({Need.COMMITS} if not pc.sum(summaries["deliveries"]["commits"]).as_py() else set())
        | ({Need.EXACT_MEMBERSHIP} if facts.inferred else set())
        | ({Need.EVERY_DELIVERY} if facts.sampled else set())
        | ({Need.PRIORITIES} if not facts.ranked and any(row["priority"] is None for row in joins) else set())
        | ({Need.MEMBERSHIP} if not joins or (last and uncovered == set(last)) else set()),
        uncovered=uncovered,
        repeated=repeated,
        contradicted=contradicted,
        unknown_consumers=find_unknown_consumers(by_consumer, events),
        lowest={
            Scope(facts.topic, partition): tuple(position)
            for partition, *position in _iterate_rows(stored, "partition", *_LOWEST)
        },
        served=_find_first_served(delivered, facts.topic),
        widest=pc.max(summaries["messages"]["widest"]).as_py() or 0,
        plain=not _has_any(stored, "other"),
        last=_find_highest(delivered["last"], default=UNKNOWN),
        last_served=_find_last_served(by_consumer),
        first=_find_lowest([stored["first"], served["first"]], (event.since.at for event in changes)),
        end=max(
            (
                UNKNOWN,
                *(_find_highest(rows, UNKNOWN) for rows in (stored["last"], served["last"], served["committed"])),
                *(event.at.at for event in changes),
            )
        ),
        group=group,
        copies=facts.copies,
        crowded=_has_any(stored, "crowded"),
        constant=bool(pc.all(stored["constant"], min_count=1).as_py()),
    )


def find_all_lacking(found: InputStatistics) -> frozenset[Need]:
    """Return what rules need and the tables do not contain. An empty table is the only reason for everything it
    lacks."""
    lacking = set(found.lacking)
    if not found.extent["deliveries"]:
        lacking -= {Need.ACKNOWLEDGEMENTS, Need.RECEIPTS, Need.DISPATCH_TIMES, Need.DELIVERIES}
        lacking.add(Need.SOME_DELIVERY)
    if not found.extent["messages"]:
        lacking -= {Need.KEYS, Need.SOME_KEY, Need.STICKY_KEYS, Need.PRODUCERS}
        lacking.add(Need.SOME_MESSAGE)
    return frozenset(lacking)


def check_event_count(events: Rows) -> Rows:
    """Return the events. Raises ``InputError`` if there are more than the driver can fold, as in a group of many
    partitions with frequent owner changes."""
    if len(events) > MOST_EVENTS:
        raise InputError(
            f"membership: more than {MOST_EVENTS:,} rows, which one process cannot fold. Audit a shorter time, or "
            f"leave out rows of events {', '.join(sorted(OWNERSHIP))}, so that the assignor computes the owners."
        )
    return events


def _find_first_join(events: tuple[MembershipEvent, ...]) -> int:
    """Return when the first join of a dispatcher was requested, ns."""
    return min((event.since.at for event in events if event.event == "join"), default=NEVER)


def _select_valid(summary: pa.Table) -> pa.Table:
    return summary.filter(summary["valid"])


def _iterate_rows(rows: pa.Table, *names: str) -> Iterable[tuple[Any, ...]]:
    return zip(*(rows[name].to_pylist() for name in names), strict=True)


def _has_any(rows: pa.Table, name: str) -> bool:
    return bool(pc.any(rows[name]).as_py())


def _find_highest(values: pa.ChunkedArray, default: int) -> int:
    most = pc.max(values).as_py()
    return default if most is None else int(most)


def _find_lowest(columns: Iterable[pa.ChunkedArray], others: Iterable[int]) -> int:
    known = [least for least in (pc.min(values).as_py() for values in columns) if least is not None]
    return min((*known, *others), default=UNKNOWN)


def _group_by_consumer(delivered: pa.Table) -> Rows:
    """Summarize by consumer and instance, over all topic partitions; about as many rows as members."""
    facts = ("recorded", "acknowledged", "ended", "dispatched")
    aggregates = [("first", "min"), ("last", "max"), *((name, "any") for name in facts)]
    by = ["consumer", "instance"]
    found = delivered.group_by(by, use_threads=False).aggregate(aggregates)
    found = found.select([*by, *(f"{name}_{how}" for name, how in aggregates)]).rename_columns(
        [*by, *(name for name, _ in aggregates)]
    )
    rows: Rows = found.sort_by([(name, "ascending") for name in by]).to_pylist()
    return rows


def _infer_membership(delivered: pa.Table, topic: str) -> Rows:
    """Infer a membership from deliveries. Raises ``InputError`` if it is larger than the driver folds."""
    if 2 * len(delivered) > MOST_EVENTS:
        raise InputError(
            f"deliveries: consumers received messages on more than {MOST_EVENTS // 2:,} topic partitions together, "
            "for which one process cannot infer a membership. Add table membership, or audit a shorter time."
        )
    return infer_membership(delivered.select(["partition", "consumer", "instance", "first", "last"]).to_pylist(), topic)


def _find_last_deliveries(delivered: pa.Table, topic: str) -> dict[Scope, int]:
    found = delivered.group_by("partition", use_threads=False).aggregate([("last", "max")])
    return {Scope(topic, partition): at for partition, at in _iterate_rows(found, "partition", "last_max")}


def _find_last_served(by_consumer: Rows) -> dict[str, int]:
    return {row["consumer"]: row["last"] for row in sorted(by_consumer, key=lambda row: row["last"])}


def _find_first_served(delivered: pa.Table, topic: str) -> dict[Scope, FirstServed]:
    order = (*_LOWEST, "at", "again")
    rows = delivered.sort_by([(name, "ascending") for name in order])
    found = rows.group_by("partition", use_threads=False).aggregate(
        [("first", "min"), *((name, "first") for name in order)]
    )
    served = found.sort_by("partition")
    return {
        Scope(topic, partition): FirstServed(first, (ledger, entry, batch_index), at, again)
        for partition, first, ledger, entry, batch_index, at, again in _iterate_rows(
            served, "partition", "first_min", *(f"{name}_first" for name in order)
        )
    }


def _find_lacking(by_consumer: Rows, acknowledged_only: bool) -> frozenset[Need]:
    """Return what rules need and deliveries do not record.

    Receipts are recorded if some are, and if no consumer acknowledged deliveries without ever recording one.
    ``acknowledged_only``: there are acknowledgements without a delivery.
    """
    recorded = {row["consumer"] for row in by_consumer if row["recorded"]}
    silent = {row["consumer"] for row in by_consumer if row["acknowledged"]} - recorded
    known_needs = {
        Need.RECEIPTS: bool(recorded) and not silent,
        Need.ACKNOWLEDGEMENTS: any(row["ended"] for row in by_consumer),
        Need.DISPATCH_TIMES: any(row["dispatched"] for row in by_consumer),
        Need.DELIVERIES: bool(by_consumer) or not acknowledged_only,
    }
    return frozenset(need for need, known in known_needs.items() if not known)


def _find_lacking_in_messages(stored: pa.Table, absent: frozenset[str]) -> frozenset[Need]:
    """Return what rules need and messages do not record. ``absent`` are columns that their table does not have.

    If the table has empty key columns but records producers, its messages have no key. Without producers, the source
    does not record keys.
    """
    none = not len(stored)
    known_needs = {
        Need.KEYS: not {"key", "ordering_key"} <= absent and (none or _has_any(stored, "sticky")),
        Need.SOME_KEY: none or _has_any(stored, "keyed"),
        Need.PRODUCERS: none or _has_any(stored, "numbered"),
        Need.STICKY_KEYS: not _has_any(stored, "slotless"),
    }
    return frozenset(need for need, known in known_needs.items() if not known)


def _count_rows(
    summaries: Mapping[str, pa.Table], numbers: Mapping[str, pa.Table], facts: InputFacts, tables: Sequence[str]
) -> Rows:
    count: Counter[tuple[str, bool]] = Counter({("messages", True): facts.copies, (INGEST_TABLE, False): facts.ingest})
    for name, rows in (*summaries.items(), *numbers.items()):
        for valid, n in _iterate_rows(rows, "valid", "count"):
            count[name, valid] += n
    names = [*tables, *([INGEST_TABLE] if facts.ingest else [])]
    return [{"table": name, "valid": count[name, True], "quarantined": count[name, False]} for name in names]


def _measure_extent(stored: pa.Table, served: pa.Table) -> dict[str, int]:
    timed = stored if len(stored) else served
    timed = timed.filter(timed["last"].is_valid())
    return {
        "first": pc.min(timed["first"]).as_py() or 0,
        "last": pc.max(timed["last"]).as_py() or 0,
        "messages": pc.sum(stored["count"]).as_py() or 0,
        "deliveries": pc.sum(served["count"]).as_py() or 0,
    }
