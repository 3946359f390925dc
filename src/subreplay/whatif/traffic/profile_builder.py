"""From messages to their traffic profile: pure functions over Arrow columns, each distinct key hashed once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.hashing.key_identity import compute_key_identities
from subreplay.hashing.murmur3 import murmur3_32_array
from subreplay.hashing.producer_routing import hash_keys
from subreplay.hashing.profiles import KEYLESS
from subreplay.kernels.inlining import operation
from subreplay.rows.model.columns import DAY, Ints, column, gathered, ints
from subreplay.rows.model.entry_keys import outer_keys, outer_sticky_keys, own_keys
from subreplay.rows.model.rows import Scope
from subreplay.rows.model.tables import LOG
from subreplay.rows.model.words import KeyWords
from subreplay.whatif.traffic.traffic_profile import NO_KEY, WORD_BITS, Hashes, Indexes, Keys, Runs, TrafficProfile

COLUMNS: Final = ("topic", "partition", "entry", "batch_index", "at", "key", "ordering_key", "batch_key",
                  "batch_ordering_key", "producer", "sequence_id", "size")  # fmt: skip
"""The columns of ``LOG`` that a profile is made of."""
OF_TOPIC: Final = COLUMNS[1:]
"""Those of messages of one topic that is known."""
BLOCK: Final = 1 << 21
"""Messages of a profile that is made at once; of large keys fewer."""
_SPREADING: Final = next(profile for profile, rule in KEYLESS.items() if rule.per_message)
_NO_HASHES: Final[Hashes] = np.zeros(0, np.uint32)


@dataclass(frozen=True)
class Profiler:
    """Makes profiles whose keys are told apart by digests of ``words``; picklable. ``topic`` is that of messages
    without a column ``topic`` (None: all have it); other columns that they lack are null."""

    words: KeyWords
    topic: str | None = ""

    def profiles(self, batches: Iterable[pa.RecordBatch], rows: int = BLOCK) -> Iterator[TrafficProfile]:
        """Messages (``COLUMNS``) in any order -> profiles of at most ``rows`` of them each, and of one UTC day each."""
        for together in gathered(batches, rows):
            days = ints(together, "at") // DAY
            for day in np.unique(days):
                yield self.profile(together.filter(pa.array(days == day)) if (days != day).any() else together)

    def profile(self, rows: pa.Table) -> TrafficProfile:
        """The profile of one table of messages (``COLUMNS``)."""
        if not rows.num_rows:
            return TrafficProfile.empty(self.words.check)
        for name in COLUMNS[1:]:
            if name not in rows.column_names:
                rows = rows.append_column(name, pa.nulls(rows.num_rows, LOG.field(name).type))
        key, sticky, routed, distinct = _coded(rows)
        scopes, scope = _scopes(rows, self.topic)
        producers, producer = _producers(rows, routed)
        at = ints(rows, "at")
        number, runs = _numbered(len(distinct), key, sticky, routed, scope, producer)
        order = _by_run(number, at, runs)
        number = number[order]
        begin = np.flatnonzero(np.append(True, number[1:] != number[:-1]))
        first = order[begin]
        spread = _spread(rows, sticky)
        return TrafficProfile(
            scopes,
            producers,
            self._keys(distinct),
            Runs(begin, np.append(begin[1:], len(order)),
                 *(codes[first] for codes in (key, sticky, routed, scope, producer))),
            at[order],
            ints(rows, "entry")[order],
            ints(rows, "size", 0)[order],
            spread[order] if len(spread) else spread,
            self.words.check,
        )  # fmt: skip

    def _keys(self, distinct: pa.Array) -> Keys:
        keyed, told = self.words.numbers(distinct), np.uint64(64 - WORD_BITS)
        rest = compute_key_identities(distinct).astype(np.uint64) & np.uint64((1 << 64 - WORD_BITS) - 1)
        return Keys((keyed << told) | rest, **hash_keys(distinct))


def _coded(rows: pa.Table) -> tuple[Indexes, Indexes, Indexes, pa.Array]:
    """Own, sticky and routing key of each message as indexes in the distinct ones."""
    key = column(rows, "key")
    if rows["ordering_key"].null_count == rows.num_rows and not (ints(rows, "batch_index") >= 0).any():
        coded = key.dictionary_encode()
        own = _indexes(coded)
        return own, own, own, coded.dictionary  # all three are the same
    columns = pa.chunked_array([own_keys(rows), pc.coalesce(*outer_keys(rows)), key])
    chunks = columns.dictionary_encode().unify_dictionaries().chunks
    own, sticky, routed = (_indexes(chunk) for chunk in chunks)
    return own, sticky, routed, chunks[0].dictionary


def _indexes(coded: pa.DictionaryArray) -> Indexes:
    return np.asarray(coded.indices.fill_null(NO_KEY), np.int32)


def _scopes(rows: pa.Table, topic: str | None) -> tuple[tuple[Scope, ...], Indexes]:
    partitions = ints(rows, "partition")
    if "topic" in rows.column_names:
        topics = column(rows, "topic").dictionary_encode()
        number, names = np.asarray(topics.indices, np.int64), topics.dictionary.to_pylist()
    else:
        number, names = np.zeros(len(partitions), np.int64), [topic or ""]
    low = int(partitions.min())
    wide = int(partitions.max()) - low + 1
    coded = pa.array(number * wide + partitions - low).dictionary_encode()
    scopes = tuple(Scope(names[code // wide], code % wide + low) for code in coded.dictionary.to_pylist())
    return scopes, np.asarray(coded.indices, np.int32)


def _producers(rows: pa.Table, routed: Indexes) -> tuple[tuple[str, ...], Indexes]:
    """The producers of messages whose partition no key chooses."""
    producer = np.full(len(routed), NO_KEY, np.int32)
    keyless = np.flatnonzero(routed == NO_KEY)
    if not len(keyless):
        return (), producer
    coded = column(rows, "producer").take(pa.array(keyless)).dictionary_encode()
    producer[keyless] = _indexes(coded)
    return tuple(coded.dictionary.to_pylist()), producer


def _spread(rows: pa.Table, sticky: Indexes) -> Hashes:
    keyless = np.flatnonzero(sticky == NO_KEY)
    if not len(keyless):
        return _NO_HASHES
    spread = np.zeros(len(sticky), np.uint32)
    spread[keyless] = murmur3_32_array(outer_sticky_keys(rows.take(pa.array(keyless)), _SPREADING))
    return spread


def _numbered(
    distinct: int, key: Indexes, sticky: Indexes, routed: Indexes, scope: Indexes, producer: Indexes
) -> tuple[Ints, int]:
    """The number of each message's run, which rises with its key, and how many there may be."""
    number, there = (key + 1).astype(np.int64), distinct + 1
    parts = [scope, producer] if sticky is key and routed is key else [sticky, routed, scope, producer]
    for part in parts:
        kinds = int(part.max()) + 2
        if kinds > 1 and (part[0] != part).any():
            number, there = number * kinds + part + 1, there * kinds
        if there > 1 << 40:  # few of them occur
            found, number = np.unique(number, return_inverse=True)
            there = len(found)
    if there > max(4 * len(number), 1 << 16):
        found, number = np.unique(number, return_inverse=True)
        there = len(found)
    return number, there


def _by_run(number: Ints, at: Ints, runs: int) -> Ints:
    """The messages by run and time; those of one instant stay as they are."""
    order: Ints = np.arange(len(at)) if (at[1:] >= at[:-1]).all() else np.argsort(at, kind="stable")
    ordered = np.empty_like(order)
    _counting_sort(number, order, np.zeros(runs + 1, np.int64), ordered)
    return ordered


@operation
def _counting_sort(number: Ints, order: Ints, begin: Ints, ordered: Ints) -> None:  # pragma: no cover - compiled
    """``order``, stably sorted by ``number``; ``begin`` are zeros, one more than there are numbers."""
    for i in range(len(number)):
        begin[number[i] + 1] += 1
    for i in range(1, len(begin)):
        begin[i] += begin[i - 1]
    for i in order:
        ordered[begin[number[i]]] = i
        begin[number[i]] += 1
