"""What a run's tables hold, from one look at each: rows that keep the contract and others, the time they span, topic
partitions, members, and who was served."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.audit.needs import Need
from subreplay.audit.passes.beginning import FirstServed, Position
from subreplay.audit.passes.repeats import members_once
from subreplay.audit.rules.assignments import GroupStory
from subreplay.errors import InputError
from subreplay.rows.model.columns import NEVER, UNKNOWN
from subreplay.rows.model.rows import MembershipEvent, Scope
from subreplay.semantics.timelines.membership import (
    ServedInterval,
    build_dispatcher_events,
    find_unknown_consumers,
    infer_membership,
)

Rows = list[dict[str, Any]]
INGEST: Final = "ingest"
MOST_EVENTS: Final = 1_000_000
"""So many rows of a membership come to the driver, which folds them; about a gigabyte."""
_LOWEST: Final = ("ledger", "entry", "batch_index")


@dataclass(frozen=True)
class Facts:
    """What is known of a run's input tables without a look at their rows.

    ``absent``: columns that the messages' source does not have. ``inferred``: there is no membership, and whoever was
    served is taken to have been there. ``sampled``: the deliveries are a sample. ``ranked``: a priority that the
    membership does not tell is 0, and not unknown. ``ingest``: how many rows an ingest had rejected. ``copies``: how
    many messages are left out as exact copies. ``open_partitions``: those of which an earlier day left something open.
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
    """``counts``: valid and quarantined rows of each table, and what an ingest had rejected already.

    ``extent``: first and last publish time (ns; of a day when nothing was published: delivery time), and how many
    messages and deliveries there are; 0 for none.
    ``events``: membership of every dispatcher that has messages, deliveries, members, or a state of the night before.
    ``lacking``: what rules need and the tables do not have.
    ``uncovered``: dispatchers that made their last delivery before the membership has anybody join.
    ``repeated``, ``contradicted``: rows of the membership that say the same as another one, and otherwise.
    ``find_unknown_consumers``: who was served, and when, though no membership event tells its joining.
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
    unknown_consumers: Mapping[str, ServedInterval]
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


def input_statistics(
    facts: Facts,
    summaries: Mapping[str, pa.Table],
    numbers: Mapping[str, pa.Table],
    members: Rows,
    of_group: Rows | None,
    tables: Sequence[str],
) -> InputStatistics:
    """What the tables hold. ``summaries`` are ``counts.summed`` of messages and deliveries, ``numbers``
    (``intake.NUMBERS``) of the others, in which several rows may be about the same; ``members`` and ``of_group`` the
    valid membership in order (``rows.scan.members``), at most ``MOST_EVENTS`` each (``bounded``). ``tables`` has the
    names of all tables in the order of ``counts``."""
    stored, served = (_valid(summaries[name]) for name in ("messages", "deliveries"))
    delivered = served.filter(served["last"].is_valid())
    by_consumer = _by_consumer(delivered)
    partitions = {*stored["partition"].to_pylist(), *served["partition"].to_pylist(), *facts.open_partitions}
    events, repeated, contradicted = members_once(_inferred(delivered, facts.topic) if facts.inferred else members)
    untold = {row["consumer"] for row in by_consumer if row["instance"] is None}
    joins = [row for row in events if row["event"] == "join"]
    scopes = [(scope.topic, scope.partition) for scope in facts.scopes]
    seen = build_dispatcher_events(events, scopes or [(facts.topic, number) for number in sorted(partitions)], untold)
    group = GroupStory() if of_group is None else GroupStory.of(seen, events, of_group)
    last = {} if facts.scopes else _last(delivered, facts.topic)  # deliveries are counted whatever the topic
    uncovered = frozenset(scope for scope, at in last.items() if _first_join(seen[scope]) > at)
    changes = [event for of_scope in seen.values() for event in of_scope]
    return InputStatistics(
        counts=_counts(summaries, numbers, facts, tables),
        extent=_extent(stored, served),
        events=seen,
        lacking=_lacking(by_consumer, len(delivered) < len(served))
        | _lacking_in_messages(stored, facts.absent)
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
            for partition, *position in _rows(stored, "partition", *_LOWEST)
        },
        served=_first_of(delivered, facts.topic),
        widest=pc.max(summaries["messages"]["widest"]).as_py() or 0,
        plain=not _any(stored, "other"),
        last=_most(delivered["last"], default=UNKNOWN),
        last_served=_last_served(by_consumer),
        first=_least([stored["first"], served["first"]], (event.since.at for event in changes)),
        end=max(
            (
                UNKNOWN,
                *(_most(rows, UNKNOWN) for rows in (stored["last"], served["last"], served["committed"])),
                *(event.at.at for event in changes),
            )
        ),
        group=group,
        copies=facts.copies,
        crowded=_any(stored, "crowded"),
        constant=bool(pc.all(stored["constant"], min_count=1).as_py()),
    )


def lacking_altogether(found: InputStatistics) -> frozenset[Need]:
    """What rules need and the tables do not have, where one of them may be empty: then that alone is the reason."""
    lacking = set(found.lacking)
    if not found.extent["deliveries"]:
        lacking -= {Need.ACKNOWLEDGEMENTS, Need.RECEIPTS, Need.DISPATCH_TIMES, Need.DELIVERIES}
        lacking.add(Need.SOME_DELIVERY)
    if not found.extent["messages"]:
        lacking -= {Need.KEYS, Need.SOME_KEY, Need.STICKY_KEYS, Need.PRODUCERS}
        lacking.add(Need.SOME_MESSAGE)
    return frozenset(lacking)


def bounded(events: Rows) -> Rows:
    """Events that the driver can fold. Raises ``InputError`` where there are more: a group of many partitions whose
    owners change often tells of each at each change."""
    if len(events) > MOST_EVENTS:
        raise InputError(
            f"membership: more than {MOST_EVENTS:,} rows, which is more than one process folds; give a shorter time, "
            "or leave out rows of events assigned, revoked, lost, owner and withdrawn: owners are then what the "
            "assignor makes of the members"
        )
    return events


def _first_join(events: tuple[MembershipEvent, ...]) -> int:
    """When the first join of a dispatcher was asked for, ns."""
    return min((event.since.at for event in events if event.event == "join"), default=NEVER)


def _valid(summary: pa.Table) -> pa.Table:
    return summary.filter(summary["valid"])


def _rows(rows: pa.Table, *names: str) -> Iterable[tuple[Any, ...]]:
    return zip(*(rows[name].to_pylist() for name in names), strict=True)


def _any(rows: pa.Table, name: str) -> bool:
    return bool(pc.any(rows[name]).as_py())


def _most(values: pa.ChunkedArray, default: int) -> int:
    most = pc.max(values).as_py()
    return default if most is None else int(most)


def _least(columns: Iterable[pa.ChunkedArray], others: Iterable[int]) -> int:
    known = [least for least in (pc.min(values).as_py() for values in columns) if least is not None]
    return min((*known, *others), default=UNKNOWN)


def _by_consumer(delivered: pa.Table) -> Rows:
    """By consumer and instance, whatever the topic partition; as many as members joined, or a few more."""
    facts = ("recorded", "acknowledged", "ended", "dispatched")
    asked = [("first", "min"), ("last", "max"), *((name, "any") for name in facts)]
    by = ["consumer", "instance"]
    found = delivered.group_by(by, use_threads=False).aggregate(asked)
    found = found.select([*by, *(f"{name}_{how}" for name, how in asked)]).rename_columns(
        [*by, *(name for name, _ in asked)]
    )
    rows: Rows = found.sort_by([(name, "ascending") for name in by]).to_pylist()
    return rows


def _inferred(delivered: pa.Table, topic: str) -> Rows:
    """A membership that nobody recorded. Raises ``InputError`` where it is more than the driver folds."""
    if 2 * len(delivered) > MOST_EVENTS:
        raise InputError(
            f"deliveries: consumers were served on more than {MOST_EVENTS // 2:,} topic partitions together, of which "
            "one process cannot infer who was there; give the membership, or a shorter time"
        )
    return infer_membership(delivered.select(["partition", "consumer", "instance", "first", "last"]).to_pylist(), topic)


def _last(delivered: pa.Table, topic: str) -> dict[Scope, int]:
    found = delivered.group_by("partition", use_threads=False).aggregate([("last", "max")])
    return {Scope(topic, partition): at for partition, at in _rows(found, "partition", "last_max")}


def _last_served(by_consumer: Rows) -> dict[str, int]:
    return {row["consumer"]: row["last"] for row in sorted(by_consumer, key=lambda row: row["last"])}


def _first_of(delivered: pa.Table, topic: str) -> dict[Scope, FirstServed]:
    order = (*_LOWEST, "at", "again")
    rows = delivered.sort_by([(name, "ascending") for name in order])
    found = rows.group_by("partition", use_threads=False).aggregate(
        [("first", "min"), *((name, "first") for name in order)]
    )
    served = found.sort_by("partition")
    return {
        Scope(topic, partition): FirstServed(first, (ledger, entry, batch_index), at, again)
        for partition, first, ledger, entry, batch_index, at, again in _rows(
            served, "partition", "first_min", *(f"{name}_first" for name in order)
        )
    }


def _lacking(by_consumer: Rows, acknowledged_only: bool) -> frozenset[Need]:
    """What rules need and deliveries do not tell. Receipts are recorded if some are, and nobody acknowledged deliveries
    without ever recording one. ``acknowledged_only``: there are acknowledgements without a delivery."""
    recorded = {row["consumer"] for row in by_consumer if row["recorded"]}
    silent = {row["consumer"] for row in by_consumer if row["acknowledged"]} - recorded
    told = {
        Need.RECEIPTS: bool(recorded) and not silent,
        Need.ACKNOWLEDGEMENTS: any(row["ended"] for row in by_consumer),
        Need.DISPATCH_TIMES: any(row["dispatched"] for row in by_consumer),
        Need.DELIVERIES: bool(by_consumer) or not acknowledged_only,
    }
    return frozenset(need for need, known in told.items() if not known)


def _lacking_in_messages(stored: pa.Table, absent: frozenset[str]) -> frozenset[Need]:
    """What rules need and messages do not tell; ``absent`` are columns that their table does not have. A table with the
    columns of keys and nothing in them tells of keys where it tells of producers: then no message has a key, and else
    the source has none."""
    none = not len(stored)
    told = {
        Need.KEYS: not {"key", "ordering_key"} <= absent and (none or _any(stored, "sticky")),
        Need.SOME_KEY: none or _any(stored, "keyed"),
        Need.PRODUCERS: none or _any(stored, "numbered"),
        Need.STICKY_KEYS: not _any(stored, "slotless"),
    }
    return frozenset(need for need, known in told.items() if not known)


def _counts(
    summaries: Mapping[str, pa.Table], numbers: Mapping[str, pa.Table], facts: Facts, tables: Sequence[str]
) -> Rows:
    count: Counter[tuple[str, bool]] = Counter({("messages", True): facts.copies, (INGEST, False): facts.ingest})
    for name, rows in (*summaries.items(), *numbers.items()):
        for valid, n in _rows(rows, "valid", "count"):
            count[name, valid] += n
    names = [*tables, *([INGEST] if facts.ingest else [])]
    return [{"table": name, "valid": count[name, True], "quarantined": count[name, False]} for name in names]


def _extent(stored: pa.Table, served: pa.Table) -> dict[str, int]:
    timed = stored if len(stored) else served
    timed = timed.filter(timed["last"].is_valid())
    return {
        "first": pc.min(timed["first"]).as_py() or 0,
        "last": pc.max(timed["last"]).as_py() or 0,
        "messages": pc.sum(stored["count"]).as_py() or 0,
        "deliveries": pc.sum(served["count"]).as_py() or 0,
    }
