"""Pulsar's message ids: the bytes of ``MessageIdData``, these as base64 text, or text:
``ledger:entry:partition:batch`` of Java, ``(ledger,entry,partition,batch)`` of C++, Python and Node.

Source: PulsarApi.proto (``MessageIdData``: 1 ledgerId, 2 entryId, 3 partition, 4 batch_index, 5 ack_set, 6 batch_size),
Protocol Buffers' encoding, and ``MessageIdImpl.toString`` with its subclasses. All rows are read side by side, field by
field: a pass costs the same for a million rows as for their fields of one place.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.hashing.arrow_bytes import get_data_and_offsets
from subreplay.rows.encoded import (
    Broken,
    Bytes,
    Mask,
    Outcome,
    as_bytes,
    base64_bytes,
    lengths,
    mask_of,
    present,
    utf8_text,
    without,
)
from subreplay.rows.model.columns import Ints

PARTS: Final = ("ledger", "entry", "partition", "batch_index", "batch_size")
_PART: Final = np.array([-1, 0, 1, 2, 3, -1, 4, -1])  # of ``PARTS`` by field number, of which the last is any other
_REQUIRED: Final = 2  # the first of ``PARTS``
_NONE: Final = (0, 0, -1, -1, 0)  # what a field that is absent stands for
MOST_FIELDS: Final = 64
"""Of one id, each word of its ack_set counted. An id that a consumer hands out has five."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types; 3 and 4, groups, are of no message of Pulsar
_LEGAL: Final = np.isin(np.arange(8), (_VARINT, _FIXED64, _BYTES, _FIXED32))
_LONGEST: Final = 10  # bytes of a varint
_TEXT: Final = (
    r"^(?:[^;]*;)?\(?(?P<ledger>\d{1,18})[:,]\s?(?P<entry>\d{1,18})[:,]\s?(?P<partition>-?\d{1,18})"
    r"(?:[:,]\s?(?P<batch_index>-?\d{1,18}))?\)?$"
)
_PLACE: Final = r"^\s*(?i:partition:?\s*)?(?P<partition>\d{1,9})\s*[:/@,;-]\s*(?i:offset:?\s*)?(?P<entry>\d{1,18})\s*$"
_RULE: Final = (
    "a message id is the bytes of MessageIdData, their base64, ledger:entry:partition[:batch], or "
    "(ledger,entry,partition,batch)"
)
_REMEDY: Final = "map the column that holds what toByteArray() or toString() of a MessageId gives"


def message_ids(values: pa.Array) -> Outcome:
    """The parts of message ids as a struct; no batch is -1, no partition -1, an unknown batch size null.

    Of a chunked message, whose id names two entries, the last one counts. A colon or comma tells text from base64.

    >>> message_ids(pa.array(["CLYREAAYASAAMOgH", "2230:0:1"])).values.to_pylist()[0]
    {'ledger': 2230, 'entry': 0, 'partition': 1, 'batch_index': 0, 'batch_size': 1000}
    """
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        return ids_of_bytes(values)
    colon = mask_of(pc.match_substring_regex(as_bytes(values), "[:,]"))
    if colon.all():
        return ids_of_text(values)
    of_base64 = base64_bytes(without(values, colon))
    decoded = ids_of_bytes(of_base64.values)
    written = ids_of_text(without(values, ~colon))
    parts = [
        pc.if_else(pa.array(colon), text, bytes_)
        for text, bytes_ in zip(written.values.flatten(), decoded.values.flatten(), strict=True)
    ]
    unread = tuple(Broken(broken.rows, _RULE, _REMEDY) for broken in of_base64.broken)
    return Outcome(pa.StructArray.from_arrays(parts, PARTS), (*unread, *decoded.broken, *written.broken))


def ids_of_text(text: pa.Array) -> Outcome:
    """The parts of ids as ``toString()`` writes them."""
    found = pc.extract_regex(utf8_text(text).values, _TEXT)
    fits = found.is_valid()
    digits = [pc.if_else(fits, pc.struct_field(found, name), None) for name in PARTS[:4]]
    digits[-1] = pc.if_else(pc.equal(digits[-1], ""), "-1", digits[-1])
    parts = [each.cast(pa.int64()) for each in digits]
    return _struct([*parts, pa.nulls(len(text), pa.int64())], present(text) & ~mask_of(fits))


def places_of_text(text: pa.Array) -> Outcome:
    """The partition and the offset of Kafka's records, such as ``2:140``, in ledger 0.

    >>> places_of_text(pa.array(["2:140"])).values.to_pylist()[0]
    {'ledger': 0, 'entry': 140, 'partition': 2, 'batch_index': -1, 'batch_size': None}
    """
    found = pc.extract_regex(utf8_text(text).values, _PLACE)
    fits = found.is_valid()
    entry, partition = (pc.struct_field(found, name).cast(pa.int64()) for name in ("entry", "partition"))
    ledger, batch = (pc.if_else(fits, pa.scalar(number, pa.int64()), None) for number in (0, -1))
    bad = present(text) & ~mask_of(fits)
    broken = (Broken(bad, "a place is partition:offset", "map partition and offset"),) if bad.any() else ()
    parts = [ledger, entry, partition, batch, pa.nulls(len(text), pa.int64())]
    return Outcome(pa.StructArray.from_arrays(parts, PARTS), broken)


def ids_of_bytes(data: pa.Array) -> Outcome:
    """The parts of ids as ``toByteArray()`` writes them."""
    valid = present(data)
    bytes_, offsets = get_data_and_offsets(without(data, ~valid))
    starts = np.asarray(offsets[: len(data)], np.int64) if len(data) else np.zeros(0, np.int64)
    found, seen, bad = _decoded(bytes_, starts, starts + lengths(data))
    bad = valid & (bad | ~seen.all(axis=0))
    parts = [pa.array(each, mask=bad | ~valid) for each in found[:-1]]
    parts.append(pa.array(found[-1], mask=bad | ~valid | (found[-1] == 0)))
    return _struct(parts, bad)


def _struct(parts: list[pa.Array], bad: Mask) -> Outcome:
    broken = (Broken(bad, _RULE, _REMEDY),) if bad.any() else ()
    return Outcome(pa.StructArray.from_arrays(parts, PARTS), broken)


def _decoded(data: Bytes, starts: Ints, ends: Ints) -> tuple[Ints, Mask, Mask]:
    """By part and row its value, by required part and row whether it was there, and the rows that are no message."""
    found = np.repeat(np.array(_NONE, np.int64)[:, None], len(starts), axis=1)
    seen = np.zeros((_REQUIRED, len(starts)), np.bool_)
    bad = np.zeros(len(starts), np.bool_)
    rows = np.flatnonzero(starts < ends)
    at, end = starts[rows], ends[rows]
    for _ in range(MOST_FIELDS):
        if not len(rows):
            return found, seen, bad
        tag, at, ok = _varints(data, at, end)
        number, wire = tag >> 3, tag & 7
        ok &= (number > 0) & _LEGAL[wire]
        counted = (wire == _VARINT) | (wire == _BYTES)
        value, after, read = _varints(data, at, np.where(counted, end, at))
        skipped = np.select([wire == _VARINT, wire == _BYTES, wire == _FIXED64], [0, value, 8], 4)
        ok &= (read | ~counted) & (skipped >= 0) & (skipped <= end - after)
        at = after + np.where(ok, skipped, 0)
        part = np.where(ok & (wire == _VARINT), _PART[np.clip(number, 0, len(_PART) - 1)], -1)
        told = part >= 0
        found[part[told], rows[told]] = value[told]
        needed = told & (part < _REQUIRED)
        seen[part[needed], rows[needed]] = True
        bad[rows[~ok]] = True
        more = ok & (at < end)
        rows, at, end = rows[more], at[more], end[more]
    bad[rows] = True
    return found, seen, bad


def _varints(data: Bytes, at: Ints, end: Ints) -> tuple[Ints, Ints, Mask]:
    """The varint at each index, as 64 bits with sign; where the next one begins; and whether it ends before ``end``."""
    value = np.zeros(len(at), np.uint64)
    after = at.copy()
    open_ = np.arange(len(at))
    ok = np.zeros(len(at), np.bool_)
    for shift in range(0, 7 * _LONGEST, 7):
        open_ = open_[after[open_] < end[open_]]
        if not len(open_):
            break
        byte = data[after[open_]]
        value[open_] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        after[open_] += 1
        last = byte < 0x80
        ok[open_[last]] = True
        open_ = open_[~last]
    return value.view(np.int64), after, ok
