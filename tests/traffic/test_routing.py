"""Another number of partitions: keys go where real producers send them, and no message is lost."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.hashing.base64_text import encode_base64
from subreplay.hashing.murmur2 import choose_kafka_partition
from subreplay.hashing.producer_routing import (
    JAVA_STRING_HASH,
    MURMUR3_32_HASH,
    choose_partition,
    choose_partitions,
)
from subreplay.rows.model.key_masking import KeyMasking
from subreplay.rows.model.partitioners import detect
from subreplay.whatif.traffic.producer_rerouting import (
    PartitionRouting,
    build_sightings,
    count_relocated,
    find_recorded_partitions,
    find_routing_numbers,
    reroute,
)
from subreplay.whatif.traffic.profile_builder import ProfileBuilder
from tests.support.properties import examples
from tests.support.published import MESSAGES, SCOPES, logs

PROFILER = ProfileBuilder(KeyMasking.from_secret(False, "a secret"))
KEYS = [f"customer {i}".encode() for i in range(200)]


def profile_of(n, **columns):
    fixed = {
        "topic": [SCOPES[0].topic] * n,
        "partition": [0] * n,
        "entry": range(n),
        "batch_index": [-1] * n,
        "at": range(n),
        "producer": ["p"] * n,
        "sequence_id": range(n),
        "size": [100] * n,
    }
    given = {**fixed, **columns}
    arrays = [pa.array(given[f.name], f.type) if f.name in given else pa.nulls(n, f.type) for f in MESSAGES]
    return PROFILER.build_profile(pa.table(arrays, schema=MESSAGES))


def partition_of_key(profile):
    """By index of key."""
    runs = profile.runs
    return {
        key: profile.scopes[scope].partition for key, scope in zip(runs.key.tolist(), runs.scope.tolist(), strict=True)
    }


@pytest.mark.parametrize("scheme", ["murmur2", JAVA_STRING_HASH, MURMUR3_32_HASH])
@pytest.mark.parametrize("partitions", [1, 5, 24])
def test_a_keyed_message_goes_where_its_producer_sends_it(scheme, partitions):
    found = reroute(profile_of(200, key=KEYS), PartitionRouting(partitions, scheme, "sticky"))
    expected = {
        i: choose_kafka_partition(key, partitions)
        if scheme == "murmur2"
        else choose_partition(key.decode(), partitions, scheme)
        for i, key in enumerate(KEYS)
    }
    assert partition_of_key(found) == expected
    assert [scope.partition for scope in found.scopes] == list(range(partitions))


def test_keys_that_were_set_as_bytes_are_hashed_as_base64_text():
    texts = [text.decode() for text in encode_base64(pa.array(KEYS)).to_pylist()]
    now = [choose_partition(text, 7) for text in texts]
    found = reroute(profile_of(200, key=KEYS, partition=now), PartitionRouting(12, JAVA_STRING_HASH, "round robin"))
    assert partition_of_key(found) == {i: choose_partition(text, 12) for i, text in enumerate(texts)}


def test_keys_stay_where_the_number_of_partitions_stays():
    now = [choose_kafka_partition(key, 6) for key in KEYS]
    profile = profile_of(200, key=KEYS, partition=now)
    assert count_relocated(profile, PartitionRouting(6, "murmur2", "sticky")) == (0, 0)
    keys, messages = count_relocated(profile, PartitionRouting(7, "murmur2", "sticky"))
    assert keys == messages == sum(choose_kafka_partition(key, 7) != old for key, old in zip(KEYS, now, strict=True))


def test_each_message_of_several_producers_follows_the_scheme_that_explains_where_it_is():
    key = pa.array(KEYS)
    mine, others = (choose_partitions(key, 6, scheme) for scheme in ("murmur2", "consistent_random"))
    profile = profile_of(400, key=[*KEYS, *KEYS], partition=[*mine, *others])
    parts = detect(build_sightings(profile), 6).parts
    assert [part.way.scheme for part in parts] == ["murmur2", "consistent_random"]

    routing = PartitionRouting(12, "murmur2", "sticky", parts)
    after = find_routing_numbers(profile, "murmur2", parts) % 12
    expected = {
        (i, now): choose_partitions(key, 12, scheme)[i]
        for scheme, before in (("consistent_random", others), ("murmur2", mine))
        for i, now in enumerate(before)
    }
    names = {word: i for i, word in enumerate(profile_of(200, key=KEYS).keys.name_keys())}
    order = [names[word] for word in profile.keys.name_keys()]
    found = {
        (order[key], now): number
        for key, now, number in zip(
            profile.runs.routed.tolist(), find_recorded_partitions(profile).tolist(), after, strict=True
        )
    }
    assert found == expected
    assert count_relocated(profile, replace(routing, partitions=6)) == (0, 0)


def test_without_keys_each_producer_routes_round_robin():
    found = reroute(profile_of(12, producer=["p", "q"] * 6), PartitionRouting(3, JAVA_STRING_HASH, "round robin"))
    for producer in range(2):
        rows = {
            int(at): found.scopes[scope].partition
            for begin, end, scope, mine in zip(
                found.runs.begin, found.runs.end, found.runs.scope, found.runs.producer, strict=True
            )
            for at in found.at[begin:end]
            if mine == producer
        }
        assert [rows[at] for at in sorted(rows)] == [0, 1, 2, 0, 1, 2]


def test_the_sticky_partitioner_fills_a_batch_before_the_next_partition():
    found = reroute(profile_of(2_000), PartitionRouting(4, "murmur2", "sticky"))
    scopes = np.repeat(found.runs.scope, found.runs.end - found.runs.begin)
    at = np.concatenate([found.at[b:e] for b, e in zip(found.runs.begin, found.runs.end, strict=True)])
    chosen = scopes[np.argsort(at)]
    changes = np.flatnonzero(np.diff(chosen)) + 1
    assert (changes % 164 == 0).all()  # 164 messages of 100 bytes are the first to reach 16,384
    assert len(set(chosen.tolist())) == 4


@examples(30)
@given(log=logs, partitions=st.integers(1, 5), keyless=st.sampled_from(["round robin", "sticky"]))
def test_no_message_is_lost_and_runs_stay_in_order_of_time(log, partitions, keyless):
    profile = PROFILER.build_profile(log)
    found = reroute(profile, PartitionRouting(partitions, "murmur2", keyless))

    def messages(of):
        return Counter(
            zip(of.at.tolist(), of.entry.tolist(), of.size.tolist(), of.runs.key[of.run_of].tolist(), strict=True)
        )

    assert messages(found) == messages(profile)
    for begin, end in zip(found.runs.begin, found.runs.end, strict=True):
        assert (np.diff(found.at[begin:end]) >= 0).all()
