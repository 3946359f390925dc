"""How things are written in reports: instants, positions and keys, the same everywhere."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import cache, lru_cache
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from subreplay.rows.model.columns import DAY, Ints

DIGEST = 12  # hexadecimal digits of a key's digest
MOST_SLOTS_TOLD: Final = 65_536
"""Where there are more, as with the 31-bit hashes of 3.2, a slot all but names its key."""
_REMEMBERED: Final = 1 << 17  # digests of keys that a process remembers: at most some 20 MB
_SHORT: Final = 128  # bytes of the longest key of which one is
_TAG = 16  # bytes
_ROUNDS = 100_000  # what one guess of a secret costs whoever has a digest of a known key
_HEX: Final = np.array([f"{byte:02x}".encode() for byte in range(256)])
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@lru_cache(maxsize=1 << 14)
def instant(at: int) -> str:
    """A time in ns as ISO 8601 UTC, to the microsecond.

    >>> instant(1_500_000_000)
    '1970-01-01T00:00:01.500000Z'
    """
    return (_EPOCH + timedelta(microseconds=at // 1_000)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def clock(at: int, dates: bool = False) -> str:
    """The time of day, for sentences; with its date where a run has several.

    >>> clock(1_500_000_000), clock(1_500_000_000, dates=True)
    ('00:00:01.500000', '1970-01-01 00:00:01.500000')
    """
    return instant(at)[:-1].replace("T", " ") if dates else instant(at)[11:-1]


def has_dates(first: int, last: int) -> bool:
    """Whether a run from ``first`` to ``last`` (ns) has several days (UTC), so that sentences show dates."""
    return first // DAY != last // DAY


def position(ledger: int, entry: int, batch_index: int) -> str:
    """A message's position in its log.

    >>> position(5, 120, -1), position(5, 120, 3)
    ('5:120', '5:120[3]')
    """
    return f"{ledger}:{entry}" if batch_index < 0 else f"{ledger}:{entry}[{batch_index}]"


@dataclass(frozen=True)
class KeyWords:
    """Keys as they may leave the system: in the clear where ``show``, else a digest, the first 48 bits of BLAKE2b keyed
    with ``key``.

    ``key`` is made of the run's secret, which itself stays where the run file is read. Workers get ``key`` inside the
    functions they run, as part of a ``Judge``: Spark moves these as bytes and writes them neither into plans nor into
    its event log, where a literal of an expression would stand for anybody to read.
    """

    show: bool
    key: bytes

    @classmethod
    def of(cls, show: bool, secret: str) -> KeyWords:
        """The words of a run with that secret."""
        return cls(show, _key_of(secret))

    def word(self, key: bytes | None) -> str | None:
        """A key in words; None for a message without a key."""
        if key is None:
            return None
        return key.decode("utf-8", "replace") if self.show else f"{_digests(self.key).of(key):0{DIGEST}x}"

    def words(self, keys: pa.Array) -> pa.Array:
        """A column of keys in words; each distinct one is looked at once."""
        coded = keys.dictionary_encode()
        distinct = coded.dictionary  # without null
        if self.show:
            told = pa.array([self.word(key) for key in distinct.to_pylist()], pa.string())
        else:
            told = _in_hex(_digests(self.key).of_all(distinct))
        return told.take(coded.indices)

    def numbers(self, keys: pa.Array) -> NDArray[np.uint64]:
        """The digest of each key as a number of 48 bits, also where keys are shown; none is null."""
        return _digests(self.key).of_all(keys)

    def shows_slots(self, space: tuple[int, int]) -> bool:
        """Whether slots of that space are told: where many keys share each, or keys are shown."""
        return self.show or space[1] - space[0] < MOST_SLOTS_TOLD

    def slots(self, slots: NDArray[np.int64], space: tuple[int, int]) -> NDArray[np.int64]:
        """Slots as they may leave: where they are not told, negative keyed numbers, which only tell them apart."""
        if self.shows_slots(space):
            return slots
        distinct, inverse = np.unique(slots, return_inverse=True)
        keyed = [-1 - int(self._digest(slot.tobytes(), b"slot"), 16) for slot in distinct]
        return np.array(keyed, np.int64)[inverse]

    @property
    def check(self) -> str:
        """The digest of no key at all: two runs have the same if their secrets are the same."""
        return self._digest(b"", b"check")

    def _digest(self, data: bytes, purpose: bytes) -> str:
        return hashlib.blake2b(data, key=self.key, person=purpose, digest_size=DIGEST // 2).hexdigest()

    def sealed(self, data: bytes) -> bytes:
        """Data that only who knows the secret can open; the same data are sealed alike.

        What encrypts them is drawn from a keyed digest of the data, which stands in front and is checked on opening.
        """
        tag = hashlib.blake2b(data, key=self.key, person=b"seal", digest_size=_TAG).digest()
        return tag + self._crossed(data, tag)

    def opened(self, sealed: bytes) -> bytes:
        """What was sealed. Raises ValueError if it was under another secret."""
        data = self._crossed(sealed[_TAG:], sealed[:_TAG])
        if self.sealed(data) != sealed:
            raise ValueError("sealed under another keys.secret")
        return data

    def _crossed(self, data: bytes, tag: bytes) -> bytes:
        stream = hashlib.shake_256(b"stream" + self.key + tag).digest(len(data))
        return (np.frombuffer(data, np.uint8) ^ np.frombuffer(stream, np.uint8)).tobytes()


IN_THE_CLEAR: Final = KeyWords(True, b"")
"""Keys as they are, where nothing leaves."""


class _Known(NamedTuple):
    """Digests as numbers, in order of their keys' identities. The first is of an identity that no key has, so that
    there is always one to be found."""

    identities: Ints
    numbers: NDArray[np.uint64]
    keys: pa.Array


# Of a list Arrow would make it, too, but import pandas to ask whether that is a column of it: half a second
_NO_KEY: Final = pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(np.zeros(2, np.int32)), pa.py_buffer(b"")])
_NOTHING_KNOWN: Final = _Known(np.array([-1]), np.zeros(1, np.uint64), _NO_KEY)


class _Digests:
    """Digests of keys under one ``key``, as numbers. Those of short keys are remembered: a busy key comes in every
    batch."""

    def __init__(self, key: bytes) -> None:
        self._begun = hashlib.blake2b(key=key, person=b"key", digest_size=DIGEST // 2)
        self.known = _NOTHING_KNOWN  # replaced as a whole: threads share it

    def of(self, key: bytes) -> int:
        """The digest of one key."""
        sealed = self._begun.copy()
        sealed.update(key)
        return int.from_bytes(sealed.digest(), "big")

    def of_all(self, keys: pa.Array) -> NDArray[np.uint64]:
        """The digests of keys, of which none is null."""
        if not len(keys):
            return np.zeros(0, np.uint64)
        from subreplay.hashing.key_identity import (
            compute_key_identities,  # which is compiled: who needs one key does not wait for it
        )

        identities, known = compute_key_identities(keys), self.known
        at = np.minimum(np.searchsorted(known.identities, identities), len(known.identities) - 1)
        met = known.identities[at] == identities
        same = met & np.asarray(pc.equal(known.keys.take(pa.array(at)), keys))
        numbers = known.numbers[at]
        if not same.all():
            others = np.flatnonzero(~same)
            numbers[others] = [self.of(key) for key in keys.take(pa.array(others)).to_pylist()]
            new = np.flatnonzero(~met & np.asarray(pc.less_equal(pc.binary_length(keys), _SHORT)))[: _REMEMBERED - 1]
            if len(new):
                more = _Known(identities[new], numbers[new], keys.take(pa.array(new)))
                self.known = _both(known if len(known.identities) + len(new) <= _REMEMBERED else _NOTHING_KNOWN, more)
        return numbers


def _both(known: _Known, more: _Known) -> _Known:
    identities = np.concatenate([known.identities, more.identities])
    order = np.argsort(identities, kind="stable")
    numbers = np.concatenate([known.numbers, more.numbers])
    return _Known(identities[order], numbers[order], pa.concat_arrays([known.keys, more.keys]).take(pa.array(order)))


def _in_hex(numbers: NDArray[np.uint64]) -> pa.Array:
    """Digests as words."""
    digits = _HEX[numbers.astype(">u8").view(np.uint8).reshape(-1, 8)[:, -DIGEST // 2 :]]
    ends = np.arange(len(numbers) + 1, dtype=np.int32) * DIGEST
    return pa.StringArray.from_buffers(len(numbers), pa.py_buffer(ends), pa.py_buffer(digits.tobytes()))


@lru_cache(maxsize=4)
def _digests(key: bytes) -> _Digests:
    return _Digests(key)


@cache
def _key_of(secret: str) -> bytes:
    return hashlib.pbkdf2_hmac("sha256", secret.encode(), b"subreplay", _ROUNDS)
