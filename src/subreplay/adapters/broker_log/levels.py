"""Priority levels of consumers, which no line of a log tells: those that explain whom the broker made active.

At level DEBUG a broker tells its consumers who is active. Where the consumers of a Failover subscription all have one
level, the rule P-FO-1 says who that must be. Where it is somebody else, levels differ; the fewest that explain every
announcement are taken. They are a conclusion: what they cannot explain leaves them unknown.
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

MOST: Final = 6
"""Of so many names all orders are tried; of more than that only one level."""
_SETTLED: Final = 100_000
"""So long (µs) after a join or a leave the broker has surely told who is active: it does so at once, and puts off only
its first read (``activeConsumerFailoverDelayTimeMs``)."""
_POLICY: Final = FailoverPolicy(PULSAR_4_0)
Subscription = tuple[str, str]
"""Its topic, without a partition, and its name."""


class Seen(NamedTuple):
    """Who was ``active`` on a topic partition while ``members`` (in order of joining) were connected."""

    scope: Scope
    members: tuple[str, ...]
    active: str


def ranked(membership: pa.Table, announced: pa.Table, end: int) -> pa.Table:
    """The membership with the levels of the subscriptions whose announcements they explain.

    ``announced`` are the events of kind ``ANNOUNCED``, in order; ``end`` (µs) is when the log ends.
    """
    changes, told = _by_subscription(membership), _by_subscription(announced)
    known = {}
    for of in told:
        found = levels(set(_seen(of[0], changes[of], told[of], end)))
        if found is not None and found.keys() >= {row["consumer"] for row in changes[of] if row["event"] == "join"}:
            known[of] = found
    names = zip(*(membership[name].to_pylist() for name in ("topic", "subscription", "consumer")), strict=True)
    priority = [known.get((topic, subscription), {}).get(consumer) for topic, subscription, consumer in names]
    at = membership.schema.get_field_index("priority")
    kind = membership.schema.field(at)
    return membership.set_column(at, kind, pa.array(priority, kind.type))


def levels(seen: set[Seen]) -> Mapping[str, int] | None:
    """The fewest levels (0 is the best) under which each of ``seen`` is as the rule says; None where there are none,
    or where nothing is seen."""
    names = sorted({name for one in seen for name in one.members})
    if not seen:
        return None
    orders = _orders(len(names)) if len(names) <= MOST else [(0,) * len(names)]
    for order in orders:
        level = dict(zip(names, order, strict=True))
        if all(_due(one, level) == one.active for one in seen):
            return level
    return None


def _due(seen: Seen, level: Mapping[str, int]) -> str | None:
    state = _POLICY.start(seen.scope)
    for index, name in enumerate(seen.members):
        state = _POLICY.join(state, Consumer(index, name, level[name]))
    return None if state.active is None else state.active.name


def _orders(count: int) -> list[tuple[int, ...]]:
    """All ways to give so many consumers levels without gaps (1, 3, 13, 75, 541, 4,683), those of few levels first."""
    every = product(range(count), repeat=count)
    return sorted((one for one in every if set(one) == set(range(max(one) + 1))), key=max)


def _seen(topic: str, changes: Sequence[Mapping[str, Any]], told: Sequence[Mapping[str, Any]], end: int) -> list[Seen]:
    """Who was active at the end of each stretch without a join or a leave, where that lasted long enough to be told."""
    found = []
    for partition in sorted({row["partition"] for row in told}):
        members: list[tuple[str, str]] = []
        mine = [row for row in changes if row["partition"] == partition and row["event"] != "rejected"]
        active = [(row["seq"], row["consumer"]) for row in told if row["partition"] == partition]
        for row, after in zip(mine, [*mine[1:], None], strict=True):
            who = row["consumer"], row["instance"]
            members = [*members, who] if row["event"] == "join" else [each for each in members if each != who]
            until, last = (end, None) if after is None else _begins(after)
            names = [name for seq, name in active if last is None or seq < last]
            if members and names and until - row["at"] >= _SETTLED and names[-1] in {name for name, _ in members}:
                found.append(Seen(Scope(topic, partition), tuple(name for name, _ in members), names[-1]))
    return found


def _begins(change: Mapping[str, Any]) -> tuple[int, int]:
    """When a join or a leave was asked for (µs), and the line that tells it."""
    asked = change["since"] is not None and change["since_seq"] is not None
    return (change["since"], change["since_seq"]) if asked else (change["at"], change["seq"])


def _by_subscription(rows: pa.Table) -> dict[Subscription, list[dict[str, Any]]]:
    found: dict[Subscription, list[dict[str, Any]]] = defaultdict(list)
    columns = [name for name in _READ if name in rows.column_names]
    named = rows.select(columns).filter(pc.is_valid(rows["consumer"]))
    for name in {"at", "since"} & set(columns):
        index = named.schema.get_field_index(name)
        named = named.set_column(index, name, named[name].cast(pa.int64()))
    for row in named.sort_by([("seq", "ascending")]).to_pylist():
        found[row["topic"], row["subscription"]].append(row)
    return found


_READ: Final = (
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
