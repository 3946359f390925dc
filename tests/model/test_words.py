"""Keys as they leave: keyed, the same everywhere, and of no use to who guesses."""

import hashlib
import pickle

import numpy as np
import pyarrow as pa
import pytest

from subreplay.rows.model.words import KeyWords, _digests

SOME = b"the state of a night" * 1_000


def test_a_digest_is_of_the_key_and_the_secret() -> None:
    one, other = KeyWords.of(False, "one"), KeyWords.of(False, "other")
    assert one.word(b"k") == KeyWords.of(False, "one").word(b"k") != other.word(b"k")
    assert len(one.word(b"k") or "") == 12
    assert one.word(None) is None
    assert KeyWords.of(True, "one").word(b"caf\xff") == "caf\ufffd"


def test_a_column_has_the_word_of_each_key() -> None:
    keys = [b"a", b"", None, b"a", "日本".encode(), b"\xff"]
    for words in (KeyWords.of(False, "s"), KeyWords.of(True, "s")):
        assert words.words(pa.array(keys, pa.binary())).to_pylist() == [words.word(key) for key in keys]


def test_digests_that_are_remembered_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subreplay.rows.model.words._REMEMBERED", 3)
    words = KeyWords.of(False, "remembered")
    keys = [b"a", b"b", b"c", b"a", b"long" * 100]
    sealed = [hashlib.blake2b(key, key=words.key, person=b"key", digest_size=6).hexdigest() for key in keys]
    for _ in range(2):
        assert words.words(pa.array(keys, pa.binary())).to_pylist() == sealed
        assert words.numbers(pa.array(keys, pa.binary())).tolist() == [int(digest, 16) for digest in sealed]
    remembered = _digests(words.key).known.keys.to_pylist()
    assert 1 < len(remembered) <= 3
    assert keys[-1] not in remembered


def test_a_digest_is_not_that_of_another_key_of_the_same_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subreplay.hashing.key_identity.compute_key_identities", lambda keys: np.full(len(keys), 7))
    words, keys = KeyWords.of(False, "alike"), pa.array([b"a", b"b", b"a", b"c"], pa.binary())
    for _ in range(2):
        assert words.words(keys).to_pylist() == [words.word(key) for key in keys.to_pylist()]


def test_a_digest_keeps_its_leading_zeros() -> None:
    words = KeyWords.of(False, "s")
    key = next(b"%d" % i for i in range(100_000) if (words.word(b"%d" % i) or "").startswith("000"))
    assert words.words(pa.array([key])).to_pylist() == [words.word(key)]


def test_what_goes_to_workers_does_not_hold_the_secret() -> None:
    assert b"a long secret" not in pickle.dumps(KeyWords.of(False, "a long secret"))


def test_what_is_sealed_opens_under_the_same_secret_only() -> None:
    words = KeyWords.of(False, "one")
    sealed = words.sealed(SOME)
    assert words.opened(sealed) == SOME
    assert words.sealed(SOME) == sealed
    assert SOME[:16] not in sealed
    for wrong in (KeyWords.of(False, "other").sealed(SOME), sealed[:-1], sealed[:5]):
        with pytest.raises(ValueError, match=r"another keys\.secret"):
            words.opened(wrong)
    assert words.opened(words.sealed(b"")) == b""


def test_slots_are_told_where_many_keys_share_each() -> None:
    slots = np.array([5, 2**30, 5])
    hidden = KeyWords.of(False, "one").slots(slots, (0, 2**31 - 1))
    assert hidden[0] == hidden[2] != hidden[1]
    assert (hidden < 0).all()
    assert KeyWords.of(False, "one").slots(slots, (0, 65_535)) is slots
    assert KeyWords.of(True, "one").slots(slots, (0, 2**31 - 1)) is slots


def test_equal_secrets_have_equal_checks() -> None:
    assert KeyWords.of(True, "one").check == KeyWords.of(False, "one").check != KeyWords.of(False, "other").check
