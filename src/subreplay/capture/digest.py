"""Keys as keyed digests: the same as ``words.KeyWords`` makes of the same secret, without what that module imports."""

from __future__ import annotations

import hashlib
from typing import Final

_ROUNDS: Final = 100_000
_BYTES: Final = 6


class Digests:
    """Digests of keys under one secret, which is kept as the key that is made of it only."""

    def __init__(self, secret: str) -> None:
        self._key = hashlib.pbkdf2_hmac("sha256", secret.encode(), b"subreplay", _ROUNDS)

    def of(self, key: bytes) -> bytes:
        """A key's digest, 12 hexadecimal digits."""
        return self._digest(key, b"key")

    @property
    def check(self) -> str:
        """The digest of no key at all: two files have the same if their secrets are the same."""
        return self._digest(b"", b"check").decode()

    def _digest(self, data: bytes, purpose: bytes) -> bytes:
        digest = hashlib.blake2b(data, key=self._key, person=purpose, digest_size=_BYTES)
        return digest.hexdigest().encode()
