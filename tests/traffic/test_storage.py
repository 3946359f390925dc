"""Profiles on disk: nothing is lost, no key is in the clear, and little room is taken."""

from dataclasses import fields

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.errors import InputError
from subreplay.hashing.murmur3 import murmur3_32
from subreplay.rows.model.words import KeyWords
from subreplay.whatif.traffic import profile_storage
from subreplay.whatif.traffic.profile_builder import Profiler
from subreplay.whatif.traffic.traffic_profile import HotKey, TrafficProfile, joined
from tests.support.properties import examples
from tests.support.published import MESSAGES, SCOPES, logs

WORDS = KeyWords.of(False, "a secret")
PROFILER = Profiler(WORDS)


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
def test_what_is_written_is_read_again(log, blocks):
    for part in PROFILER.profiles(log.to_batches(), blocks):
        assert same(profile_storage.from_bytes(profile_storage.to_bytes(part)), part)
    whole = joined(list(PROFILER.profiles(log.to_batches(), blocks)))
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


def test_a_profile_tells_no_key_and_takes_less_than_16_bytes_a_message():
    keys = [f"customer-{i:08}".encode() for i in range(1_000)]
    data = profile_storage.to_bytes(PROFILER.profile(messages(100_000, keys)))
    assert len(data) < 16 * 100_000
    assert b"customer-" not in data


def test_a_key_has_the_digest_by_which_reports_name_it():
    profile = PROFILER.profile(messages(20, [b"a", b"a", b"b"]))
    a, b = (HotKey(str(WORDS.word(key)), murmur3_32(key), n) for key, n in ((b"a", 14), (b"b", 6)))
    assert profile.hottest(9) == [a, b]
    assert profile.hottest(1) == [a]


def test_another_version_is_refused_with_the_remedy(monkeypatch):
    data = profile_storage.to_bytes(PROFILER.profile(messages(1, [b"a"])))
    monkeypatch.setattr(profile_storage, "VERSION", "3")
    with pytest.raises(InputError, match="version 2: this release reads version 3; make it again with subreplay pro"):
        profile_storage.from_bytes(data)


def test_profiles_of_different_secrets_are_not_joined():
    other = Profiler(KeyWords.of(False, "another")).profile(messages(1, [b"a"]))
    with pytest.raises(ValueError, match="different secrets"):
        joined([PROFILER.profile(messages(1, [b"a"])), other])
