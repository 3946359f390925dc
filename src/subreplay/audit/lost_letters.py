"""Find messages that were given up but are not on the dead letter topic, and dead letters out of order.

The rows are exchanged by position and by key before the rules of ``audit.rules.dead_letters`` apply.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date as Date
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.audit.rules.dead_letters import EXHAUSTED, LETTERS
from subreplay.rows.groups import hashes, make_groups, read_whole_groups, with_columns
from subreplay.rows.model.columns import Ints, column
from subreplay.rows.model.key_masking import KeyMasking
from subreplay.rows.scan.log_rows import find_delivery_time, to_nanos
from subreplay.rows.scan.table_columns import Columns
from subreplay.rows.sorted_blocks import GROUP, make_group_order

POSITION: Final = ("topic", "partition", "ledger", "entry", "batch_index")
DELIVERY_COLUMNS: Final = (
    *POSITION, "consumer", "seq", "redelivery_count", "delivered_at", "delivered_nanos", "received_at", "acked_at",
    "nacked_at", "refused_at",
)  # fmt: skip
"""The columns of ``deliveries`` that make attempts. Nullable ones may be missing."""
KEY_COLUMNS: Final = (*POSITION, "key", "ordering_key")
"""The columns of ``LOG`` that name the keys of messages."""
MOST_NAMED: Final = 1 << 20
"""The largest number of messages without a letter whose hashes are looked up in the log. With more, every message is
exchanged."""
_LETTER, _ATTEMPT = range(2)
ATTEMPTS: Final = make_group_order(
    pa.schema(
        [
            *(field.with_nullable(False) for field in EXHAUSTED if field.name in POSITION),
            pa.field("kind", pa.int8(), nullable=False),  # a dead letter names the message, or: an attempt of it
            *(field for field in EXHAUSTED if field.name in ("consumer", "nacked", "acked")),
            *(pa.field(name, pa.int64(), nullable=False) for name in ("redelivery_count", "at", "seq")),
        ]
    ),
    then=("kind", "redelivery_count", "at", "seq"),
    last=("consumer",),
)
"""Attempts and letters of messages whose redelivery count reached the maximum."""
NAMED: Final = make_group_order(pa.schema([*EXHAUSTED, pa.field("exhausted", pa.bool_(), nullable=False)]))
"""``EXHAUSTED`` rows, and messages of the log with their keys."""
POSITIONS: Final = pa.schema([pa.field("hash", pa.int64(), nullable=False)])
LETTER_STREAMS: Final = make_group_order(LETTERS, then=("ledger", "entry", "batch_index"))
"""``LETTERS`` grouped by key."""
ORIGINS: Final = pa.schema([*(field for field in EXHAUSTED if field.name in POSITION), pa.field("at", pa.int64())])
"""The messages that dead letters name, and the publication times (ns) of the letters."""


@dataclass(frozen=True)
class AttemptReader:
    """A step: ``deliveries`` -> ``ATTEMPTS`` with at least ``limit`` redeliveries."""

    limit: int

    def __call__(self, deliveries: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in deliveries:
            columns = Columns("deliveries", batch)
            nacked = pc.or_(columns["nacked_at"].is_valid(), columns["refused_at"].is_valid())
            given = {"at": find_delivery_time(columns), "nacked": nacked, "acked": columns["acked_at"].is_valid()}
            rows = _make_rows(columns, given, ("consumer", "redelivery_count", "seq"), _ATTEMPT)
            selected = pc.and_(pc.greater_equal(rows["redelivery_count"], self.limit), rows["at"].is_valid())
            yield from make_groups(rows.filter(selected), ATTEMPTS, POSITION)


def make_letter_attempts(letters: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return ``ATTEMPTS`` that mark the messages of dead letters. A step."""
    for batch in letters:
        none = {name: pa.repeat(0, batch.num_rows) for name in ("redelivery_count", "at", "seq")}
        rows = _make_rows(_read_origin(batch), none, (), _LETTER)
        yield from make_groups(rows, ATTEMPTS, POSITION)


def split_without_letter(attempts: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Split sorted ``ATTEMPTS`` into ``exhausted``, ``NAMED`` rows without keys, and their ``positions``."""
    for rows in read_whole_groups(attempts):
        rows = rows.append_column("row", pa.array(np.arange(len(rows))))
        of_each = rows.group_by([*POSITION], use_threads=False).aggregate(
            [("row", "max"), ("acked", "max"), ("kind", "min")]
        )
        missing = of_each.filter(pc.equal(of_each["kind_min"], _ATTEMPT))
        last = rows.take(missing["row_max"])
        given = {"acked": missing["acked_max"], "exhausted": pa.repeat(True, len(last))}
        for batch in make_groups(with_columns(last, given), NAMED, POSITION):
            yield "exhausted", batch
            yield "positions", pa.RecordBatch.from_arrays([batch[GROUP]], schema=POSITIONS)


@dataclass(frozen=True, eq=False)
class MessageKeyReader:
    """A step: messages of the log -> ``NAMED`` with masked keys, for the hashes in ``positions``, or for all."""

    words: KeyMasking
    positions: Ints | None = None

    def __call__(self, messages: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in messages:
            rows = pa.Table.from_batches([batch]).select(POSITION)
            key = pa.chunked_array([pc.coalesce(batch["ordering_key"], batch["key"])])
            rows = rows.append_column("key", key)
            if self.positions is not None:
                rows = rows.filter(pa.array(np.isin(hashes(rows, POSITION), self.positions)))
            if len(rows):
                given = {"key": self.words.mask_keys(column(rows, "key")), "exhausted": pa.repeat(False, len(rows))}
                yield from make_groups(with_columns(rows, given), NAMED, POSITION)


def join_keys_of_exhausted(named: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return ``EXHAUSTED`` of sorted ``NAMED``. A step."""
    for rows in read_whole_groups(named):
        missing, messages = rows.filter(rows["exhausted"]), rows.filter(pc.invert(rows["exhausted"]))
        messages = messages.append_column("row", pa.array(np.arange(len(messages))))
        first = messages.group_by([*POSITION], use_threads=False).aggregate([("row", "min")])
        keys = messages.take(first["row_min"]).select([*POSITION, "key"])
        found = missing.drop_columns(["key"]).join(keys, [*POSITION], use_threads=False)
        yield from found.select(EXHAUSTED.names).cast(EXHAUSTED).to_batches()


@dataclass(frozen=True)
class LetterReader:
    """A step: dead letters with a key -> ``LETTER_STREAMS`` up to a ``day`` (None: all)."""

    words: KeyMasking
    day: Date | None = None

    def __call__(self, letters: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in letters:
            columns = Columns("messages", batch)
            key, date = pc.coalesce(columns["ordering_key"], columns["key"]), columns["date"]
            selected = key.is_valid() if self.day is None else pc.and_(key.is_valid(), pc.less_equal(date, self.day))
            judged = pa.repeat(True, batch.num_rows) if self.day is None else pc.equal(date, self.day)
            origin = _read_origin(batch)
            given = {name: origin[name] for name in POSITION[:2]}
            given |= {f"origin_{name}": origin[name] for name in POSITION[2:]}
            given |= {name: columns[name] for name in POSITION[2:]}
            given |= {"key": key, "published": to_nanos(columns, "publish_time"), "judged": judged}
            rows = pa.table(given).filter(selected)
            if len(rows):
                rows = with_columns(rows, {"key": self.words.mask_keys(column(rows, "key"))})
                yield from make_groups(rows, LETTER_STREAMS, ("topic", "partition", "key"))


def read_origins(letters: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read the ``ORIGINS`` of dead letters. A step."""
    for batch in letters:
        rows = _read_origin(batch) | {"at": to_nanos(Columns("messages", batch), "publish_time")}
        yield pa.RecordBatch.from_arrays([rows[field.name].cast(field.type) for field in ORIGINS], schema=ORIGINS)


def _read_origin(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """Return the original positions of dead letters."""
    return {name: pc.struct_field(batch["origin"], name) for name in POSITION}


def _make_rows(
    columns: Mapping[str, pa.Array], given: Mapping[str, pa.Array], names: Iterable[str], kind: int
) -> pa.Table:
    present = {name: columns[name] for name in (*POSITION, *names)} | dict(given)
    return pa.table(present | {"kind": pa.repeat(pa.scalar(kind, pa.int8()), len(present["ledger"]))})
