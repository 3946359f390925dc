"""Infer priority levels of consumers, which a log does not contain, from the announced active consumers.

At level DEBUG a broker notifies its consumers of the active one. If all consumers of a Failover subscription have one
level, rule P-FO-1 determines it. If another consumer is active, their levels differ. The fewest levels that explain
every announcement are inferred. If no levels explain all announcements, they stay unknown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.hashing.profiles import PULSAR_4_0
from subreplay.rows.model.rows import Consumer, Scope
from subreplay.semantics.policies.pulsar.failover import FailoverPolicy

MAX_NAMES: Final = 6
"""Up to this number of names all orders of levels are tried; beyond it only equal levels."""
_ANNOUNCEMENT_DELAY: Final = 100_000
"""The time (µs) after a join or a leave by which the broker has announced the active consumer. It announces at once,
and delays only its first read (``activeConsumerFailoverDelayTimeMs``)."""
_POLICY: Final = FailoverPolicy(PULSAR_4_0)
TopicSubscription = tuple[str, str]
"""A topic without its partition, and the name of a subscription."""


class SeenActive(NamedTuple):
    """The ``active`` consumer of a topic partition while ``members`` (in join order) were connected."""

    scope: Scope
    members: tuple[str, ...]
    active: str


def add_levels(membership: pa.Table, announced: pa.Table, end: int) -> pa.Table:
    """Add inferred levels to the membership of subscriptions whose announcements they explain.

    ``announced`` are the events of kind ``ANNOUNCED`` in order. ``end`` (µs) is the end of the log.
    """
    changes, announcements = _group_by_subscription(membership), _group_by_subscription(announced)
    known = {}
    for of in announcements:
        found = infer_levels(set(_find_active(of[0], changes[of], announcements[of], end)))
        if found is not None and found.keys() >= {row["consumer"] for row in changes[of] if row["event"] == "join"}:
            known[of] = found
    names = zip(*(membership[name].to_pylist() for name in ("topic", "subscription", "consumer")), strict=True)
    priority = [known.get((topic, subscription), {}).get(consumer) for topic, subscription, consumer in names]
    at = membership.schema.get_field_index("priority")
    kind = membership.schema.field(at)
    return membership.set_column(at, kind, pa.array(priority, kind.type))


def infer_levels(seen: set[SeenActive]) -> Mapping[str, int] | None:
    """Find the fewest levels (0 is the best) under which the rule explains every one of ``seen``; None where no levels
    do, or where there is none."""
    names = sorted({name for one in seen for name in one.members})
    if not seen:
        return None
    orders = _list_levels(len(names)) if len(names) <= MAX_NAMES else [(0,) * len(names)]
    for order in orders:
        level = dict(zip(names, order, strict=True))
        if all(_predict_active(one, level) == one.active for one in seen):
            return level
    return None


def _predict_active(seen: SeenActive, level: Mapping[str, int]) -> str | None:
    state = _POLICY.start(seen.scope)
    for index, name in enumerate(seen.members):
        state = _POLICY.join(state, Consumer(index, name, level[name]))
    return None if state.active is None else state.active.name


def _list_levels(count: int) -> list[tuple[int, ...]]:
    """List all levels without gaps for so many consumers (1, 3, 13, 75, 541, 4,683), those with few levels first."""
    every = product(range(count), repeat=count)
    return sorted((one for one in every if set(one) == set(range(max(one) + 1))), key=max)


def _find_active(
    topic: str, changes: Sequence[Mapping[str, Any]], announcements: Sequence[Mapping[str, Any]], end: int
) -> list[SeenActive]:  # fmt: skip
    """Find the active consumer at the end of each period without joins and leaves that lasted long enough for an
    announcement."""
    found = []
    for partition in sorted({row["partition"] for row in announcements}):
        members: list[tuple[str, str]] = []
        events = [row for row in changes if row["partition"] == partition and row["event"] != "rejected"]
        active = [(row["seq"], row["consumer"]) for row in announcements if row["partition"] == partition]
        for row, after in zip(events, [*events[1:], None], strict=True):
            member = row["consumer"], row["instance"]
            members = [*members, member] if row["event"] == "join" else [each for each in members if each != member]
            until, last = (end, None) if after is None else _find_request(after)
            names = [name for seq, name in active if last is None or seq < last]
            if (
                members
                and names
                and until - row["at"] >= _ANNOUNCEMENT_DELAY
                and names[-1] in {name for name, _ in members}
            ):
                found.append(SeenActive(Scope(topic, partition), tuple(name for name, _ in members), names[-1]))
    return found


def _find_request(change: Mapping[str, Any]) -> tuple[int, int]:
    """Return the time (µs) and the line of the request for a join or a leave, else those of the change itself."""
    requested = change["since"] is not None and change["since_seq"] is not None
    return (change["since"], change["since_seq"]) if requested else (change["at"], change["seq"])


def _group_by_subscription(rows: pa.Table) -> dict[TopicSubscription, list[dict[str, Any]]]:
    found: dict[TopicSubscription, list[dict[str, Any]]] = defaultdict(list)
    columns = [name for name in _READ_COLUMNS if name in rows.column_names]
    named = rows.select(columns).filter(pc.is_valid(rows["consumer"]))
    for name in {"at", "since"} & set(columns):
        index = named.schema.get_field_index(name)
        named = named.set_column(index, name, named[name].cast(pa.int64()))
    for row in named.sort_by([("seq", "ascending")]).to_pylist():
        found[row["topic"], row["subscription"]].append(row)
    return found


_READ_COLUMNS: Final = (
    "topic",
    "subscription",
    "partition",
    "consumer",
    "instance",
    "event",
    "at",
    "seq",
    "since",
    "since_seq",
)
