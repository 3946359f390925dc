"""Make keyed digests of message keys, equal to those of reports with the same secret, without heavy imports."""

from __future__ import annotations

import hashlib
from typing import Final

_ROUNDS: Final = 100_000
_BYTES: Final = 6


class KeyDigests:
    """The digests of keys under one secret. Only the key that is derived from the secret is kept in memory."""

    def __init__(self, secret: str) -> None:
        self._key = hashlib.pbkdf2_hmac("sha256", secret.encode(), b"subreplay", _ROUNDS)

    def make(self, key: bytes) -> bytes:
        """Return a key's digest: 12 hexadecimal digits."""
        return self._digest(key, b"key")

    @property
    def check(self) -> str:
        """A digest that depends only on the secret: two files with equal values were recorded with the same secret."""
        return self._digest(b"", b"check").decode()

    def _digest(self, data: bytes, purpose: bytes) -> bytes:
        digest = hashlib.blake2b(data, key=self._key, person=purpose, digest_size=_BYTES)
        return digest.hexdigest().encode()
