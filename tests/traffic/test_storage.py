"""Profiles on disk: nothing is lost, no key is in the clear, and little room is taken."""

from dataclasses import fields

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.errors import InputError
from subreplay.hashing.murmur3 import murmur3_32
from subreplay.rows.model.key_masking import KeyMasking
from subreplay.whatif.traffic import profile_storage
from subreplay.whatif.traffic.profile_builder import ProfileBuilder
from subreplay.whatif.traffic.traffic_profile import HottestKey, TrafficProfile, join_profiles
from tests.support.properties import examples
from tests.support.published import MESSAGES, SCOPES, logs

WORDS = KeyMasking.from_secret(False, "a secret")
PROFILER = ProfileBuilder(WORDS)


def same(one: TrafficProfile, two: TrafficProfile) -> bool:
    arrays = [(getattr(one, f.name), getattr(two, f.name)) for f in fields(TrafficProfile)]
    arrays += [(getattr(one.keys, f.name), getattr(two.keys, f.name)) for f in fields(one.keys)]
    arrays += [(getattr(one.runs, f.name), getattr(two.runs, f.name)) for f in fields(one.runs)]
    return all(
        np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b
        for a, b in arrays
        if not hasattr(a, "__dataclass_fields__")
    )


@examples(30)
@given(log=logs, blocks=st.integers(1, 40))
def test_a_stored_profile_is_read_back_unchanged(log, blocks):
    for part in PROFILER.build_profiles(log.to_batches(), blocks):
        assert same(profile_storage.from_bytes(profile_storage.to_bytes(part)), part)
    whole = join_profiles(list(PROFILER.build_profiles(log.to_batches(), blocks)))
    assert len(profile_storage.from_bytes(profile_storage.to_bytes(whole))) == log.num_rows


def messages(n: int, keys: list[bytes]) -> pa.Table:
    """One message a millisecond, all keys in turn."""
    columns = {
        "topic": [SCOPES[0].topic] * n,
        "partition": np.arange(n) % 8,
        "entry": np.arange(n) // 8,
        "batch_index": np.full(n, -1),
        "at": np.arange(n) * 1_000_000,
        "key": [keys[i % len(keys)] for i in range(n)],
        "producer": ["p"] * n,
        "sequence_id": np.arange(n),
        "size": np.arange(n) % 900 + 100,
    }
    given = [pa.array(columns[f.name], f.type) if f.name in columns else pa.nulls(n, f.type) for f in MESSAGES]
    return pa.table(given, schema=MESSAGES)


def test_a_profile_contains_no_key_and_takes_less_than_16_bytes_a_message():
    keys = [f"customer-{i:08}".encode() for i in range(1_000)]
    data = profile_storage.to_bytes(PROFILER.build_profile(messages(100_000, keys)))
    assert len(data) < 16 * 100_000
    assert b"customer-" not in data


def test_a_key_has_the_pseudonym_that_reports_use():
    profile = PROFILER.build_profile(messages(20, [b"a", b"a", b"b"]))
    a, b = (HottestKey(str(WORDS.mask_key(key)), murmur3_32(key), n) for key, n in ((b"a", 14), (b"b", 6)))
    assert profile.find_hottest(9) == [a, b]
    assert profile.find_hottest(1) == [a]


def test_another_profile_version_is_rejected_with_a_remedy(monkeypatch):
    data = profile_storage.to_bytes(PROFILER.build_profile(messages(1, [b"a"])))
    monkeypatch.setattr(profile_storage, "VERSION", "3")
    with pytest.raises(InputError, match="version 2, but this release reads version 3"):
        profile_storage.from_bytes(data)


def test_profiles_of_different_secrets_are_not_joined():
    other = ProfileBuilder(KeyMasking.from_secret(False, "another")).build_profile(messages(1, [b"a"]))
    with pytest.raises(ValueError, match="different secrets"):
        join_profiles([PROFILER.build_profile(messages(1, [b"a"])), other])
