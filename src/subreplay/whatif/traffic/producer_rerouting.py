"""The same traffic on another number of partitions, or sent by producers that choose partitions otherwise.

A keyed message follows its key by one of the schemes of ``hashing.producer_routing`` (documented rows L-ROUTE-1, 2
and 4). One without a key goes to each partition in turn
(``round robin``: ``RoundRobinPartition`` without batching, Kafka before 2.4), or stays with one until a batch's worth
of bytes was sent there (``sticky``: ``BuiltInPartitioner``, Kafka from 3.3 on). Where a real producer draws by chance,
a hash of its turn decides, so that the same traffic is always sent alike.

Messages keep their times, sizes and entry numbers, and each is an entry by itself: how they would have been batched,
nobody knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from subreplay.hashing.producer_routing import BYTE_KEY_HASHES, HASHES, SCHEMES, get_scheme, to_non_negative
from subreplay.kernels.inlining import operation
from subreplay.rows.model.columns import Ints
from subreplay.rows.model.partitioners import MOST_KEYS, Part, Sightings, Way
from subreplay.rows.model.rows import Scope
from subreplay.whatif.traffic.traffic_profile import NO_KEY, Runs, TrafficProfile

Keyless = Literal["round robin", "sticky"]
STICKY_BYTES: Final = 16_384
"""Kafka's ``batch.size``: so many bytes go to one partition before the next one is chosen."""


@dataclass(frozen=True)
class ProducerRouting:
    """How producers choose one of ``partitions`` partitions: by a ``scheme``; or, where ``parts`` say what the recorded
    ones do, each message by the part that explains its recorded partition. ``doubt``: what the messages say against
    the scheme."""

    partitions: int
    scheme: str
    keyless: Keyless
    parts: tuple[Part, ...] = ()
    doubt: str = ""


def rerouted(profile: TrafficProfile, routing: ProducerRouting) -> TrafficProfile:
    """The same messages where these producers would have put them. A topic has all its partitions, also empty ones."""
    topics = sorted({scope.topic for scope in profile.scopes})
    scopes = tuple(Scope(topic, partition) for topic in topics for partition in range(routing.partitions))
    base = np.array([topics.index(scope.topic) for scope in profile.scopes], np.int64) * routing.partitions
    runs = profile.runs
    keyed = runs.routed != NO_KEY
    partition = np.zeros(len(runs), np.int64)
    partition[keyed] = numbers_of(profile, routing.scheme, routing.parts)[keyed] % routing.partitions
    scope = (base[runs.scope] + partition).astype(np.int32) if len(runs) else runs.scope
    moved = replace(profile, scopes=scopes, runs=replace(runs, sticky=runs.key, scope=scope))
    return moved if keyed.all() else _in_turn(moved, profile, routing)


def numbers_of(profile: TrafficProfile, scheme: str, parts: Sequence[Part] = ()) -> Ints:
    """The number of each run whose remainder is the partition of its key (``ProducerRouting``); any without a key."""
    runs = profile.runs
    if not parts:
        return _numbers(profile, Way(scheme, bool(get_scheme(scheme).of_bytes) and _set_as_bytes(profile)))
    now = recorded(profile)
    found, open_ = _numbers(profile, parts[0].way), np.ones(len(runs), bool)
    for part in parts:
        numbers = _numbers(profile, part.way)
        fits = open_ & (numbers % part.partitions_at(profile.at[runs.begin]) == now)
        found[fits], open_[fits] = numbers[fits], False
    return found


def recorded(profile: TrafficProfile) -> Ints:
    """The partition in which the messages of each run are."""
    return np.array([scope.partition for scope in profile.scopes], np.int64)[profile.runs.scope]


def _numbers(profile: TrafficProfile, way: Way) -> Ints:
    hashes = to_non_negative(getattr(profile.keys, way.hash), get_scheme(way.scheme).sign)
    return np.append(hashes, 0)[profile.runs.routed]  # the last is NO_KEY's


def seen(profile: TrafficProfile) -> Sightings:
    """Where the messages of each key are; a profile does not tell their producers, nor which keys are not ASCII."""
    runs = profile.runs.at(profile.runs.routed != NO_KEY)
    identity = profile.keys.identity[runs.routed]
    keys = np.unique(identity)
    every_key = len(keys) <= MOST_KEYS
    if not every_key:
        runs = runs.at(identity <= keys[MOST_KEYS - 1])
    partition = np.array([scope.partition for scope in profile.scopes], np.int64)[runs.scope]
    runs, partition = runs.at(partition >= 0), partition[partition >= 0]
    hashes = {name: getattr(profile.keys, name)[runs.routed] for name in (*HASHES, *BYTE_KEY_HASHES)}
    nobody = np.zeros(len(runs), np.int64)
    first, last = profile.at[runs.begin], profile.at[runs.end - 1]
    ascii_ = np.ones(len(runs), bool)
    return Sightings(nobody, (None,), partition, runs.end - runs.begin, first, last, hashes, ascii_, every_key)


def relocated(profile: TrafficProfile, routing: ProducerRouting) -> tuple[int, int]:
    """How many keys would go to another partition than before, and how many messages these have."""
    runs = profile.runs.at(profile.runs.routed != NO_KEY)
    after = numbers_of(profile, routing.scheme, routing.parts) % routing.partitions
    elsewhere = (recorded(profile) != after)[profile.runs.routed != NO_KEY]
    return len(np.unique(runs.routed[elsewhere])), int((runs.end - runs.begin)[elsewhere].sum())


def _set_as_bytes(profile: TrafficProfile) -> bool:
    """Whether keys were set as bytes, whose base64 text is hashed: where that explains more messages' partitions."""
    runs = profile.runs.at(profile.runs.routed != NO_KEY)
    before = np.array([scope.partition for scope in profile.scopes], np.int64)
    count, lengths = max(int(before.max(initial=0)) + 1, 1), runs.end - runs.begin
    explained = []
    for of_bytes in (False, True):
        fits = np.zeros(len(runs), bool)
        for how in SCHEMES.values():
            if how.of_bytes:
                hashes = getattr(profile.keys, how.of_bytes if of_bytes else how.hash)
                fits |= to_non_negative(hashes, how.sign)[runs.routed] % count == before[runs.scope]
        explained.append(int(lengths[fits].sum()))
    return explained[1] > explained[0]


def _in_turn(moved: TrafficProfile, profile: TrafficProfile, routing: ProducerRouting) -> TrafficProfile:
    """With the messages that no key sends somewhere dealt out to partitions, in the order in which each producer sent
    them; their runs are cut by partition."""
    runs = moved.runs
    keyless = runs.routed == NO_KEY
    run_of = profile.run_of
    rows = np.flatnonzero(keyless[run_of])
    run = run_of[rows]
    sent = np.lexsort((profile.entry[rows], profile.runs.scope[run], profile.at[rows], runs.producer[run]))
    chosen = np.empty(len(rows), np.int64)
    _deal(
        runs.producer[run][sent], profile.size[rows][sent], routing.partitions,
        STICKY_BYTES if routing.keyless == "sticky" else 0, chosen,
    )  # fmt: skip
    partition = np.empty(len(rows), np.int64)
    partition[sent] = chosen
    number = run.astype(np.int64) * routing.partitions + partition
    order = np.argsort(number, kind="stable")  # messages of a run stay in order of time
    taken = rows[order]
    cut = np.flatnonzero(np.append(True, np.diff(number[order]) != 0))
    lengths = np.diff(cut, append=len(rows))
    whole = runs.at(~keyless)
    parts = runs.at(run[order][cut].astype(np.int64))
    begin = np.append(whole.begin, len(profile) + np.cumsum(lengths) - lengths)
    end = np.append(whole.end, len(profile) + np.cumsum(lengths))
    scope = np.append(whole.scope, parts.scope + partition[order][cut].astype(np.int32))
    together = Runs(
        begin,
        end,
        np.append(whole.key, parts.key),
        np.append(whole.sticky, parts.sticky),
        np.append(whole.routed, parts.routed),
        scope,
        np.append(whole.producer, parts.producer),
    )
    sent_on = replace(
        moved,
        at=np.append(profile.at, profile.at[taken]),
        entry=np.append(profile.entry, profile.entry[taken]),
        size=np.append(profile.size, profile.size[taken]),
        spread=np.append(profile.spread, profile.spread[taken]) if len(profile.spread) else profile.spread,
    )
    return sent_on.taken(together.at(np.argsort(together.key, kind="stable")))


@operation
def _deal(
    producer: NDArray[np.int32], size: Ints, partitions: int, sticky: int, chosen: Ints
) -> None:  # fmt: skip  # pragma: no cover - compiled
    """The partition of each message of each producer: the next one, or, where ``sticky``, another one by a hash once
    so many bytes were sent to one."""
    turn, sent = 0, 0
    for i in range(len(producer)):
        if i == 0 or producer[i] != producer[i - 1]:
            turn, sent = 0, 0
        elif sticky == 0 or sent >= sticky:
            turn, sent = turn + 1, 0
        sent += size[i]
        chosen[i] = turn % partitions if sticky == 0 else _mixed(np.int64(producer[i]) * 1_000_003 + turn) % partitions


@operation
def _mixed(number: Any) -> Any:  # pragma: no cover - compiled
    """A number in place of one drawn by chance (the finish of Murmur3, of 32 bits)."""
    mixed = number & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return mixed ^ (mixed >> 16)
