"""Parse Pulsar's message ids: the bytes of ``MessageIdData``, their base64 text, or printed text.

Text is ``ledger:entry:partition:batch`` from Java, or ``(ledger,entry,partition,batch)`` from C++, Python and Node.
Source: PulsarApi.proto (``MessageIdData``: 1 ledgerId, 2 entryId, 3 partition, 4 batch_index, 5 ack_set, 6 batch_size),
the encoding of Protocol Buffers, and ``MessageIdImpl.toString`` with its subclasses. All rows are parsed in parallel,
field by field, so a million rows need as many passes as one row.
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
    count_bytes,
    is_present,
    mask_of,
    replace_with_null,
    utf8_text,
)
from subreplay.rows.model.columns import Ints

ID_PARTS: Final = ("ledger", "entry", "partition", "batch_index", "batch_size")
_PART: Final = np.array([-1, 0, 1, 2, 3, -1, 4, -1])  # the index in ``ID_PARTS`` by field number; the last is any other
_REQUIRED: Final = 2  # the first of ``ID_PARTS``
_NONE: Final = (0, 0, -1, -1, 0)  # the values of absent fields
MAX_FIELDS: Final = 64
"""The most fields of one id, counting each word of its ack_set. An id from a consumer has five."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types; no Pulsar message uses 3 and 4 (groups)
_LEGAL: Final = np.isin(np.arange(8), (_VARINT, _FIXED64, _BYTES, _FIXED32))
_MAX_VARINT_BYTES: Final = 10  # bytes of a varint
_TEXT: Final = (
    r"^(?:[^;]*;)?\(?(?P<ledger>\d{1,18})[:,]\s?(?P<entry>\d{1,18})[:,]\s?(?P<partition>-?\d{1,18})"
    r"(?:[:,]\s?(?P<batch_index>-?\d{1,18}))?\)?$"
)
_POSITION: Final = (
    r"^\s*(?i:partition:?\s*)?(?P<partition>\d{1,9})\s*[:/@,;-]\s*(?i:offset:?\s*)?(?P<entry>\d{1,18})\s*$"
)
_RULE: Final = (
    "a message id must be the bytes of MessageIdData, their base64, ledger:entry:partition[:batch], or "
    "(ledger,entry,partition,batch)"
)
_REMEDY: Final = "map the column with the result of toByteArray() or toString() of a MessageId"


def parse_message_ids(values: pa.Array) -> Outcome:
    """Parse message ids into a struct of parts. No batch and no partition are -1; an unknown batch size is null.

    The id of a chunked message contains two entries, and the last one counts. A colon or comma distinguishes text from
    base64.

    >>> parse_message_ids(pa.array(["CLYREAAYASAAMOgH", "2230:0:1"])).values.to_pylist()[0]
    {'ledger': 2230, 'entry': 0, 'partition': 1, 'batch_index': 0, 'batch_size': 1000}
    """
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        return parse_byte_ids(values)
    colon = mask_of(pc.match_substring_regex(as_bytes(values), "[:,]"))
    if colon.all():
        return parse_text_ids(values)
    of_base64 = base64_bytes(replace_with_null(values, colon))
    decoded = parse_byte_ids(of_base64.values)
    written = parse_text_ids(replace_with_null(values, ~colon))
    parts = [
        pc.if_else(pa.array(colon), text, bytes_)
        for text, bytes_ in zip(written.values.flatten(), decoded.values.flatten(), strict=True)
    ]
    unread = tuple(Broken(broken.rows, _RULE, _REMEDY) for broken in of_base64.broken)
    return Outcome(pa.StructArray.from_arrays(parts, ID_PARTS), (*unread, *decoded.broken, *written.broken))


def parse_text_ids(text: pa.Array) -> Outcome:
    """Parse ids that ``toString()`` wrote."""
    found = pc.extract_regex(utf8_text(text).values, _TEXT)
    fits = found.is_valid()
    digits = [pc.if_else(fits, pc.struct_field(found, name), None) for name in ID_PARTS[:4]]
    digits[-1] = pc.if_else(pc.equal(digits[-1], ""), "-1", digits[-1])
    parts = [each.cast(pa.int64()) for each in digits]
    return _build_struct([*parts, pa.nulls(len(text), pa.int64())], is_present(text) & ~mask_of(fits))


def parse_text_positions(text: pa.Array) -> Outcome:
    """Parse Kafka positions, such as ``2:140``, into partition and offset; the ledger is 0.

    >>> parse_text_positions(pa.array(["2:140"])).values.to_pylist()[0]
    {'ledger': 0, 'entry': 140, 'partition': 2, 'batch_index': -1, 'batch_size': None}
    """
    found = pc.extract_regex(utf8_text(text).values, _POSITION)
    fits = found.is_valid()
    entry, partition = (pc.struct_field(found, name).cast(pa.int64()) for name in ("entry", "partition"))
    ledger, batch = (pc.if_else(fits, pa.scalar(number, pa.int64()), None) for number in (0, -1))
    bad = is_present(text) & ~mask_of(fits)
    broken = (Broken(bad, "a position must be partition:offset", "map partition and offset"),) if bad.any() else ()
    parts = [ledger, entry, partition, batch, pa.nulls(len(text), pa.int64())]
    return Outcome(pa.StructArray.from_arrays(parts, ID_PARTS), broken)


def parse_byte_ids(data: pa.Array) -> Outcome:
    """Parse ids that ``toByteArray()`` wrote."""
    valid = is_present(data)
    bytes_, offsets = get_data_and_offsets(replace_with_null(data, ~valid))
    starts = np.asarray(offsets[: len(data)], np.int64) if len(data) else np.zeros(0, np.int64)
    found, seen, bad = _decode_fields(bytes_, starts, starts + count_bytes(data))
    bad = valid & (bad | ~seen.all(axis=0))
    parts = [pa.array(each, mask=bad | ~valid) for each in found[:-1]]
    parts.append(pa.array(found[-1], mask=bad | ~valid | (found[-1] == 0)))
    return _build_struct(parts, bad)


def _build_struct(parts: list[pa.Array], bad: Mask) -> Outcome:
    broken = (Broken(bad, _RULE, _REMEDY),) if bad.any() else ()
    return Outcome(pa.StructArray.from_arrays(parts, ID_PARTS), broken)


def _decode_fields(data: Bytes, starts: Ints, ends: Ints) -> tuple[Ints, Mask, Mask]:
    """Return the values by part and row, which required parts each row has, and the rows that are not a message id."""
    found = np.repeat(np.array(_NONE, np.int64)[:, None], len(starts), axis=1)
    seen = np.zeros((_REQUIRED, len(starts)), np.bool_)
    bad = np.zeros(len(starts), np.bool_)
    rows = np.flatnonzero(starts < ends)
    at, end = starts[rows], ends[rows]
    for _ in range(MAX_FIELDS):
        if not len(rows):
            return found, seen, bad
        tag, at, ok = _decode_varints(data, at, end)
        number, wire = tag >> 3, tag & 7
        ok &= (number > 0) & _LEGAL[wire]
        counted = (wire == _VARINT) | (wire == _BYTES)
        value, after, read = _decode_varints(data, at, np.where(counted, end, at))
        skipped = np.select([wire == _VARINT, wire == _BYTES, wire == _FIXED64], [0, value, 8], 4)
        ok &= (read | ~counted) & (skipped >= 0) & (skipped <= end - after)
        at = after + np.where(ok, skipped, 0)
        part = np.where(ok & (wire == _VARINT), _PART[np.clip(number, 0, len(_PART) - 1)], -1)
        is_part = part >= 0
        found[part[is_part], rows[is_part]] = value[is_part]
        needed = is_part & (part < _REQUIRED)
        seen[part[needed], rows[needed]] = True
        bad[rows[~ok]] = True
        more = ok & (at < end)
        rows, at, end = rows[more], at[more], end[more]
    bad[rows] = True
    return found, seen, bad


def _decode_varints(data: Bytes, at: Ints, end: Ints) -> tuple[Ints, Ints, Mask]:
    """Parse the varint at each index: its value (64 bits, signed), the next index, and whether it ends before
    ``end``."""
    value = np.zeros(len(at), np.uint64)
    after = at.copy()
    open_ = np.arange(len(at))
    ok = np.zeros(len(at), np.bool_)
    for shift in range(0, 7 * _MAX_VARINT_BYTES, 7):
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
