"""Vectorised column functions for the hash, slot, partition and owner of keys, as in ``subreplay.hashing`` and the
policies.

A column is passed as such or by name. Keys are text or bytes; the result for a null key is null. The functions run in
Spark's Python workers, so ``subreplay`` must be installed there.
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
from subreplay.audit.passes.repeats import drop_repeated_members
from subreplay.config.run import Subscription
from subreplay.engine.spark.arrow_functions import create_column_function
from subreplay.engine.spark.datasets import make_nullable
from subreplay.engine.spark.schemas import arrow_schema
from subreplay.errors import ConfigError, InputError
from subreplay.hashing.murmur2 import murmur2_32_array
from subreplay.hashing.murmur3 import MASK_31, murmur3_32_array
from subreplay.rows.canonical import Canonical, require_columns, select_canonical_columns
from subreplay.rows.model.columns import NEVER
from subreplay.rows.model.range_table import NOBODY
from subreplay.rows.model.stored_rows import list_names
from subreplay.rows.model.tables import MEMBERSHIP
from subreplay.rows.quarantine import find_valid_rows, make_quarantine
from subreplay.rows.scan.members import list_members
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.base import Policy
from subreplay.semantics.timelines.membership import build_dispatcher_events
from subreplay.semantics.timelines.timeline import OwnerIndex
from subreplay.whatif.scenario import build_plan

ColumnOrName = Column | str
_CONSISTENT_HASH: Final = "pulsar.key_shared.consistent_hash"


def murmur3(key: ColumnOrName) -> Column:
    """Compute the Murmur3 hash of a key (x86, 32 bits, seed 0), from 0 to 2**32 - 1. Pulsar uses its lower 31 bits."""
    return _build_murmur3()(key)


def slot(key: ColumnOrName, profile: str, policy: str = _CONSISTENT_HASH, **options: object) -> Column:
    """Compute the slot of a key under a policy with slots. Profile, policy and options are named as in the run file.

    Raises ``ConfigError`` if the policy has no slots, or does not know the profile or an option.
    """
    slots = _build_slot_function(make_policy(policy, profile, **options))

    def compute(keys: pa.Array) -> pa.Array:
        return slots(keys)

    return _create_function("slot", "long", compute)(key)


def kafka_partition(key: ColumnOrName, n: int | ColumnOrName) -> Column:
    """Compute the partition, from 0, to which Kafka producers send a key if there are ``n``: murmur2, as
    ``BuiltInPartitioner``.

    Raises ``ConfigError`` if ``n`` is a number below 1. The query fails if a column contains one.
    """
    if isinstance(n, int):
        _require_partitions(n)
        n = F.lit(n)
    return _build_kafka_partition()(key, n)


class _Dispatcher(NamedTuple):
    """The owners of the slots of one topic partition, and their names."""

    owners: OwnerIndex
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Owners:
    """The owners of slots over time: a policy applied to a membership, for column function ``owner``.

    Its size grows with the number of changes. It is sent to the workers with the function; Spark broadcasts it if it is
    larger than a megabyte. ``partitions`` are the partitions that it contains, -1 for a topic without partitions.
    """

    policy: Policy
    dispatchers: Mapping[int, _Dispatcher]

    @property
    def partitions(self) -> tuple[int, ...]:
        return tuple(sorted(self.dispatchers))

    def names(self, keys: pa.Array, at: pa.Array, *partition: pa.Array) -> pa.Array:
        """Find the owner of each key at each time, null if there is none.

        ``partition`` selects the partition of each row. It may be omitted if there is only one.
        """
        if not pa.types.is_timestamp(at.type):
            raise InputError(f"owner: the time has type {at.type}. Pass a timestamp.")
        known = pc.is_valid(at)
        if self.policy.routing == "slot":
            known = pc.and_(known, pc.is_valid(keys))
        requested = pc.fill_null(partition[0], NOBODY - 1) if partition else pa.array([self._only] * len(keys))
        hashes, times = murmur3_32_array(keys), _to_nanoseconds(at)
        found = np.full(len(keys), None, object)
        for one, rows in _group_rows(requested):
            if one in self.dispatchers:
                found[rows] = self._find_names(self.dispatchers[one], hashes[rows], times[rows])
        return pc.if_else(known, pa.array(found, pa.string()), pa.scalar(None, pa.string()))

    @property
    def _only(self) -> int:
        if len(self.dispatchers) != 1:
            raise InputError(
                f"owner: there are {len(self.dispatchers):,} partitions. Pass the partition as third argument."
            )
        return next(iter(self.dispatchers))

    def _find_names(
        self, mine: _Dispatcher, hashes: NDArray[np.uint32], times: NDArray[np.int64]
    ) -> NDArray[np.object_]:
        # at the instant of a change, the state after it counts
        epochs = mine.owners.find_epochs(times, np.full(len(times), NEVER))
        owners = mine.owners.find_owners(self.policy.compute_slots(hashes), hashes, epochs)
        return np.array([*mine.names, None], object)[owners]  # the last item is for NOBODY


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
    """Apply a policy to a membership (canonical columns), for column function ``owner``.

    ``subscription`` and ``topic`` are needed if the membership has several. ``partitions`` is the topic's number of
    partitions, which a membership with a null ``partition`` does not contain; 0: none, or those in the membership.

    Raises ``ConfigError`` for an unknown policy, profile or option, and for a policy without owners. Raises
    ``InputError`` if the membership has several subscriptions or topics, or rows that violate their contract.
    """
    made = make_policy(policy, profile, **(options or {}))
    if made.routing == "any":
        raise ConfigError(
            f"{policy}: under this policy any consumer may get any message, so messages have no owner. Choose another "
            "policy."
        )
    require_columns("membership", arrow_schema(membership.schema), "membership")
    rows = membership
    for column, value in {"subscription": subscription, "topic": topic}.items():
        rows = rows if value is None else rows.where(F.col(column) == value)
    events = _read_events(make_nullable(rows).limit(MOST_EVENTS + 1).toArrow())
    for column in ("subscription", "topic"):
        names = {row[column] for row in events}
        if len(names) != 1:
            what = list_names(column, names) if names else f"no {column}"
            raise InputError(f"membership has {what}. Pass the one to use: {column}=…")
    name = events[0]["topic"]
    numbers = range(partitions) if partitions else () if any(r["partition"] is not None for r in events) else (-1,)
    once, _, _ = drop_repeated_members(events)
    folded = build_plan("owners", made, build_dispatcher_events(once, [(name, number) for number in numbers]))
    found = {
        scope.partition: _Dispatcher(timeline.index, tuple(consumer.label for consumer in timeline.consumers))
        for scope, timeline in folded.timelines.items()
    }
    return Owners(folded.policy, found)


def owner(key: ColumnOrName, at: ColumnOrName, of: Owners, partition: ColumnOrName | None = None) -> Column:
    """Find the name of the owner of a key at a time; null if there is none.

    ``partition`` is needed if ``of`` has several. The key is the sticky key: the ordering key, else the key. Raises
    ``ConfigError`` if the partition is missing.
    """
    if partition is None and len(of.dispatchers) != 1:
        raise ConfigError(f"owner: there are {len(of.dispatchers):,} partitions. Pass one: partition=…")
    return _build_owner(of)(key, at, *([] if partition is None else [partition]))


def register(spark: SparkSession, of: Owners | None = None) -> None:
    """Register SQL functions in this session: ``murmur3(key)``, ``slot(key, profile)``, ``slot(key, profile, policy)``
    and ``kafka_partition(key, n)``. With ``of``, also register ``owner(key, at)`` and ``owner(key, at, partition)``."""
    functions = {
        "murmur3": _build_murmur3(),
        "slot": _build_slot(),
        "kafka_partition": _build_kafka_partition(),
    }
    if of is not None:
        functions["owner"] = _build_owner(of)
    for name, function in functions.items():
        spark.udf.register(name, function)


def _create_function(name: str, kind: str, function: Callable[..., pa.Array]) -> Callable[..., Column]:
    """Create a column function from a function of Arrow arrays.

    It is created on each call, because only then the kind of the session (classic or Spark Connect) is known.
    """
    function.__name__ = name  # Spark names the column after it
    return create_column_function(function, kind, uses_times=name == "owner")


def _build_murmur3() -> Callable[..., Column]:
    def hashes(keys: pa.Array) -> pa.Array:
        return _mask_unknown(murmur3_32_array(keys), keys)

    return _create_function("murmur3", "long", hashes)


def _read_events(membership: pa.Table) -> Rows:
    """Read the events of a membership in order. Raises ``InputError`` if a row is invalid or there are too many
    rows."""
    check_event_count([{}] * len(membership))
    columns = select_canonical_columns("membership", membership.schema)
    found = pa.Table.from_batches(Canonical(columns, fill=True)(membership.select(columns.names).to_batches()), columns)
    for batch in found.combine_chunks().to_batches():
        keeps = find_valid_rows("membership", batch)
        if keeps is not None:
            why = make_quarantine("membership", batch, keeps)["reasons"][0].as_py()[0]
            raise InputError(f"membership: {why['column']} {why['value']}: {why['rule']}; {why['remedy']}")
    whole = [found[f.name] if f.name in columns.names else pa.nulls(len(found), f.type) for f in MEMBERSHIP]
    return list_members(pa.table(whole, names=MEMBERSHIP.names))


def _build_kafka_partition() -> Callable[..., Column]:
    def partitions(keys: pa.Array, n: pa.Array) -> pa.Array:
        counts = np.asarray(pc.fill_null(n, 1), np.int64)
        _require_partitions(int(counts.min(initial=1)))
        found = (murmur2_32_array(keys) & np.uint32(MASK_31)) % counts
        return _mask_unknown(found, keys, n).cast(pa.int32())

    return _create_function("kafka_partition", "int", partitions)


def _build_owner(of: Owners) -> Callable[..., Column]:
    def names(keys: pa.Array, at: pa.Array, *partition: pa.Array) -> pa.Array:
        return of.names(keys, at, *partition)

    return _create_function("owner", "string", names)


def _build_slot() -> Callable[..., Column]:
    """Build the SQL function, for which profile and policy are constants in columns."""

    def slots(keys: pa.Array, profiles: pa.Array, *policies: pa.Array) -> pa.Array:
        found = np.zeros(len(keys), np.int64)
        of = policies[0] if policies else pa.array([_CONSISTENT_HASH] * len(keys), pa.string())
        names = pc.binary_join_element_wise(of, profiles, " ")
        for name, rows in _group_rows(names):
            if name is not None:
                found[rows] = _build_slot_function(make_policy(*name.split(" ", 1)))(
                    keys.take(pa.array(rows))
                ).fill_null(0)
        return _mask_unknown(found, keys, names)

    return _create_function("slot", "long", slots)


def _build_slot_function(policy: Policy) -> Callable[[pa.Array], pa.Array]:
    if policy.routing != "slot":
        raise ConfigError(
            f"{policy.name} has no slots, because it routes by {policy.routing}. Choose a policy with slots."
        )
    return lambda keys: _mask_unknown(policy.compute_slots(murmur3_32_array(keys)), keys)


def _group_rows(values: pa.Array) -> Iterator[tuple[Any, NDArray[np.int64]]]:
    """Yield each distinct value with the numbers of its rows."""
    coded = values.dictionary_encode("encode")
    codes = np.asarray(coded.indices)
    for code, value in enumerate(coded.dictionary.to_pylist()):
        yield value, np.flatnonzero(codes == code)


def _mask_unknown(values: NDArray[Any], *needed: pa.Array) -> pa.Array:
    """Build an array of numbers with null wherever one of the ``needed`` columns is null."""
    unknown = [column.is_null().to_numpy(zero_copy_only=False) for column in needed]
    return pa.array(values.astype(np.int64), mask=np.logical_or.reduce(unknown))


def _to_nanoseconds(at: pa.Array) -> NDArray[np.int64]:
    """Convert Spark's timestamps (µs) to ns, clipped to the range that ns can represent."""
    most = NEVER // 1_000
    return np.asarray(pc.fill_null(at.cast(pa.int64()), 0)).clip(-most, most) * 1_000


def _require_partitions(n: int) -> None:
    if n < 1:
        raise ConfigError(f"kafka_partition: a topic has at least one partition, not {n}")
