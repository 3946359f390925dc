"""Mask the keys of messages: as digests, or in the clear."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from subreplay.rows.model.columns import Ints

DIGEST = 12  # hexadecimal digits of a key's digest
MOST_SLOTS_SHOWN: Final = 65_536
"""The largest number of slots that are shown. With more, as with the 31-bit hashes of 3.2, a slot almost identifies its
key."""
_MOST_CACHED: Final = 1 << 17  # digests of keys that a process remembers: at most some 20 MB
_LONGEST_CACHED: Final = 128  # bytes of the longest key of which one is
_TAG = 16  # bytes
_ROUNDS = 100_000  # what one guess of a secret costs whoever has a digest of a known key
_HEX: Final = np.array([f"{byte:02x}".encode() for byte in range(256)])


@dataclass(frozen=True)
class KeyMasking:
    """Masks keys before they leave the system: in the clear if ``show``, else the first 48 bits of BLAKE2b keyed with
    ``key``.

    ``key`` is derived from the secret of the run, which stays in the process that reads the run file. Workers receive
    ``key`` inside the functions that they run, as part of a ``Judge``. Spark moves these as bytes, and writes them
    neither to plans nor to its event log, where a literal of an expression would be readable.
    """

    show: bool
    key: bytes

    @classmethod
    def from_secret(cls, show: bool, secret: str) -> KeyMasking:
        """Return the masking of a run with that secret."""
        return cls(show, _derive_key(secret))

    def mask_key(self, key: bytes | None) -> str | None:
        """Mask a key; None for a message without a key."""
        if key is None:
            return None
        return key.decode("utf-8", "replace") if self.show else f"{_get_digests(self.key).of(key):0{DIGEST}x}"

    def mask_keys(self, keys: pa.Array) -> pa.Array:
        """Mask a column of keys, each distinct key once."""
        coded = keys.dictionary_encode()
        distinct = coded.dictionary  # without null
        if self.show:
            masked = pa.array([self.mask_key(key) for key in distinct.to_pylist()], pa.string())
        else:
            masked = _format_hex(_get_digests(self.key).of_all(distinct))
        return masked.take(coded.indices)

    def digest_keys(self, keys: pa.Array) -> NDArray[np.uint64]:
        """Return the digest of each key as a number of 48 bits, even if keys are shown. No key is null."""
        return _get_digests(self.key).of_all(keys)

    def shows_slots(self, space: tuple[int, int]) -> bool:
        """Return whether slots of that space are shown: if many keys share each slot, or if keys are shown."""
        return self.show or space[1] - space[0] < MOST_SLOTS_SHOWN

    def mask_slots(self, slots: NDArray[np.int64], space: tuple[int, int]) -> NDArray[np.int64]:
        """Mask slots: if they are not shown, negative keyed numbers, which only distinguish them."""
        if self.shows_slots(space):
            return slots
        distinct, inverse = np.unique(slots, return_inverse=True)
        keyed = [-1 - int(self._digest(slot.tobytes(), b"slot"), 16) for slot in distinct]
        return np.array(keyed, np.int64)[inverse]

    @property
    def check(self) -> str:
        """The digest of no key. Two runs with the same secret have the same one."""
        return self._digest(b"", b"check")

    def _digest(self, data: bytes, purpose: bytes) -> str:
        return hashlib.blake2b(data, key=self.key, person=purpose, digest_size=DIGEST // 2).hexdigest()

    def encrypt(self, data: bytes) -> bytes:
        """Encrypt data so that only the same secret can decrypt them; equal data have equal results.

        The key stream is derived from a keyed digest of the data, which precedes them and is verified on decryption.
        """
        tag = hashlib.blake2b(data, key=self.key, person=b"seal", digest_size=_TAG).digest()
        return tag + self._apply_stream(data, tag)

    def decrypt(self, sealed: bytes) -> bytes:
        """Decrypt data. Raises ValueError if another secret encrypted them."""
        data = self._apply_stream(sealed[_TAG:], sealed[:_TAG])
        if self.encrypt(data) != sealed:
            raise ValueError("encrypted with another keys.secret")
        return data

    def _apply_stream(self, data: bytes, tag: bytes) -> bytes:
        stream = hashlib.shake_256(b"stream" + self.key + tag).digest(len(data))
        return (np.frombuffer(data, np.uint8) ^ np.frombuffer(stream, np.uint8)).tobytes()


IN_THE_CLEAR: Final = KeyMasking(True, b"")
"""Keys in the clear, if nothing leaves the system."""


class _KnownDigests(NamedTuple):
    """Digests as numbers, sorted by the identities of their keys. The first identity belongs to no key, so that a
    search always finds one."""

    identities: Ints
    numbers: NDArray[np.uint64]
    keys: pa.Array


# Of a list Arrow would make it, too, but import pandas to ask whether that is a column of it: half a second
_NO_KEY: Final = pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(np.zeros(2, np.int32)), pa.py_buffer(b"")])
_NOTHING_KNOWN: Final = _KnownDigests(np.array([-1]), np.zeros(1, np.uint64), _NO_KEY)


class _Digests:
    """Digests of keys under one ``key``, as numbers. Those of short keys are cached, because frequent keys occur in
    every batch."""

    def __init__(self, key: bytes) -> None:
        self._begun = hashlib.blake2b(key=key, person=b"key", digest_size=DIGEST // 2)
        self.known = _NOTHING_KNOWN  # replaced as a whole: threads share it

    def of(self, key: bytes) -> int:
        """Return the digest of one key."""
        sealed = self._begun.copy()
        sealed.update(key)
        return int.from_bytes(sealed.digest(), "big")

    def of_all(self, keys: pa.Array) -> NDArray[np.uint64]:
        """Return the digests of keys without nulls."""
        if not len(keys):
            return np.zeros(0, np.uint64)
        from subreplay.hashing.key_identity import (
            compute_key_identities,  # compiled, so it is not used for a single key
        )

        identities, known = compute_key_identities(keys), self.known
        at = np.minimum(np.searchsorted(known.identities, identities), len(known.identities) - 1)
        met = known.identities[at] == identities
        same = met & np.asarray(pc.equal(known.keys.take(pa.array(at)), keys))
        numbers = known.numbers[at]
        if not same.all():
            others = np.flatnonzero(~same)
            numbers[others] = [self.of(key) for key in keys.take(pa.array(others)).to_pylist()]
            new = np.flatnonzero(~met & np.asarray(pc.less_equal(pc.binary_length(keys), _LONGEST_CACHED)))[
                : _MOST_CACHED - 1
            ]
            if len(new):
                more = _KnownDigests(identities[new], numbers[new], keys.take(pa.array(new)))
                self.known = _merge_known(
                    known if len(known.identities) + len(new) <= _MOST_CACHED else _NOTHING_KNOWN, more
                )
        return numbers


def _merge_known(known: _KnownDigests, more: _KnownDigests) -> _KnownDigests:
    identities = np.concatenate([known.identities, more.identities])
    order = np.argsort(identities, kind="stable")
    numbers = np.concatenate([known.numbers, more.numbers])
    return _KnownDigests(
        identities[order], numbers[order], pa.concat_arrays([known.keys, more.keys]).take(pa.array(order))
    )


def _format_hex(numbers: NDArray[np.uint64]) -> pa.Array:
    """Format digests as text."""
    digits = _HEX[numbers.astype(">u8").view(np.uint8).reshape(-1, 8)[:, -DIGEST // 2 :]]
    ends = np.arange(len(numbers) + 1, dtype=np.int32) * DIGEST
    return pa.StringArray.from_buffers(len(numbers), pa.py_buffer(ends), pa.py_buffer(digits.tobytes()))


@lru_cache(maxsize=4)
def _get_digests(key: bytes) -> _Digests:
    return _Digests(key)


@cache
def _derive_key(secret: str) -> bytes:
    return hashlib.pbkdf2_hmac("sha256", secret.encode(), b"subreplay", _ROUNDS)
