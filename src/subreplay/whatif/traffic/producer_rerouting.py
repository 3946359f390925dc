"""Move the traffic to another number of partitions, or to producers that choose partitions differently.

A keyed message follows its key by one of the schemes of ``hashing.producer_routing`` (documented rows L-ROUTE-1, 2 and
4). A message without a key goes to each partition in turn (``round robin``: ``RoundRobinPartition`` without batching,
Kafka before 2.4). Or messages stay with one partition until it received a batch of bytes (``sticky``:
``BuiltInPartitioner``, Kafka from 3.3 on). Where a real producer draws at random, a hash of the turn decides, so that
the same traffic is always routed alike.

Messages keep their times, sizes and entry numbers. Each is an entry of its own, because the batches of other producers
are unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np

from subreplay.hashing.producer_routing import (
    BYTE_KEY_HASHES,
    HASHES,
    SCHEMES,
    get_scheme,
    reduce_numbers,
    to_non_negative,
)
from subreplay.kernels.inlining import operation
from subreplay.rows.model.columns import Ints
from subreplay.rows.model.partitioners import MOST_KEYS, KeyPlacements, KeyScheme, Part
from subreplay.rows.model.rows import Scope
from subreplay.whatif.traffic.traffic_profile import NO_KEY, Runs, TrafficProfile

Keyless = Literal["round robin", "sticky"]
STICKY_BYTES: Final = 16_384
"""Kafka's ``batch.size``: the bytes sent to one partition before the next one is chosen."""


@dataclass(frozen=True)
class PartitionRouting:
    """How producers choose one of ``partitions`` partitions: by a ``scheme``, or by ``parts``.

    ``parts`` describe the recorded producers: each message follows the part that explains its recorded partition.
    ``counter_evidence`` is evidence in the messages against the scheme.
    """

    partitions: int
    scheme: str
    keyless: Keyless
    parts: tuple[Part, ...] = ()
    counter_evidence: str = ""


def reroute(profile: TrafficProfile, routing: PartitionRouting) -> TrafficProfile:
    """Return the messages in the partitions that these producers would have chosen. A topic has all its partitions."""
    topics = sorted({scope.topic for scope in profile.scopes})
    scopes = tuple(Scope(topic, partition) for topic in topics for partition in range(routing.partitions))
    base = np.array([topics.index(scope.topic) for scope in profile.scopes], np.int64) * routing.partitions
    runs = profile.runs
    keyed = runs.routed != NO_KEY
    partition = np.zeros(len(runs), np.int64)
    numbers = find_routing_numbers(profile, routing.scheme, routing.parts)[keyed]
    partition[keyed] = reduce_numbers(numbers, routing.partitions)
    scope = (base[runs.scope] + partition).astype(np.int32) if len(runs) else runs.scope
    moved = replace(profile, scopes=scopes, runs=replace(runs, sticky=runs.key, scope=scope))
    return moved if keyed.all() else _route_keyless(moved, profile, routing)


def find_routing_numbers(profile: TrafficProfile, scheme: str, parts: Sequence[Part] = ()) -> Ints:
    """Return, for each run, the number that ``reduce_numbers`` converts to the partition of its key; any number without
    a key."""
    runs = profile.runs
    if not parts:
        return _hash_routing_keys(
            profile, KeyScheme(scheme, bool(get_scheme(scheme).of_bytes) and _has_bytes_keys(profile))
        )
    recorded_partitions = find_recorded_partitions(profile)
    routing_numbers, unexplained = _hash_routing_keys(profile, parts[0].way), np.ones(len(runs), bool)
    for part in parts:
        numbers = _hash_routing_keys(profile, part.way)
        fits = unexplained & (numbers % part.partitions_at(profile.at[runs.begin]) == recorded_partitions)
        routing_numbers[fits], unexplained[fits] = numbers[fits], False
    return routing_numbers


def find_recorded_partitions(profile: TrafficProfile) -> Ints:
    """Return the recorded partition of the messages of each run."""
    return np.array([scope.partition for scope in profile.scopes], np.int64)[profile.runs.scope]


def _hash_routing_keys(profile: TrafficProfile, way: KeyScheme) -> Ints:
    hashes = to_non_negative(getattr(profile.keys, way.hash), get_scheme(way.scheme).sign)
    return np.append(hashes, 0)[profile.runs.routed]  # the last element is for NO_KEY


def build_sightings(profile: TrafficProfile) -> KeyPlacements:
    """Return where the messages of each key are.

    A profile does not contain their producers, nor which keys are not ASCII.
    """
    runs = profile.runs.select(profile.runs.routed != NO_KEY)
    identity = profile.keys.identity[runs.routed]
    keys = np.unique(identity)
    all_keys = len(keys) <= MOST_KEYS
    if not all_keys:
        runs = runs.select(identity <= keys[MOST_KEYS - 1])
    partition = np.array([scope.partition for scope in profile.scopes], np.int64)[runs.scope]
    runs, partition = runs.select(partition >= 0), partition[partition >= 0]
    hashes = {name: getattr(profile.keys, name)[runs.routed] for name in (*HASHES, *BYTE_KEY_HASHES)}
    no_producer = np.zeros(len(runs), np.int64)
    first, last = profile.at[runs.begin], profile.at[runs.end - 1]
    ascii_ = np.ones(len(runs), bool)
    return KeyPlacements(no_producer, (None,), partition, runs.end - runs.begin, first, last, hashes, ascii_, all_keys)


def count_relocated(profile: TrafficProfile, routing: PartitionRouting) -> tuple[int, int]:
    """Count the keys that would go to another partition than before, and their messages."""
    runs = profile.runs.select(profile.runs.routed != NO_KEY)
    after = reduce_numbers(find_routing_numbers(profile, routing.scheme, routing.parts), routing.partitions)
    elsewhere = (find_recorded_partitions(profile) != after)[profile.runs.routed != NO_KEY]
    return len(np.unique(runs.routed[elsewhere])), int((runs.end - runs.begin)[elsewhere].sum())


def _has_bytes_keys(profile: TrafficProfile) -> bool:
    """Return whether keys were set as bytes, so that their base64 text is hashed: the choice that explains more
    messages, if it explains most of them."""
    runs = profile.runs.select(profile.runs.routed != NO_KEY)
    before = np.array([scope.partition for scope in profile.scopes], np.int64)
    count, lengths = max(int(before.max(initial=0)) + 1, 1), runs.end - runs.begin
    explained = []
    for of_bytes in (False, True):
        fits = np.zeros(len(runs), bool)
        for scheme in SCHEMES.values():
            if scheme.of_bytes:
                hashes = getattr(profile.keys, scheme.of_bytes if of_bytes else scheme.hash)
                fits |= to_non_negative(hashes, scheme.sign)[runs.routed] % count == before[runs.scope]
        explained.append(int(lengths[fits].sum()))
    return explained[1] > explained[0] and 2 * explained[1] > int(lengths.sum())


def _route_keyless(moved: TrafficProfile, profile: TrafficProfile, routing: PartitionRouting) -> TrafficProfile:
    """Route messages without a key to partitions, in the order in which each producer sent them.

    Their runs are cut by partition.
    """
    runs = moved.runs
    keyless = runs.routed == NO_KEY
    run_of = profile.run_of
    rows = np.flatnonzero(keyless[run_of])
    run = run_of[rows]
    sent = np.lexsort((profile.entry[rows], profile.runs.scope[run], profile.at[rows], runs.producer[run]))
    chosen = choose_keyless_partitions(
        routing, np.asarray(runs.producer[run][sent], np.int64), profile.size[rows][sent], create_turns()
    )
    partition = np.empty(len(rows), np.int64)
    partition[sent] = chosen
    number = run.astype(np.int64) * routing.partitions + partition
    order = np.argsort(number, kind="stable")  # messages of a run keep their order of time
    message_rows = rows[order]
    cut = np.flatnonzero(np.append(True, np.diff(number[order]) != 0))
    lengths = np.diff(cut, append=len(rows))
    keyed_runs = runs.select(~keyless)
    parts = runs.select(run[order][cut].astype(np.int64))
    begin = np.append(keyed_runs.begin, len(profile) + np.cumsum(lengths) - lengths)
    end = np.append(keyed_runs.end, len(profile) + np.cumsum(lengths))
    scope = np.append(keyed_runs.scope, parts.scope + partition[order][cut].astype(np.int32))
    all_runs = Runs(
        begin,
        end,
        np.append(keyed_runs.key, parts.key),
        np.append(keyed_runs.sticky, parts.sticky),
        np.append(keyed_runs.routed, parts.routed),
        scope,
        np.append(keyed_runs.producer, parts.producer),
    )
    rerouted = replace(
        moved,
        at=np.append(profile.at, profile.at[message_rows]),
        entry=np.append(profile.entry, profile.entry[message_rows]),
        size=np.append(profile.size, profile.size[message_rows]),
        spread=np.append(profile.spread, profile.spread[message_rows]) if len(profile.spread) else profile.spread,
    )
    return rerouted.select_runs(all_runs.select(np.argsort(all_runs.key, kind="stable")))


def create_turns() -> Ints:
    """Create the state of ``choose_keyless_partitions`` before the first message: producer, turn, bytes of the turn."""
    return np.array([-1, 0, 0], np.int64)


def choose_keyless_partitions(routing: PartitionRouting, producer: Ints, size: Ints, turns: Ints) -> Ints:
    """Choose the partitions of messages without a key, which are grouped by ``producer`` (not negative) and in its
    order. ``turns`` goes on from call to call."""
    chosen = np.empty(len(producer), np.int64)
    sticky = STICKY_BYTES if routing.keyless == "sticky" else 0
    _choose_keyless_partitions(producer, size, routing.partitions, sticky, turns, chosen)
    return chosen


@operation
def _choose_keyless_partitions(
    producer: Ints, size: Ints, partitions: int, sticky: int, turns: Ints, chosen: Ints
) -> None:  # fmt: skip  # pragma: no cover - compiled
    """Choose the partition of each message: the next one, or with ``sticky`` another one by a hash after so many
    bytes."""
    for i in range(len(producer)):
        if producer[i] != turns[0]:
            turns[0], turns[1], turns[2] = producer[i], 0, 0
        elif sticky == 0 or turns[2] >= sticky:
            turns[1], turns[2] = turns[1] + 1, 0
        turns[2] += size[i]
        chosen[i] = turns[1] % partitions if sticky == 0 else _mix_bits(producer[i] * 1_000_003 + turns[1]) % partitions


@operation
def _mix_bits(number: Any) -> Any:  # pragma: no cover - compiled
    """Return a pseudo-random number from a number (the finaliser of Murmur3, 32 bits)."""
    mixed = number & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return mixed ^ (mixed >> 16)
