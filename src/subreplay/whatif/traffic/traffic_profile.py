"""The traffic profile: what was published, as few arrays as a what-if needs, without a key in the clear.

Messages lie in *runs*: the messages of one key, one sticky key and one topic partition, in order of time. So whatever
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
"""The index of no key, and of a producer that is not told."""
WORD_BITS = 48  # of an identity: the keyed digest by which reports name the key


@dataclass(frozen=True, eq=False)
class Keys:
    """Distinct keys, one a row, by what their hashes are; all but ``identity`` decide where a message goes.

    ``identity`` (64 bits) tells keys apart: the upper 48 bits are the digest keyed with the run's secret, by which
    reports name the key (``KeyWords.numbers``), the lower 16 are of its FNV hash. ``murmur3`` (32 bits, unsigned)
    decides the slot. By all of them producers choose partitions (``producer_routing.SCHEMES``).
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

    def words(self, indexes: Indexes | slice = slice(None)) -> list[str]:
        """The digests by which reports name keys.

        >>> nothing = np.zeros(1, np.uint32)
        >>> Keys(np.array([0xAB0000], np.uint64), *[nothing] * 9).words()
        ['0000000000ab']
        """
        return [f"{number:012x}" for number in (self.identity[indexes] >> np.uint64(64 - WORD_BITS)).tolist()]


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs of messages, one a row; those of one key stand together.

    Run i has the messages ``begin[i]`` up to ``end[i]`` of the profile, in order of time. ``key`` is the key that the
    application meant (its ordering key, else its key), ``sticky`` the one by which a broker dispatches the entry
    (another one where a batch mixes keys, row L-BATCH-3), ``routed`` the one by which a producer chooses a partition:
    indexes in ``keys``, ``NO_KEY`` for none. ``scope`` is an index in ``scopes``; ``producer`` one in ``producers``,
    told only where no key chooses the partition.
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

    def at(self, rows: Ints | NDArray[np.bool_]) -> Runs:
        """Some of them."""
        return Runs(*(getattr(self, field.name)[rows] for field in fields(self)))


class HotKey(NamedTuple):
    """A key in words, the hash (murmur3) that decides its slot, and how many messages it has."""

    word: str
    hash: int
    messages: int


@dataclass(frozen=True, eq=False)
class TrafficProfile:
    """What was published to topic partitions, exactly: one element of ``at``, ``entry``, ``size`` a message.

    ``at``: when it was published, ns. ``entry``: the number of its entry in its ledger, or its offset; messages of a
    batch share it. ``size``: bytes, 0 where unknown. ``spread``: the hash by which a broker of ``pulsar-4.0`` spreads
    messages without a sticky key (of producer and sequence id), 0 for all others; empty where all have one. ``secret``
    is the digest of nothing under the run's secret (``KeyWords.check``).
    """

    scopes: tuple[Scope, ...]
    producers: tuple[str, ...]
    keys: Keys
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
        """When the first and the last message were published (ns); (0, -1) for none."""
        return (int(self.at.min()), int(self.at.max())) if len(self) else (0, -1)

    @cached_property
    def run_of(self) -> Indexes:
        """The run of each message."""
        found = np.empty(len(self), np.int32)
        order = np.argsort(self.runs.begin)
        found[:] = np.repeat(order, (self.runs.end - self.runs.begin)[order])
        return found

    def hottest(self, few: int) -> list[HotKey]:
        """Its keys that have the most messages, the most first."""
        keyed = self.runs.key != NO_KEY
        lengths = (self.runs.end - self.runs.begin)[keyed]
        messages = np.bincount(self.runs.key[keyed], lengths, len(self.keys)).astype(np.int64)
        order = np.lexsort((self.keys.identity, -messages))
        first = order[messages[order] > 0][:few].astype(np.int32)  # a key may be of an entry only
        told = self.keys.words(first), self.keys.murmur3[first].tolist(), messages[first].tolist()
        return [HotKey(*key) for key in zip(*told, strict=True)]

    @cached_property
    def scattered(self) -> bool:
        """Whether a key by which producers choose a partition has messages in several topic partitions: of keys that
        are alike it is always told, and of very few others it may be, whose identities are the same."""
        keyed = self.runs.routed != NO_KEY
        key, scope = self.runs.routed[keyed], self.runs.scope[keyed]
        one = np.zeros(len(self.keys), np.int32)
        one[key] = scope
        return bool((one[key] != scope).any())

    def parts(self, of: int) -> Iterator[TrafficProfile]:
        """The runs in ``of`` parts, of which each key is in one, with the keys that they name; all without a key are in
        the first.

        So what is counted of parts may be added up, distinct keys too.
        """
        keyed = self.runs.key != NO_KEY
        home = np.zeros(len(self.runs), np.int64)
        home[keyed] = self.keys.identity[self.runs.key[keyed]] % np.uint64(of)
        order = np.argsort(home, kind="stable")
        for mine in np.split(order, np.searchsorted(home[order], np.arange(1, of))):
            yield self.taken(self.runs.at(mine))._with_its_keys()

    def _with_its_keys(self) -> TrafficProfile:
        """The same without keys that no run names."""
        codes = [self.runs.key, self.runs.sticky, self.runs.routed]
        named = np.zeros(len(self.keys) + 1, np.bool_)  # the last is NO_KEY's
        for code in codes:
            named[code] = True
        named[NO_KEY] = False
        number = np.where(named, np.cumsum(named) - 1, NO_KEY).astype(np.int32)
        key, sticky, routed = (number[code] for code in codes)
        keys = Keys(*(getattr(self.keys, field.name)[named[:-1]] for field in fields(Keys)))
        return replace(self, keys=keys, runs=replace(self.runs, key=key, sticky=sticky, routed=routed))

    def taken(self, runs: Runs) -> TrafficProfile:
        """Some of its runs, with the messages that they have."""
        packed = _packed(runs)

        def mine(values: NDArray[Any]) -> NDArray[Any]:
            return _laid_out([values], [runs], [packed.begin])

        return replace(
            self, runs=packed, at=mine(self.at), entry=mine(self.entry), size=mine(self.size), spread=mine(self.spread)
        )

    @classmethod
    def empty(cls, secret: str = "") -> TrafficProfile:
        """That of no message."""
        ints, codes, hashes = np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.uint32)
        keys = Keys(np.zeros(0, np.uint64), *[hashes] * 9)
        runs = Runs(ints, ints, codes, codes, codes, codes, codes)
        return cls((), (), keys, runs, ints, ints, ints, hashes, secret)


def joined(parts: Sequence[TrafficProfile]) -> TrafficProfile:
    """Profiles of different messages as one. Linear in messages; keys and runs are sorted.

    Raises ValueError if they were made under different secrets.
    """
    if not parts:
        return TrafficProfile.empty()
    if len({part.secret for part in parts}) > 1:
        raise ValueError("profiles made under different secrets cannot be joined: their keys cannot be told apart")
    if len(parts) == 1:
        return parts[0]
    identity = np.concatenate([part.keys.identity for part in parts])
    _, first, number = np.unique(identity, return_index=True, return_inverse=True)
    keys = Keys(*(np.concatenate([getattr(part.keys, field.name) for part in parts])[first] for field in fields(Keys)))
    scopes = sorted({scope for part in parts for scope in part.scopes}, key=lambda s: (s.topic, s.partition))
    producers = sorted({name for part in parts for name in part.producers})
    index = {scope: i for i, scope in enumerate(scopes)}
    named = {name: i for i, name in enumerate(producers)}
    runs, known = [], 0
    for part in parts:
        mine = np.append(number[known : known + len(part.keys)], NO_KEY).astype(np.int32)  # the last is NO_KEY's
        of_scope = np.array([index[scope] for scope in part.scopes], np.int32)
        of_producer = np.array([*(named[name] for name in part.producers), NO_KEY], np.int32)
        r = part.runs
        runs.append(
            Runs(
                r.begin, r.end, mine[r.key], mine[r.sticky], mine[r.routed], of_scope[r.scope], of_producer[r.producer]
            )
        )
        known += len(part.keys)
    together = Runs(*(np.concatenate([getattr(r, field.name) for r in runs]) for field in fields(Runs)))
    order = np.argsort(together.key, kind="stable")
    packed = _packed(together.at(order))
    begin = np.empty_like(packed.begin)
    begin[order] = packed.begin  # where the messages of each run come to lie
    begins = np.split(begin, np.cumsum([len(part.runs) for part in parts])[:-1])

    def laid_out(name: str) -> NDArray[Any]:
        return _laid_out([getattr(part, name) for part in parts], [part.runs for part in parts], begins)

    with ThreadPoolExecutor() as pool:
        at, entry, size, spread = pool.map(laid_out, ("at", "entry", "size", "spread"))
    return TrafficProfile(
        scopes=tuple(scopes),
        producers=tuple(producers),
        keys=keys,
        runs=_lengthened(packed, at),
        at=at,
        entry=entry,
        size=size,
        spread=spread,
        secret=parts[0].secret,
    )


def _packed(runs: Runs) -> Runs:
    """The runs when their messages lie one run after another."""
    ends = np.cumsum(runs.end - runs.begin)
    return replace(runs, begin=ends - (runs.end - runs.begin), end=ends)


def _laid_out(parts: Sequence[NDArray[Any]], runs: Sequence[Runs], begins: Sequence[Ints]) -> NDArray[Any]:
    """What several profiles have of their messages, each run where it ``begins``. A part that has nothing is of zeros;
    where none has any, neither has the whole."""
    length = sum(int((of.end - of.begin).sum()) for of in runs) if any(map(len, parts)) else 0
    found = np.zeros(length, parts[0].dtype)
    for values, of, begin in zip(parts, runs, begins, strict=True):
        if len(values):
            _copy_runs(values, of.begin, of.end, begin, found)
    return found


@operation
def _copy_runs(
    values: NDArray[Any], begin: Ints, end: Ints, to: Ints, found: NDArray[Any]
) -> None:  # pragma: no cover - compiled
    """Each run's ``values`` to where it begins in ``found``."""
    for run in range(len(begin)):
        for i in range(begin[run], end[run]):
            found[to[run] + i - begin[run]] = values[i]


def _lengthened(runs: Runs, at: Ints) -> Runs:
    """Neighbours that only differ in when they begin, as one run, where the second begins after the first ends."""
    if not len(runs):
        return runs
    same = at[runs.begin[1:]] >= at[runs.end[:-1] - 1]
    for name in ("key", "sticky", "routed", "scope", "producer"):
        codes = getattr(runs, name)
        same &= codes[1:] == codes[:-1]
    first = np.flatnonzero(np.append(True, ~same))
    return replace(runs.at(first), end=np.append(runs.begin[first[1:]], runs.end[-1]))
