"""The traffic profile: what was published, as the few arrays that a what-if needs, without readable keys.

Messages are stored in *runs*: messages of one key, one sticky key and one topic partition, in order of time. What
depends on keys is looked up once for a run, and a scenario is one pass over the arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from subreplay.kernels.inlining import operation
from subreplay.rows.model.columns import Ints
from subreplay.rows.model.rows import Scope

Hashes = NDArray[np.uint32]
Indexes = NDArray[np.int32]
NO_KEY = -1
"""The index of no key, and of an unknown producer."""
WORD_BITS = 48  # bits of an identity that are the pseudonym of the key


@dataclass(frozen=True, eq=False)
class KeyHashes:
    """Distinct keys, one a row, as their hashes.

    All hashes but ``identity`` decide where a message goes.

    ``identity`` (64 bits) distinguishes keys. Its upper 48 bits are the digest keyed with the run's secret, by which
    reports name the key (``KeyMasking.numbers``); the lower 16 are from its FNV hash. ``murmur3`` (32 bits, unsigned)
    decides the slot. Producers choose partitions by one of the hashes (``producer_routing.SCHEMES``).
    """

    identity: NDArray[np.uint64]
    murmur3: Hashes
    murmur2: Hashes
    java: Hashes
    crc32: Hashes
    fnv1a: Hashes
    boost: Hashes
    boost_1_80: Hashes
    java_of_bytes: Hashes
    murmur3_of_bytes: Hashes

    def __len__(self) -> int:
        return len(self.identity)

    def name_keys(self, indexes: Indexes | slice = slice(None)) -> list[str]:
        """Return the pseudonyms by which reports name keys.

        >>> nothing = np.zeros(1, np.uint32)
        >>> KeyHashes(np.array([0xAB0000], np.uint64), *[nothing] * 9).name_keys()
        ['0000000000ab']
        """
        return [f"{number:012x}" for number in (self.identity[indexes] >> np.uint64(64 - WORD_BITS)).tolist()]


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs of messages, one a row.

    Runs of one key stand together.

    Run i has the messages ``begin[i]`` up to ``end[i]`` of the profile, in order of time. ``key`` is the key that the
    application set (its ordering key, else its key). ``sticky`` is the key by which a broker dispatches the entry,
    which differs if a batch mixes keys (row L-BATCH-3). ``routed`` is the key by which a producer chooses a partition.
    All three are indexes in ``keys``; ``NO_KEY`` for none. ``scope`` is an index in ``scopes``. ``producer`` is an
    index in ``producers``, recorded only if no key chooses the partition.
    """

    begin: Ints
    end: Ints
    key: Indexes
    sticky: Indexes
    routed: Indexes
    scope: Indexes
    producer: Indexes

    def __len__(self) -> int:
        return len(self.begin)

    def select(self, rows: Ints | NDArray[np.bool_]) -> Runs:
        """Return some of the runs."""
        return Runs(*(getattr(self, field.name)[rows] for field in fields(self)))


class HottestKey(NamedTuple):
    """The pseudonym of a key, the hash (murmur3) that decides its slot, and its number of messages."""

    word: str
    hash: int
    messages: int


@dataclass(frozen=True, eq=False)
class TrafficProfile:
    """What was published to topic partitions: one element of ``at``, ``entry`` and ``size`` for each message.

    ``at`` is when it was published, ns. ``entry`` is the number of its entry in its ledger, or its offset; messages of
    a batch share it. ``size`` is in bytes, 0 if unknown. ``spread`` is the hash by which a broker of ``pulsar-4.0``
    spreads messages without a sticky key. It is made of producer and sequence id, 0 for all other messages, and empty
    if all have a key. ``secret`` is the digest of nothing under the run's secret (``KeyMasking.check``).
    """

    scopes: tuple[Scope, ...]
    producers: tuple[str, ...]
    keys: KeyHashes
    runs: Runs
    at: Ints
    entry: Ints
    size: Ints
    spread: Hashes
    secret: str = ""

    def __len__(self) -> int:
        return len(self.at)

    @cached_property
    def extent(self) -> tuple[int, int]:
        """When the first and the last message were published (ns); (0, -1) if there are none."""
        return (int(self.at.min()), int(self.at.max())) if len(self) else (0, -1)

    @cached_property
    def run_of(self) -> Indexes:
        """The run of each message."""
        values_out = np.empty(len(self), np.int32)
        order = np.argsort(self.runs.begin)
        values_out[:] = np.repeat(order, (self.runs.end - self.runs.begin)[order])
        return values_out

    def find_hottest(self, count: int) -> list[HottestKey]:
        """Return the keys with the most messages, in descending order."""
        keyed = self.runs.key != NO_KEY
        lengths = (self.runs.end - self.runs.begin)[keyed]
        messages = np.bincount(self.runs.key[keyed], lengths, len(self.keys)).astype(np.int64)
        order = np.lexsort((self.keys.identity, -messages))
        first = order[messages[order] > 0][:count].astype(np.int32)  # a key may belong to an entry only
        columns = self.keys.name_keys(first), self.keys.murmur3[first].tolist(), messages[first].tolist()
        return [HottestKey(*key) for key in zip(*columns, strict=True)]

    @cached_property
    def has_scattered_keys(self) -> bool:
        """Whether a key by which producers choose partitions has messages in several topic partitions.

        Equal keys are always recognised. Two different keys with the same identity may be taken for one, which is very
        rare.
        """
        keyed = self.runs.routed != NO_KEY
        key, scope = self.runs.routed[keyed], self.runs.scope[keyed]
        one = np.zeros(len(self.keys), np.int32)
        one[key] = scope
        return bool((one[key] != scope).any())

    def split_by_key(self, of: int) -> Iterator[TrafficProfile]:
        """Yield the runs in ``of`` parts, with their keys.

        Each key is in one part; the first has all runs without a key.

        Counts of parts, including distinct keys, can therefore be added.
        """
        keyed = self.runs.key != NO_KEY
        home = np.zeros(len(self.runs), np.int64)
        home[keyed] = self.keys.identity[self.runs.key[keyed]] % np.uint64(of)
        order = np.argsort(home, kind="stable")
        for select_values in np.split(order, np.searchsorted(home[order], np.arange(1, of))):
            yield self.select_runs(self.runs.select(select_values))._drop_unused_keys()

    def _drop_unused_keys(self) -> TrafficProfile:
        """Return the profile without keys that no run uses."""
        codes = [self.runs.key, self.runs.sticky, self.runs.routed]
        named = np.zeros(len(self.keys) + 1, np.bool_)  # the last element is for NO_KEY
        for code in codes:
            named[code] = True
        named[NO_KEY] = False
        number = np.where(named, np.cumsum(named) - 1, NO_KEY).astype(np.int32)
        key, sticky, routed = (number[code] for code in codes)
        keys = KeyHashes(*(getattr(self.keys, field.name)[named[:-1]] for field in fields(KeyHashes)))
        return replace(self, keys=keys, runs=replace(self.runs, key=key, sticky=sticky, routed=routed))

    def select_runs(self, runs: Runs) -> TrafficProfile:
        """Return some of the runs with their messages."""
        packed = _pack_runs(runs)

        def select_values(values: NDArray[Any]) -> NDArray[Any]:
            return _lay_out([values], [runs], [packed.begin])

        return replace(
            self,
            runs=packed,
            at=select_values(self.at),
            entry=select_values(self.entry),
            size=select_values(self.size),
            spread=select_values(self.spread),
        )

    @classmethod
    def make_empty(cls, secret: str = "") -> TrafficProfile:
        """Return a profile without messages."""
        ints, codes, hashes = np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.uint32)
        keys = KeyHashes(np.zeros(0, np.uint64), *[hashes] * 9)
        runs = Runs(ints, ints, codes, codes, codes, codes, codes)
        return cls((), (), keys, runs, ints, ints, ints, hashes, secret)


def join_profiles(parts: Sequence[TrafficProfile]) -> TrafficProfile:
    """Join profiles of different messages.

    The cost is linear in messages; keys and runs are sorted.

    Raises ValueError if they were made with different secrets.
    """
    if not parts:
        return TrafficProfile.make_empty()
    if len({part.secret for part in parts}) > 1:
        raise ValueError(
            "profiles made with different secrets cannot be joined, because their key pseudonyms differ. "
            "Use one `keys.secret`."
        )
    if len(parts) == 1:
        return parts[0]
    identity = np.concatenate([part.keys.identity for part in parts])
    _, first, number = np.unique(identity, return_index=True, return_inverse=True)
    keys = KeyHashes(
        *(np.concatenate([getattr(part.keys, field.name) for part in parts])[first] for field in fields(KeyHashes))
    )
    scopes = sorted({scope for part in parts for scope in part.scopes}, key=lambda s: (s.topic, s.partition))
    producers = sorted({name for part in parts for name in part.producers})
    index = {scope: i for i, scope in enumerate(scopes)}
    named = {name: i for i, name in enumerate(producers)}
    runs, known = [], 0
    for part in parts:
        select_values = np.append(number[known : known + len(part.keys)], NO_KEY).astype(
            np.int32
        )  # the last element is for NO_KEY
        of_scope = np.array([index[scope] for scope in part.scopes], np.int32)
        of_producer = np.array([*(named[name] for name in part.producers), NO_KEY], np.int32)
        r = part.runs
        runs.append(
            Runs(
                r.begin,
                r.end,
                select_values[r.key],
                select_values[r.sticky],
                select_values[r.routed],
                of_scope[r.scope],
                of_producer[r.producer],
            )
        )
        known += len(part.keys)
    all_runs = Runs(*(np.concatenate([getattr(r, field.name) for r in runs]) for field in fields(Runs)))
    order = np.argsort(all_runs.key, kind="stable")
    packed = _pack_runs(all_runs.select(order))
    begin = np.empty_like(packed.begin)
    begin[order] = packed.begin  # where the messages of each run are placed
    begins = np.split(begin, np.cumsum([len(part.runs) for part in parts])[:-1])

    def lay_out_column(name: str) -> NDArray[Any]:
        return _lay_out([getattr(part, name) for part in parts], [part.runs for part in parts], begins)

    with ThreadPoolExecutor() as pool:
        at, entry, size, spread = pool.map(lay_out_column, ("at", "entry", "size", "spread"))
    return TrafficProfile(
        scopes=tuple(scopes),
        producers=tuple(producers),
        keys=keys,
        runs=_merge_neighbours(packed, at),
        at=at,
        entry=entry,
        size=size,
        spread=spread,
        secret=parts[0].secret,
    )


def _pack_runs(runs: Runs) -> Runs:
    """Return the runs with positions as if their messages followed one another."""
    ends = np.cumsum(runs.end - runs.begin)
    return replace(runs, begin=ends - (runs.end - runs.begin), end=ends)


def _lay_out(parts: Sequence[NDArray[Any]], runs: Sequence[Runs], begins: Sequence[Ints]) -> NDArray[Any]:
    """Copy the values of several profiles so that each run begins at its position in ``begins``.

    A part without values contributes zeros. If no part has values, the result is empty.
    """
    length = sum(int((of.end - of.begin).sum()) for of in runs) if any(map(len, parts)) else 0
    values_out = np.zeros(length, parts[0].dtype)
    for values, of, begin in zip(parts, runs, begins, strict=True):
        if len(values):
            _copy_runs(values, of.begin, of.end, begin, values_out)
    return values_out


@operation
def _copy_runs(
    values: NDArray[Any], begin: Ints, end: Ints, to: Ints, values_out: NDArray[Any]
) -> None:  # pragma: no cover - compiled
    """Copy each run's ``values`` to where it begins in ``values_out``."""
    for run in range(len(begin)):
        for i in range(begin[run], end[run]):
            values_out[to[run] + i - begin[run]] = values[i]


def _merge_neighbours(runs: Runs, at: Ints) -> Runs:
    """Merge neighbouring runs that differ only in their begin, if the second begins after the first ends."""
    if not len(runs):
        return runs
    same = at[runs.begin[1:]] >= at[runs.end[:-1] - 1]
    for name in ("key", "sticky", "routed", "scope", "producer"):
        codes = getattr(runs, name)
        same &= codes[1:] == codes[:-1]
    first = np.flatnonzero(np.append(True, ~same))
    return replace(runs.select(first), end=np.append(runs.begin[first[1:]], runs.end[-1]))
