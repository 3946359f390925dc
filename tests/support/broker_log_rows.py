"""What the events of one topic partition of a broker's log tell, folded in one go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.broker_log.located_rows import (
    BATCH_EVENTS,
    LOCATED_MEMBERSHIP,
    MIN_STEP_BACK,
    build_located_membership,
    infer_types,
    split_by_consumer,
)
from subreplay.adapters.broker_log.log_deliveries import LOCATED_DELIVERIES, DeliveryFold, FoldCounts
from subreplay.adapters.broker_log.log_members import find_members
from subreplay.adapters.broker_log.numbered_events import LineNumbering
from subreplay.rows.model.tables import DELIVERIES, MEMBERSHIP

ENTRIES: Final = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("ledger", pa.int64(), nullable=False),
        pa.field("entry", pa.int64(), nullable=False),
        pa.field("messages", pa.int64()),  # in the entry; 1 also of one that is no batch
        pa.field("sticky_hash", pa.int64()),  # of its first message's key, where logged (Key_Shared of 4.x)
    ]
)
"""What a log knows of messages: where they are. Keys, producers and times are in the topic."""


@dataclass(frozen=True)
class Rows:
    """What the events of one topic partition tell.

    ``membership`` and ``deliveries`` are canonical. Of ``unnamed_membership`` and ``unnamed_deliveries`` the log does
    not tell the consumer's name: members who did not leave within it, requests that were refused, and Shared dispatches
    to one of several members on one IO thread; their ``file`` and ``line`` are those of the join, of the refusal, or
    of the last step of the dispatch. ``entries`` (``ENTRIES``) is what is known of messages. ``backwards`` is
    the largest step (ms) that a file's clock went back, by file. ``counts`` are of what is no row, by subscription.
    """

    membership: pa.Table
    unnamed_membership: pa.Table
    deliveries: pa.Table
    unnamed_deliveries: pa.Table
    entries: pa.Table
    backwards: dict[str, int]
    counts: dict[str, FoldCounts]


def topics(found: pa.Table) -> list[tuple[str, int]]:
    """The topic partitions that ``events`` are of."""
    pairs = found.group_by(["topic", "partition"]).aggregate([])
    return sorted((row["topic"], row["partition"]) for row in pairs.to_pylist() if row["topic"] is not None)


def of_topic(found: pa.Table, topic: str, partition: int) -> pa.Table:
    """The ``events`` of one topic partition, and those of connections, which have no topic."""
    mine = pc.and_(pc.equal(found["topic"], topic), pc.equal(found["partition"], partition))
    return found.filter(pc.or_kleene(mine, pc.is_null(found["topic"])))


def in_order(found: pa.Table) -> tuple[pa.Table, dict[str, int]]:
    """Events in the order in which they happened, with ``seq``, the number of their line in it (``order``).

    And how far (ms) the clocks of files went back.
    """
    firsts = found.group_by("file").aggregate([("at", "min")]).sort_by([("at_min", "ascending"), ("file", "ascending")])
    names = firsts["file"].to_pylist()
    file = pc.index_in(found["file"], value_set=pa.array(names, pa.string())).to_numpy()
    line, millis = found["line"].to_numpy(), found["at"].cast(pa.int64()).to_numpy() // 1_000
    seq, back = np.empty(len(found), np.int64), dict[str, int]()
    for number, name in enumerate(names):
        mine = np.flatnonzero(file == number)
        mine = mine[np.argsort(line[mine], kind="stable")]
        order = LineNumbering(number, len(names))
        seq[mine] = order.number(line[mine], millis[mine])
        back[name] = order.back
    ordered = found.take(pa.array(np.lexsort((line, seq)))).append_column("seq", pa.array(np.sort(seq)))
    return ordered, {name: step for name, step in back.items() if step >= MIN_STEP_BACK}


def rows(found: pa.Table, *, names: Mapping[str, str] | None = None, types: Mapping[str, str] | None = None) -> Rows:
    """Canonical rows of the ``events`` of one topic partition (``of_topic``).

    ``names`` (consumer by ``instance``, ``address#consumer id``) and ``types`` (by subscription) tell what a log does
    not: topic statistics have both. A type that is not given is ``Key_Shared`` where the log shows that dispatcher,
    else ``unknown``. Raises ``ValueError`` where the events are of more than one topic partition.
    """
    ordered, backwards = in_order(found)
    topic_partitions = topics(ordered)
    if len(topic_partitions) > 1:
        raise ValueError(f"events of {len(topic_partitions)} topic partitions: fold each by itself")
    if not topic_partitions:
        return _nothing(backwards)
    topic, partition = topic_partitions[0]
    who = find_members(ordered, names)
    subscriptions = sorted(s for s in pc.unique(ordered["subscription"]).to_pylist() if s is not None)
    kinds = infer_types(ordered) | dict(types or {})
    tables, counts = [LOCATED_DELIVERIES.empty_table()], {}
    for subscription in subscriptions:
        mine = ordered.filter(pc.equal(ordered["subscription"], subscription))
        fold = DeliveryFold(topic, partition, subscription, [s for s in who.sessions if s.subscription == subscription])
        tables += [fold.add(mine.slice(start, BATCH_EVENTS)) for start in range(0, len(mine), BATCH_EVENTS)]
        tables.append(fold.finish())
        counts[subscription] = fold.counts
    delivered = pa.concat_tables(tables)
    return Rows(
        *split_by_consumer(build_located_membership(who, topic, partition, kinds, ordered), MEMBERSHIP),
        *split_by_consumer(delivered, DELIVERIES),
        _entries(ordered, topic, partition),
        backwards,
        counts,
    )


def _nothing(backwards: dict[str, int]) -> Rows:
    joined, delivered = (
        split_by_consumer(LOCATED_MEMBERSHIP.empty_table(), MEMBERSHIP),
        split_by_consumer(LOCATED_DELIVERIES.empty_table(), DELIVERIES),
    )
    return Rows(*joined, *delivered, ENTRIES.empty_table(), backwards, {})


def _entries(ordered: pa.Table, topic: str, partition: int) -> pa.Table:
    dispatched = ordered.filter(pc.is_in(ordered["kind"], value_set=pa.array(["adding", "added", "sending"])))
    known = dispatched.group_by(["ledger", "entry"]).aggregate([("count", "max"), ("hash", "max")])
    known = known.sort_by([("ledger", "ascending"), ("entry", "ascending")])
    columns = {
        "topic": pa.array([topic] * len(known), pa.string()),
        "partition": pa.array([partition] * len(known), pa.int32()),
    }
    return pa.table(
        [*columns.values(), *(known[name] for name in ("ledger", "entry", "count_max", "hash_max"))], schema=ENTRIES
    )
