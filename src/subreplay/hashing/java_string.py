"""Java's ``String.hashCode``: how Pulsar producers choose a partition by default (row L-ROUTE-1)."""

from __future__ import annotations

import re

import numpy as np

from subreplay.hashing.murmur3 import MASK_31

_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def java_string_hash(text: str) -> int:
    """``text.hashCode() & 0x7fffffff`` over UTF-16 units, as Pulsar's ``JavaStringHash`` computes it.

    >>> java_string_hash("polygenelubricants")  # its hashCode is Integer.MIN_VALUE
    0
    """
    total = 0
    for unit in np.frombuffer(text.encode("utf-16-le", "surrogatepass"), np.uint16).tolist():
        total = (31 * total + unit) & 0xFFFFFFFF
    return total & MASK_31


def java_decoded(data: bytes) -> str:
    r"""``new String(data, UTF_8)``: as Python's replacing decoder, but an encoded surrogate is replaced as a whole.

    >>> java_decoded(b"\xed\xb5\xbf") == "\ufffd", b"\xed\xb5\xbf".decode("utf-8", "replace") == "\ufffd" * 3
    (True, True)
    """
    return _ENCODED_SURROGATE.sub("\ufffd".encode(), data).decode("utf-8", "replace")


def utf16_order(name: str) -> bytes:
    """A sort key that orders strings as ``String.compareTo`` does.

    UTF-16 units put U+1F600 (a surrogate pair) before U+FFFD; Python, which compares code points, does not.
    """
    return name.encode("utf-16-be", "surrogatepass")
