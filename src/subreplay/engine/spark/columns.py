"""Column functions, vectorised: hash, slot, partition and owner of keys, exactly as ``subreplay.hashing`` and the
policies tell them.

A column is given by itself or by its name. Keys are text or bytes; what is asked of a null key is null. The functions
run where Spark's Python workers do, so ``subreplay`` must be installed there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql.functions as F
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, SparkSession

from subreplay.audit.input_statistics import MOST_EVENTS, Rows, check_event_count
from subreplay.audit.passes.repeats import members_once
from subreplay.config.run import Subscription
from subreplay.engine.spark.arrow_functions import of_arrays
from subreplay.engine.spark.datasets import nullable
from subreplay.engine.spark.schemas import arrow_schema
from subreplay.errors import ConfigError, InputError
from subreplay.hashing.murmur2 import murmur2_32_array
from subreplay.hashing.murmur3 import MASK_31, murmur3_32_array
from subreplay.rows.canonical import Canonical, columns_of, require_columns
from subreplay.rows.model.columns import NEVER
from subreplay.rows.model.held import told
from subreplay.rows.model.range_table import NOBODY
from subreplay.rows.model.tables import MEMBERSHIP
from subreplay.rows.quarantine import checked, quarantined
from subreplay.rows.scan.members import members
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.base import Policy
from subreplay.semantics.timelines.membership import build_dispatcher_events
from subreplay.semantics.timelines.timeline import OwnerIndex
from subreplay.whatif.scenario import build_plan

ColumnOrName = Column | str
_CONSISTENT_HASH: Final = "pulsar.key_shared.consistent_hash"


def murmur3(key: ColumnOrName) -> Column:
    """The Murmur3 hash of a key (x86, 32 bits, seed 0), from 0 to 2**32 - 1. Pulsar keeps the lower 31 bits of it."""
    return _murmur3()(key)


def slot(key: ColumnOrName, profile: str, policy: str = _CONSISTENT_HASH, **options: object) -> Column:
    """The slot of a key under a policy with slots, its profile and its options, all named as in the run file.

    Raises ``ConfigError`` where the policy does not know the profile or an option, or has no slots.
    """
    slots = _slots(make_policy(policy, profile, **options))

    def of_keys(keys: pa.Array) -> pa.Array:
        return slots(keys)

    return _function("slot", "long", of_keys)(key)


def kafka_partition(key: ColumnOrName, n: int | ColumnOrName) -> Column:
    """The partition, from 0, of ``n`` that Kafka's producers send a key to: murmur2, as its ``BuiltInPartitioner``.

    Raises ``ConfigError`` where ``n`` is a number below 1; where a column has one, the query fails.
    """
    if isinstance(n, int):
        _require_partitions(n)
        n = F.lit(n)
    return _kafka_partition()(key, n)


class _Dispatcher(NamedTuple):
    """Who owned which slot of one topic partition, and what the owners are called."""

    owners: OwnerIndex
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Owners:
    """Who owned what when: a policy folded over a membership, for column ``owner``.

    It is as small as the changes were, and goes to the workers with the function; Spark broadcasts what is larger than
    a megabyte. ``partitions`` are those that it knows, -1 for a topic without partitions.
    """

    policy: Policy
    dispatchers: Mapping[int, _Dispatcher]

    @property
    def partitions(self) -> tuple[int, ...]:
        return tuple(sorted(self.dispatchers))

    def names(self, keys: pa.Array, at: pa.Array, *partition: pa.Array) -> pa.Array:
        """The owner of each key at each time, null where there is none; of each ``partition`` where there are several.
        Without it, the only one there is is meant."""
        if not pa.types.is_timestamp(at.type):
            raise InputError(f"owner: the time is of type {at.type}; give a timestamp")
        known = pc.is_valid(at)
        if self.policy.routing == "slot":
            known = pc.and_(known, pc.is_valid(keys))
        asked = pc.fill_null(partition[0], NOBODY - 1) if partition else pa.array([self._only] * len(keys))
        hashes, times = murmur3_32_array(keys), _nanos(at)
        found = np.full(len(keys), None, object)
        for one, rows in _groups(asked):
            if one in self.dispatchers:
                found[rows] = self._names(self.dispatchers[one], hashes[rows], times[rows])
        return pc.if_else(known, pa.array(found, pa.string()), pa.scalar(None, pa.string()))

    @property
    def _only(self) -> int:
        if len(self.dispatchers) != 1:
            raise InputError(f"owner: there are {len(self.dispatchers):,} partitions; say which one, as third argument")
        return next(iter(self.dispatchers))

    def _names(self, mine: _Dispatcher, hashes: NDArray[np.uint32], times: NDArray[np.int64]) -> NDArray[np.object_]:
        # at the very instant of a change, what it led to counts
        epochs = mine.owners.find_epochs(times, np.full(len(times), NEVER))
        owners = mine.owners.find_owners(self.policy.compute_slots(hashes), hashes, epochs)
        return np.array([*mine.names, None], object)[owners]  # the last is NOBODY's


def owners(
    membership: DataFrame,
    *,
    policy: str = _CONSISTENT_HASH,
    profile: str = Subscription().profile,
    options: Mapping[str, object] | None = None,
    subscription: str | None = None,
    topic: str | None = None,
    partitions: int = 0,
) -> Owners:
    """Fold a policy over a membership (canonical columns): what column ``owner`` looks up.

    ``subscription`` and ``topic`` are needed where the membership has several. ``partitions`` says how many the topic
    has, which a membership whose column ``partition`` is null does not tell; 0: none, or those that are named.

    Raises ``ConfigError`` for an unknown policy, profile or option and for a policy under which nobody owns anything,
    ``InputError`` for a membership that has several subscriptions or topics, or rows that break their contract.
    """
    made = make_policy(policy, profile, **(options or {}))
    if made.routing == "any":
        raise ConfigError(f"{policy}: any consumer may get any message: nobody owns one")
    require_columns("membership", arrow_schema(membership.schema), "membership")
    rows = membership
    for column, value in {"subscription": subscription, "topic": topic}.items():
        rows = rows if value is None else rows.where(F.col(column) == value)
    events = _events(nullable(rows).limit(MOST_EVENTS + 1).toArrow())
    for column in ("subscription", "topic"):
        names = {row[column] for row in events}
        if len(names) != 1:
            what = told(column, names) if names else f"no {column}"
            raise InputError(f"membership has {what}; say which one is meant: {column}=…")
    name = events[0]["topic"]
    numbers = range(partitions) if partitions else () if any(r["partition"] is not None for r in events) else (-1,)
    once, _, _ = members_once(events)
    folded = build_plan("owners", made, build_dispatcher_events(once, [(name, number) for number in numbers]))
    found = {
        scope.partition: _Dispatcher(timeline.index, tuple(consumer.label for consumer in timeline.consumers))
        for scope, timeline in folded.timelines.items()
    }
    return Owners(folded.policy, found)


def owner(key: ColumnOrName, at: ColumnOrName, of: Owners, partition: ColumnOrName | None = None) -> Column:
    """Who owned a key at a time, by name; null where nobody did. ``partition`` is needed where ``of`` knows several.

    The key is the sticky key: the ordering key, else the key. Raises ``ConfigError`` where the partition is missing.
    """
    if partition is None and len(of.dispatchers) != 1:
        raise ConfigError(f"owner: there are {len(of.dispatchers):,} partitions; say which one: partition=…")
    return _owner(of)(key, at, *([] if partition is None else [partition]))


def register(spark: SparkSession, of: Owners | None = None) -> None:
    """Make ``murmur3(key)``, ``slot(key, profile)``, ``slot(key, profile, policy)`` and ``kafka_partition(key, n)``
    functions of SQL, for this session; with ``of``, ``owner(key, at)`` and ``owner(key, at, partition)``, too."""
    functions = {
        "murmur3": _murmur3(),
        "slot": _slot_by_name(),
        "kafka_partition": _kafka_partition(),
    }
    if of is not None:
        functions["owner"] = _owner(of)
    for name, function in functions.items():
        spark.udf.register(name, function)


def _function(name: str, kind: str, function: Callable[..., pa.Array]) -> Callable[..., Column]:
    """A function of Arrow arrays as one of columns. Made when it is asked for: only then it is known whether the
    session is a classic one or Spark Connect's."""
    function.__name__ = name  # which Spark calls the column by
    return of_arrays(function, kind, of_times=name == "owner")


def _murmur3() -> Callable[..., Column]:
    def hashes(keys: pa.Array) -> pa.Array:
        return _known(murmur3_32_array(keys), keys)

    return _function("murmur3", "long", hashes)


def _events(membership: pa.Table) -> Rows:
    """The events of a membership in order. Raises ``InputError`` where a row is not valid, or there are too many."""
    check_event_count([{}] * len(membership))
    columns = columns_of("membership", membership.schema)
    found = pa.Table.from_batches(Canonical(columns, fill=True)(membership.select(columns.names).to_batches()), columns)
    for batch in found.combine_chunks().to_batches():
        keeps = checked("membership", batch)
        if keeps is not None:
            why = quarantined("membership", batch, keeps)["reasons"][0].as_py()[0]
            raise InputError(f"membership: {why['column']} {why['value']}: {why['rule']}; {why['remedy']}")
    whole = [found[f.name] if f.name in columns.names else pa.nulls(len(found), f.type) for f in MEMBERSHIP]
    return members(pa.table(whole, names=MEMBERSHIP.names))


def _kafka_partition() -> Callable[..., Column]:
    def partitions(keys: pa.Array, n: pa.Array) -> pa.Array:
        counts = np.asarray(pc.fill_null(n, 1), np.int64)
        _require_partitions(int(counts.min(initial=1)))
        found = (murmur2_32_array(keys) & np.uint32(MASK_31)) % counts
        return _known(found, keys, n).cast(pa.int32())

    return _function("kafka_partition", "int", partitions)


def _owner(of: Owners) -> Callable[..., Column]:
    def names(keys: pa.Array, at: pa.Array, *partition: pa.Array) -> pa.Array:
        return of.names(keys, at, *partition)

    return _function("owner", "string", names)


def _slot_by_name() -> Callable[..., Column]:
    """Of SQL, where profile and policy are constants in columns."""

    def slots(keys: pa.Array, profiles: pa.Array, *policies: pa.Array) -> pa.Array:
        found = np.zeros(len(keys), np.int64)
        of = policies[0] if policies else pa.array([_CONSISTENT_HASH] * len(keys), pa.string())
        names = pc.binary_join_element_wise(of, profiles, " ")
        for name, rows in _groups(names):
            if name is not None:
                found[rows] = _slots(make_policy(*name.split(" ", 1)))(keys.take(pa.array(rows))).fill_null(0)
        return _known(found, keys, names)

    return _function("slot", "long", slots)


def _slots(policy: Policy) -> Callable[[pa.Array], pa.Array]:
    if policy.routing != "slot":
        raise ConfigError(f"{policy.name} has no slots: it routes by {policy.routing}")
    return lambda keys: _known(policy.compute_slots(murmur3_32_array(keys)), keys)


def _groups(values: pa.Array) -> Iterator[tuple[Any, NDArray[np.int64]]]:
    """Each distinct value, and the numbers of its rows."""
    coded = values.dictionary_encode("encode")
    codes = np.asarray(coded.indices)
    for code, value in enumerate(coded.dictionary.to_pylist()):
        yield value, np.flatnonzero(codes == code)


def _known(values: NDArray[Any], *needed: pa.Array) -> pa.Array:
    """Numbers, null where one of the columns they were made of is."""
    unknown = [column.is_null().to_numpy(zero_copy_only=False) for column in needed]
    return pa.array(values.astype(np.int64), mask=np.logical_or.reduce(unknown))


def _nanos(at: pa.Array) -> NDArray[np.int64]:
    """Timestamps, which Spark has in µs, in ns; what no number of ns can tell is as early, or late, as one can."""
    most = NEVER // 1_000
    return np.asarray(pc.fill_null(at.cast(pa.int64()), 0)).clip(-most, most) * 1_000


def _require_partitions(n: int) -> None:
    if n < 1:
        raise ConfigError(f"kafka_partition: a topic has at least one partition, not {n}")
