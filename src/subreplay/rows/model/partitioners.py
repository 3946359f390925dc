"""Find the hash scheme and the number of partitions that explain where producers put their keyed messages (row
L-ROUTE-3).

``count_placements`` counts the messages of each key, producer and partition. ``detect`` tests every scheme, both ways
to read a key if a client has two, and every number of partitions, including one that grew. Placements that chance could
explain count as unexplained.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from subreplay.hashing.key_identity import compute_key_identities
from subreplay.hashing.producer_routing import (
    BYTE_KEY_HASHES,
    HASHES,
    SCHEMES,
    SEGMENT_RANGE,
    get_scheme,
    hash_keys,
    reduce_numbers,
    to_non_negative,
)
from subreplay.kernels.compiled import compiled
from subreplay.rows.model.columns import Ints, column, flags, gather_batches, ints

Flags = NDArray[np.bool_]
MOST_KEYS: Final = 8_192
"""The largest number of examined keys: of more, those with the smallest identities."""
MOST_PRODUCERS: Final = 256
"""The largest number of producers that are examined one by one; all others are examined together."""
_BATCH_MESSAGES: Final = 1 << 18  # messages
_MOST_PARTS_PENDING: Final = 8
_MOST_CELLS: Final = 1 << 23  # of sightings by number of partitions
_MOST_PERIODS: Final = 3
_MOST_PARTS: Final = 3
_BEYOND: Final = 8  # partitions that may be there without a message
_ROUNDING: Final = 1e-3  # nats, more than sums of floats are off
_CERTAIN: Final = 4.0  # nats beyond what the number of hypotheses tested asks for

PLACEMENTS: Final = pa.schema(
    [
        pa.field("producer", pa.string()),
        pa.field("key", pa.int64()),  # its identity
        pa.field("partition", pa.int32()),
        pa.field("messages", pa.int64()),
        pa.field("first", pa.int64()),  # when they were published, ns
        pa.field("last", pa.int64()),
        pa.field("ascii", pa.bool_()),
        *(
            pa.field(name, pa.int64()) for name in (*HASHES, *BYTE_KEY_HASHES)
        ),  # of 32 bits: Spark has no unsigned numbers
    ]
)
"""Messages of one key, by one producer, in one partition. Empty keys are excluded, because some clients treat them as
no key."""
_PLACEMENT_KEY: Final = ["producer", "key", "partition"]


class KeyScheme(NamedTuple):
    """A hash scheme, and whether keys are hashed as the base64 text of bytes."""

    scheme: str
    of_bytes: bool = False

    @property
    def hash(self) -> str:
        how = get_scheme(self.scheme)
        return how.of_bytes if self.of_bytes and how.of_bytes else how.hash


KEY_SCHEMES: Final = tuple(
    KeyScheme(name, of_bytes)
    for name, how in SCHEMES.items()
    for of_bytes in (False, True)[: 2 if how.of_bytes else 1]
    if name not in ("consistent", SEGMENT_RANGE)  # of keys that are not empty it is consistent_random
)


class CountPeriod(NamedTuple):
    """A number of partitions from an instant on (ns). The first period starts with the first message."""

    partitions: int
    since: int


@dataclass(frozen=True)
class Part:
    """``messages`` keyed messages that one key scheme explains, of ``of`` messages of these ``producers`` (none: of
    all)."""

    way: KeyScheme
    periods: tuple[CountPeriod, ...]
    messages: int
    of: int
    producers: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether it explains all of them."""
        return self.messages == self.of

    @property
    def partitions(self) -> int:
        """The final number of partitions."""
        return self.periods[-1].partitions

    def partitions_at(self, at: Ints) -> Ints:
        """Return the number of partitions at each time (ns)."""
        return _count_partitions_at(self.periods, at)


@dataclass(frozen=True)
class Partitioners:
    """The schemes that explain ``keyed`` messages of a topic's producers.

    ``parts`` explain all ``keyed`` messages except ``unexplained``. A part without producers applies to all of them.
    ``as_bytes`` names producers that set their keys as bytes (``None``: unnamed ones). ``agreeing`` counts the messages
    that each scheme explains with the last number of partitions. ``every_key``: no key was excluded.
    """

    keyed: int
    parts: tuple[Part, ...]
    unexplained: int
    unexplained_producers: tuple[str, ...]
    as_bytes: frozenset[str | None]
    agreeing: Mapping[str, int]
    not_ascii: int
    senders: int
    every_key: bool = True

    @property
    def settled(self) -> bool:
        """Whether one part explains all messages."""
        return len(self.parts) == 1 and not self.unexplained

    @property
    def mixed(self) -> bool:
        """Whether producers hash keys in several ways."""
        return len({part.way for part in self.parts}) > 1

    @property
    def growth(self) -> tuple[CountPeriod, ...]:
        """The numbers of partitions of a topic that grew, in order; empty if it did not grow."""
        earliest: dict[int, int] = {}
        for period in (period for part in self.parts for period in part.periods):
            earliest[period.partitions] = min(period.since, earliest.get(period.partitions, period.since))
        found = tuple(CountPeriod(count, since) for count, since in sorted(earliest.items()))
        rising = all(a.since < b.since for a, b in pairwise(found))
        return found if len(found) > 1 and rising else ()

    def of(self, producer: str | None) -> Part | None:
        """Return the part of a producer; None if none or several explain its messages."""
        selected = [part for part in self.parts if not part.producers or producer in part.producers]
        return selected[0] if len(selected) == 1 else None


@dataclass(frozen=True, eq=False)
class KeyPlacements:
    """``PLACEMENTS`` as arrays. ``producer`` has codes, ``names`` their names."""

    producer: Ints
    names: tuple[str | None, ...]
    partition: Ints
    messages: Ints
    first: Ints
    last: Ints
    hashes: Mapping[str, NDArray[np.uint32]]
    ascii: Flags
    every_key: bool = True

    def __len__(self) -> int:
        return len(self.partition)

    @classmethod
    def of(cls, rows: pa.Table) -> KeyPlacements:
        names = column(rows, "producer").dictionary_encode("encode")
        partition, messages, first, last = (ints(rows, name) for name in ("partition", "messages", "first", "last"))
        return cls(
            np.asarray(names.indices, np.int64),
            tuple(names.dictionary.to_pylist()),
            partition,
            messages,
            first,
            last,
            {name: ints(rows, name).astype(np.uint32) for name in (*HASHES, *BYTE_KEY_HASHES)},
            flags(rows, "ascii"),
            len(pc.unique(rows["key"])) < MOST_KEYS,
        )

    def at(self, which: Flags | Ints) -> KeyPlacements:
        """Select some of them."""
        arrays = ("producer", "partition", "messages", "first", "last", "ascii")
        selected: dict[str, Any] = {name: getattr(self, name)[which] for name in arrays}
        return replace(self, **selected, hashes={name: values[which] for name, values in self.hashes.items()})

    def numbers(self, way: KeyScheme) -> Ints:
        """Return the number of each key whose remainder is its partition."""
        return to_non_negative(self.hashes[way.hash], SCHEMES[way.scheme].sign)

    @cached_property
    def total(self) -> int:
        return int(self.messages.sum())


def count_placements(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count the ``PLACEMENTS`` of messages in any order (columns key, partition, at, and producer if it is
    recorded)."""
    found: list[pa.Table] = []
    for rows in gather_batches(batches, _BATCH_MESSAGES):
        found.append(_count_batch_placements(rows))
        if len(found) == _MOST_PARTS_PENDING:
            found = [merge_placements(found)]
    yield from merge_placements(found).to_batches()


def _count_batch_placements(rows: pa.Table) -> pa.Table:
    """Count the placements of one table."""
    if "producer" not in rows.column_names:
        rows = rows.append_column("producer", pa.nulls(rows.num_rows, pa.string()))
    lengths = pc.binary_length(rows["key"])
    rows = rows.filter(pc.and_(pc.greater(lengths, 0), pc.greater_equal(rows["partition"], 0)))
    encoded = column(rows, "key").dictionary_encode()
    keys = encoded.dictionary.cast(pa.large_binary())
    identity = compute_key_identities(keys)
    counted = pa.table(
        {
            "producer": column(rows, "producer"),
            "key": np.asarray(encoded.indices, np.int64),
            "partition": ints(rows, "partition").astype(np.int32),
            "first": ints(rows, "at"),
        }
    )
    times = [("first", kind) for kind in ("count", "min", "max")]
    found = counted.group_by(_PLACEMENT_KEY, use_threads=False).aggregate(times)
    which = ints(found, "key")
    text = keys.cast(pa.large_string(), safe=False)
    known = {"ascii": np.asarray(pc.string_is_ascii(text)), **hash_keys(keys)}
    columns = {
        "producer": found["producer"],
        "key": identity[which],
        "partition": found["partition"],
        "messages": found["first_count"],
        "first": found["first_min"],
        "last": found["first_max"],
        **{name: values[which] for name, values in known.items()},
    }
    return _limit_keys(pa.table([columns[name] for name in PLACEMENTS.names], schema=PLACEMENTS))


def merge_placements(parts: Sequence[pa.Table]) -> pa.Table:
    """Merge placements of parts of the messages."""
    rows = _limit_keys(pa.concat_tables([PLACEMENTS.empty_table(), *parts]))
    how = {name: "min" for name in PLACEMENTS.names if name not in _PLACEMENT_KEY} | {"messages": "sum", "last": "max"}
    found = rows.group_by(_PLACEMENT_KEY, use_threads=False).aggregate([*how.items()])
    columns = [found[f"{name}_{how[name]}" if name in how else name] for name in PLACEMENTS.names]
    return (
        pa.table(columns, names=PLACEMENTS.names)
        .cast(PLACEMENTS)
        .sort_by([(name, "ascending") for name in _PLACEMENT_KEY])
    )


def _limit_keys(rows: pa.Table) -> pa.Table:
    """Keep the ``MOST_KEYS`` keys with the smallest identities, which are the same in every part of a log."""
    keys = np.unique(ints(rows, "key"))
    return rows if len(keys) <= MOST_KEYS else rows.filter(pa.array(ints(rows, "key") <= keys[MOST_KEYS - 1]))


def detect(seen: KeyPlacements, partitions: int = 0, likely: Sequence[str] = ()) -> Partitioners:
    """Find the schemes that explain where messages are.

    ``partitions``: the smallest possible number of partitions. If several schemes explain the same, one of ``likely``
    is chosen.
    """
    most = max(partitions, int(seen.partition.max(initial=-1)) + 1, 1)
    ways = sorted(KEY_SCHEMES, key=lambda way: likely.index(way.scheme) if way.scheme in likely else len(likely))
    named = any(name is not None for name in seen.names)
    parts = _explain_placements(seen, most, ways, sharp=named)
    if named and not (len(parts) == 1 and parts[0].whole):
        parts, unexplained = _explain_by_producer(seen, most, ways)
    else:
        unexplained = ()
    last = max((part.partitions for part in parts), default=most)
    explained = sum(part.messages for part in parts)
    return Partitioners(
        seen.total,
        tuple(parts),
        seen.total - explained,
        unexplained,
        _find_byte_producers(seen, parts, last),
        {scheme: _count_explained(seen, scheme, last) for scheme in SCHEMES},
        int(seen.messages[~seen.ascii].sum()),
        len(np.unique(seen.producer)),
        seen.every_key,
    )


def _explain_by_producer(
    seen: KeyPlacements, most: int, ways: Sequence[KeyScheme]
) -> tuple[list[Part], tuple[str, ...]]:
    """Explain the messages of each producer. Producers with the same explanation are combined; the unexplained ones are
    returned, too."""
    by_size = np.argsort(-np.bincount(seen.producer, seen.messages), kind="stable")
    groups: dict[tuple[KeyScheme, tuple[int, ...]], list[Part]] = {}
    unexplained = []
    for number, code in enumerate(by_size.tolist()):
        name = seen.names[code]
        one = seen.at(seen.producer == code)
        if number >= MOST_PRODUCERS:
            one, name = seen.at(np.isin(seen.producer, by_size[number:])), None
        selected = _explain_placements(one, most, ways, sharp=name is not None)
        if not selected:
            unexplained += ["(not named)" if name is None else name]
        for part in selected:
            known = replace(part, producers=("(not named)" if name is None else name,))
            groups.setdefault((part.way, tuple(period.partitions for period in part.periods)), []).append(known)
        if number >= MOST_PRODUCERS:
            break
    parts = []
    for same in groups.values():
        periods = tuple(
            CountPeriod(selected[0].partitions, min(period.since for period in selected))
            for selected in zip(*(part.periods for part in same), strict=True)
        )
        producers = tuple(sorted(name for part in same for name in part.producers))
        messages, of = sum(part.messages for part in same), sum(part.of for part in same)
        parts.append(Part(same[0].way, periods, messages, of, producers))
    return parts, tuple(sorted(unexplained))


def _explain_placements(seen: KeyPlacements, most: int, ways: Sequence[KeyScheme], *, sharp: bool) -> list[Part]:
    """Find the schemes that explain placements, each one those that the schemes before it do not. They are few, because
    chance explains some.

    ``sharp``: all are of one producer, which learns in one instant that the topic grew.
    """
    parts: list[Part] = []
    rest, of = seen, seen.total
    while len(rest) and len(parts) < _MOST_PARTS:
        found = _find_best(rest, most, ways)
        if found is None:
            break
        way, periods = found
        fits = _find_fitting(rest, way, periods)
        messages, counts = int(rest.messages[fits].sum()), {period.partitions for period in periods}
        rest = rest.at(~fits)
        for i, part in enumerate(parts):
            if not sharp and part.way == way and counts <= {period.partitions for period in part.periods}:
                parts[i] = replace(part, messages=part.messages + messages)  # somebody learned later that it grew
                break
        else:
            parts.append(Part(way, periods, messages, of))
    if len({part.way for part in parts}) == len(parts) > 1:  # the likeliest one has what several explain
        rest, parts = seen, sorted(parts, key=lambda part: (ways.index(part.way), -part.messages))
        for i, part in enumerate(parts):
            fits = _find_fitting(rest, part.way, part.periods)
            parts[i] = replace(part, messages=int(rest.messages[fits].sum()))
            rest = rest.at(~fits)
    return parts


def _find_best(
    seen: KeyPlacements, most: int, ways: Sequence[KeyScheme]
) -> tuple[KeyScheme, tuple[CountPeriod, ...]] | None:
    """Return the scheme that explains the most, if that is more than chance would."""
    for way in ways:
        fits = seen.numbers(way) % most == seen.partition
        if fits.all() and _measure_evidence(len(seen), len(seen), 1 / most) >= math.log(len(ways)) + _CERTAIN:
            return way, (CountPeriod(most, int(seen.first.min())),)
    cells = len(seen) * 2 * (most + _BEYOND)
    sample = seen if cells <= _MOST_CELLS else seen.at(np.arange(len(seen)) % -(-cells // _MOST_CELLS) == 0)
    scores = [(*_find_periods(sample, way, most), way) for way in ways]
    _, periods, way = max(scores, key=lambda one: one[0])
    if not periods:
        return None
    fits = _find_fitting(sample, way, periods)
    tested = math.log(len(ways) * (most + _BEYOND)) + (len(periods) - 1) * math.log(len(sample) * (most + _BEYOND))
    evidence = _measure_evidence(
        int(fits.sum()), len(sample), float((1 / _count_partitions_at(periods, sample.first)).mean())
    )
    return (way, periods) if evidence >= tested + _CERTAIN else None


def _measure_evidence(fit: int, of: int, chance: float) -> float:
    """Return by how many nats so many hits are less likely by ``chance`` (Chernoff's bound)."""
    share = fit / of
    if share <= chance:
        return 0.0
    rest = 0.0 if share == 1 else (1 - share) * math.log((1 - share) / (1 - chance))
    return of * (share * math.log(share / chance) + rest)


def _find_periods(seen: KeyPlacements, way: KeyScheme, most: int) -> tuple[float, tuple[CountPeriod, ...]]:
    """Find the increasing numbers of partitions with which a scheme explains the most, and the evidence.

    The evidence is the log likelihood ratio (nats) of the scheme, if every second message follows it, to random
    partitions, less a price for each further number.

    A placement represents its first and its last message. ``gains[i][n, e]`` is the best result of i changes that ends
    with number n after event e. The first and the last n are no number, for times in which the scheme explains nothing.
    """
    once = seen.first == seen.last
    order = np.argsort(np.concatenate([seen.first, seen.last[~once]]), kind="stable")
    which = np.concatenate([np.arange(len(seen)), np.flatnonzero(~once)])[order]
    at = np.concatenate([seen.first, seen.last[~once]])[order]
    weight = np.where(once, 1.0, 0.5)[which]
    counts = np.array([0, *range(1, most + _BEYOND + 1), 0])
    price = math.log(len(which) * len(counts)) + 2
    hit, miss = math.log((max(most, 2) + 1) / 2), math.log(2)
    numbers = seen.numbers(way)[which]
    counts = counts[
        _select_promising(_compute_bounds(numbers, seen.partition[which], weight, counts, hit, miss), price)
    ]
    hits = numbers % np.maximum(counts, 1)[:, None] == seen.partition[which]
    nats = np.where(hits, hit, -miss) * weight
    nats[counts == most] += 1e-9  # of equals the number that is known
    nats[counts == 0] = 0
    explained = np.zeros((len(counts), len(which) + 1))
    np.cumsum(nats, axis=1, out=explained[:, 1:])
    gains = [explained]
    for _ in range(_MOST_PERIODS - 1):
        fewer = np.full_like(explained, -np.inf)
        np.maximum.accumulate(gains[-1][:-1], axis=0, out=fewer[1:])
        gains.append(explained + np.maximum.accumulate(fewer - explained, axis=1))
    totals = [float(gain[:, -1].max()) - price * number for number, gain in enumerate(gains)]
    number = int(np.argmax(totals))
    count, end, found = int(np.argmax(gains[number][:, -1])), len(which), []
    while number:
        fewer = gains[number - 1][:count, : end + 1].max(axis=0) - explained[count, : end + 1]
        cut = int(np.argmax(fewer))
        before = int(np.argmax(gains[number - 1][:count, cut]))
        only = np.flatnonzero(hits[count, cut:] & ~hits[before, cut:])
        found.append(
            CountPeriod(int(counts[count]), int(at[cut + only[0]]) if len(only) else int(at[min(cut, len(at) - 1)]))
        )
        count, end, number = before, cut, number - 1
    found = [period for period in (CountPeriod(int(counts[count]), int(at[0])), *reversed(found)) if period.partitions]
    return max(totals), (found[0]._replace(since=int(at[0])), *found[1:]) if found else ()


def _select_promising(bounds: NDArray[np.float64], price: float) -> Ints:
    """Select the numbers of partitions that may be part of the best explanation, by the ``_compute_bounds`` of each.

    Such a number is the first, the middle or the last of at most three, or the only one. The others explain no more
    than the best of their kind.
    """
    whole, begin, middle, end = bounds
    begins, middles, ends = (float(each.max()) for each in (begin, middle, end))
    most = np.max(
        [
            whole,
            begin + ends - price,
            begins + end - price,
            begin + middles + ends - 2 * price,
            begins + middle + ends - 2 * price,
            begins + middles + end - 2 * price,
        ],
        axis=0,
    )
    most[[0, -1]] = np.inf  # which are no number
    return np.flatnonzero(most + _ROUNDING >= whole.max())


@compiled
def _compute_bounds(
    numbers: Ints, partition: Ints, weight: NDArray[np.float64], counts: Ints, hit: float, miss: float
) -> NDArray[np.float64]:  # pragma: no cover - compiled
    """Return the upper bounds of what each number of partitions explains, in nats: of all placements, of some first
    ones, of some consecutive ones, and of some last ones.

    Between two placements that it explains, a number only loses. So only these need a computation.
    """
    lost = np.zeros(len(numbers) + 1)  # if nothing is explained
    for i in range(len(numbers)):
        lost[i + 1] = lost[i] + miss * weight[i]
    rest = (numbers - partition).astype(np.float64)
    found = np.zeros((4, len(counts)))
    for row in range(len(counts)):
        count = counts[row]
        won, lowest = 0.0, 0.0
        begin, middle = 0.0, 0.0
        for i in range(len(numbers)):
            if partition[i] < count and rest[i] >= 0:
                times = rest[i] / count
                if times == np.floor(times):
                    lowest = min(lowest, won - lost[i])
                    won += (hit + miss) * weight[i]
                    begin, middle = max(begin, won - lost[i + 1]), max(middle, won - lost[i + 1] - lowest)
        found[0, row] = won - lost[-1] if count else 0.0
        found[1, row], found[2, row] = begin, middle
        found[3, row] = max(0.0, won - lost[-1] - min(lowest, won - lost[-1]))
    return found


def _find_fitting(seen: KeyPlacements, way: KeyScheme, periods: Sequence[CountPeriod]) -> Flags:
    """Return whether the first and the last message of each placement are where they belong."""
    numbers, found = seen.numbers(way), np.ones(len(seen), bool)
    for at in (seen.first, seen.last):
        found &= numbers % _count_partitions_at(periods, at) == seen.partition
    return found


def _count_partitions_at(periods: Sequence[CountPeriod], at: Ints) -> Ints:
    """Return the number of partitions at each time."""
    counts = np.array([period.partitions for period in periods], np.int64)
    since = np.array([period.since for period in periods], np.int64)
    return counts[np.maximum(np.searchsorted(since, at, "right") - 1, 0)]


def _find_byte_producers(seen: KeyPlacements, parts: Sequence[Part], partitions: int) -> frozenset[str | None]:
    """Return the producers whose messages are better explained if their keys were set as bytes."""
    score = np.zeros((2, len(seen.names)))
    for scheme, how in SCHEMES.items():
        if how.of_bytes is None:
            continue
        periods = next((part.periods for part in parts if part.way.scheme == scheme), (CountPeriod(partitions, 0),))
        for of_bytes in (False, True):
            fits = _find_fitting(seen, KeyScheme(scheme, of_bytes), periods)
            selected = np.bincount(seen.producer, fits * seen.messages, len(seen.names))
            score[int(of_bytes)] = np.maximum(score[int(of_bytes)], selected)
    return frozenset(name for name, text, as_bytes in zip(seen.names, *score, strict=True) if as_bytes > text)


def _count_explained(seen: KeyPlacements, scheme: str, partitions: int) -> int:
    """Count the messages that a scheme explains, with the reading of keys that explains more."""
    ways = [KeyScheme(scheme), KeyScheme(scheme, True)] if SCHEMES[scheme].of_bytes else [KeyScheme(scheme)]
    return max(
        int(seen.messages[reduce_numbers(seen.numbers(way), partitions) == seen.partition].sum()) for way in ways
    )
