"""The bytes that decide which Key_Shared consumer receives a message: ordering key, else key, else a rule.

Follows ``Commands.peekStickyKey`` / ``resolveStickyKey`` (pulsar-common 3.2.3, 4.0.8, 4.2.4). The broker only reads the
outer metadata of an entry, so a batch has the sticky key of its first message (documented row L-BATCH-3).
"""

from __future__ import annotations

import base64
import re

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.hashing.arrow_bytes import Column
from subreplay.hashing.profiles import KEYLESS, KeylessRule, get_rule

# what java.util.Base64's basic decoder accepts: the padding may be left out, anything else must fit
_BASE64 = re.compile(rb"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}(?:==)?|[A-Za-z0-9+/]{3}=?)?")


def compute_sticky_key(
    ordering_key: bytes | None,
    key: bytes | None,
    key_is_base64: bool,
    producer: str | None,
    sequence_id: int | None,
    profile: str,
) -> bytes | None:
    """Compute the sticky key of one message, or None if the profile needs a producer and sequence id that are unknown.

    ``key`` is the metadata's ``partition_key`` as UTF-8; an empty key is a key. Raises ConfigError on an unknown
    profile.

    >>> [compute_sticky_key(None, None, False, "p", 7, profile) for profile in ("pulsar-4.0", "pulsar-3.2")]
    [b'p-7', b'NONE_KEY']
    """
    rule = get_rule("the sticky key", KEYLESS, profile)
    if ordering_key is not None:
        return ordering_key
    if key is not None:
        return _decode_base64(key, rule) if key_is_base64 else key
    if not rule.per_message:
        return rule.constant
    if producer is None or sequence_id is None:
        return None
    return f"{producer}-{sequence_id}".encode()


def compute_sticky_keys(
    ordering_key: Column,
    key: Column,
    key_is_base64: Column | None,
    producer: Column,
    sequence_id: Column,
    profile: str,
) -> Column:
    """Compute the sticky key of every row as a ``large_binary`` column, from columns of equal length.

    ``key_is_base64`` None means that every key is already decoded.
    """
    rule = get_rule("the sticky key", KEYLESS, profile)
    keys = _to_binary(key) if key_is_base64 is None else _decode_flagged(_to_binary(key), key_is_base64, rule)
    known = pc.coalesce(_to_binary(ordering_key), keys)
    if not known.null_count:
        return known
    return pc.coalesce(known, _build_keyless_keys(producer, sequence_id, rule))


def has_keyless_spread(profile: str) -> bool:
    """Check whether messages without a key are spread by producer and sequence id. Raises ConfigError on an unknown
    profile.

    >>> has_keyless_spread("pulsar-3.2"), has_keyless_spread("pulsar-4.0")
    (False, True)
    """
    return get_rule("the sticky key", KEYLESS, profile).per_message


def _build_keyless_keys(producer: Column, sequence_id: Column, rule: KeylessRule) -> Column | pa.Scalar:
    if not rule.per_message:
        return pa.scalar(rule.constant, pa.large_binary())
    parts = pc.binary_join_element_wise(
        producer.cast(pa.large_string()), sequence_id.cast(pa.large_string()), pa.scalar("-", pa.large_string())
    )
    return _to_binary(parts)


def _decode_flagged(keys: Column, is_base64: Column, rule: KeylessRule) -> Column:
    """Return ``keys`` with the rows flagged ``is_base64`` decoded; a null flag means false."""
    flagged = pc.and_(pc.fill_null(is_base64, False), pc.is_valid(keys))
    if not pc.any(flagged).as_py():
        return keys
    decoded = [_decode_base64(key, rule) for key in keys.filter(flagged).to_pylist()]
    return pc.replace_with_mask(keys, flagged, pa.array(decoded, pa.large_binary()))


def _decode_base64(key: bytes, rule: KeylessRule) -> bytes:
    if not _BASE64.fullmatch(key):
        return rule.constant
    return base64.b64decode(key.rstrip(b"=") + b"=" * (-len(key.rstrip(b"=")) % 4))


def _to_binary(column: Column) -> Column:
    return column.cast(pa.large_binary())
