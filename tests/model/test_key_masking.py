"""Keys as they leave: keyed, the same everywhere, and of no use to who guesses."""

import hashlib
import pickle

import numpy as np
import pyarrow as pa
import pytest

from subreplay.rows.model.key_masking import KeyMasking, _get_digests

SOME = b"the state of a night" * 1_000


def test_a_digest_is_of_the_key_and_the_secret() -> None:
    one, other = KeyMasking.from_secret(False, "one"), KeyMasking.from_secret(False, "other")
    assert one.mask_key(b"k") == KeyMasking.from_secret(False, "one").mask_key(b"k") != other.mask_key(b"k")
    assert len(one.mask_key(b"k") or "") == 12
    assert one.mask_key(None) is None
    assert KeyMasking.from_secret(True, "one").mask_key(b"caf\xff") == "caf\ufffd"


def test_a_column_has_the_word_of_each_key() -> None:
    keys = [b"a", b"", None, b"a", "日本".encode(), b"\xff"]
    for words in (KeyMasking.from_secret(False, "s"), KeyMasking.from_secret(True, "s")):
        assert words.mask_keys(pa.array(keys, pa.binary())).to_pylist() == [words.mask_key(key) for key in keys]


def test_digests_that_are_remembered_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subreplay.rows.model.key_masking._MOST_CACHED", 3)
    words = KeyMasking.from_secret(False, "remembered")
    keys = [b"a", b"b", b"c", b"a", b"long" * 100]
    sealed = [hashlib.blake2b(key, key=words.key, person=b"key", digest_size=6).hexdigest() for key in keys]
    for _ in range(2):
        assert words.mask_keys(pa.array(keys, pa.binary())).to_pylist() == sealed
        assert words.digest_keys(pa.array(keys, pa.binary())).tolist() == [int(digest, 16) for digest in sealed]
    remembered = _get_digests(words.key).known.keys.to_pylist()
    assert 1 < len(remembered) <= 3
    assert keys[-1] not in remembered


def test_a_digest_is_not_that_of_another_key_of_the_same_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subreplay.hashing.key_identity.compute_key_identities", lambda keys: np.full(len(keys), 7))
    words, keys = KeyMasking.from_secret(False, "alike"), pa.array([b"a", b"b", b"a", b"c"], pa.binary())
    for _ in range(2):
        assert words.mask_keys(keys).to_pylist() == [words.mask_key(key) for key in keys.to_pylist()]


def test_a_digest_keeps_its_leading_zeros() -> None:
    words = KeyMasking.from_secret(False, "s")
    key = next(b"%d" % i for i in range(100_000) if (words.mask_key(b"%d" % i) or "").startswith("000"))
    assert words.mask_keys(pa.array([key])).to_pylist() == [words.mask_key(key)]


def test_what_goes_to_workers_does_not_hold_the_secret() -> None:
    assert b"a long secret" not in pickle.dumps(KeyMasking.from_secret(False, "a long secret"))


def test_what_is_sealed_opens_under_the_same_secret_only() -> None:
    words = KeyMasking.from_secret(False, "one")
    sealed = words.encrypt(SOME)
    assert words.decrypt(sealed) == SOME
    assert words.encrypt(SOME) == sealed
    assert SOME[:16] not in sealed
    for wrong in (KeyMasking.from_secret(False, "other").encrypt(SOME), sealed[:-1], sealed[:5]):
        with pytest.raises(ValueError, match=r"another keys\.secret"):
            words.decrypt(wrong)
    assert words.decrypt(words.encrypt(b"")) == b""


def test_slots_are_shown_if_many_keys_share_each() -> None:
    slots = np.array([5, 2**30, 5])
    hidden = KeyMasking.from_secret(False, "one").mask_slots(slots, (0, 2**31 - 1))
    assert hidden[0] == hidden[2] != hidden[1]
    assert (hidden < 0).all()
    assert KeyMasking.from_secret(False, "one").mask_slots(slots, (0, 65_535)) is slots
    assert KeyMasking.from_secret(True, "one").mask_slots(slots, (0, 2**31 - 1)) is slots


def test_equal_secrets_have_equal_checks() -> None:
    assert (
        KeyMasking.from_secret(True, "one").check
        == KeyMasking.from_secret(False, "one").check
        != KeyMasking.from_secret(False, "other").check
    )
