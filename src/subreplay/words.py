"""How things are written in reports: instants, positions and keys, the same everywhere."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

DIGEST = 12  # hexadecimal digits of a key's digest
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def instant(at: int) -> str:
    """A time in ns as ISO 8601 UTC, to the microsecond.

    >>> instant(1_500_000_000)
    '1970-01-01T00:00:01.500000Z'
    """
    return (_EPOCH + timedelta(microseconds=at // 1_000)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def clock(at: int) -> str:
    """The time of day alone, for sentences."""
    return instant(at)[11:-1]


def position(ledger: int, entry: int, batch_index: int) -> str:
    """A message's place in its log.

    >>> position(5, 120, -1), position(5, 120, 3)
    ('5:120', '5:120[3]')
    """
    return f"{ledger}:{entry}" if batch_index < 0 else f"{ledger}:{entry}[{batch_index}]"


@dataclass(frozen=True)
class KeyWords:
    """Keys as they may leave the system: a digest keyed with ``secret``, or in the clear where ``show``.

    The digest is the first 48 bits of SHA-256 over secret, a zero byte and key: Spark computes the same one without
    Python.
    """

    show: bool
    secret: str

    def word(self, key: bytes | None) -> str | None:
        """A key in words; None for a message without a key."""
        if key is None:
            return None
        if self.show:
            return key.decode("utf-8", "replace")
        return hashlib.sha256(self.secret.encode() + b"\0" + key).hexdigest()[:DIGEST]
