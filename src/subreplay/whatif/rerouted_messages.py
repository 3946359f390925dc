"""Move messages, row by row, to the partitions that other producers would have chosen (``PartitionRouting``).

A dispatch replay reads rows of table ``messages``. In another partition each message is an entry of its own, because
the batches of other producers are unknown. It has a new position: ledger 0, and its number in order of publication.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.hashing.base64_text import encode_base64
from subreplay.hashing.key_identity import compute_key_identities
from subreplay.hashing.producer_routing import (
    BYTE_KEY_HASHES,
    HASHES,
    get_scheme,
    reduce_numbers,
    to_non_negative,
)
from subreplay.rows.model.columns import Ints, column, ints
from subreplay.rows.model.partitioners import KeyScheme
from subreplay.rows.model.tables import MESSAGES
from subreplay.rows.scan.log_rows import to_nanos
from subreplay.rows.scan.table_columns import Columns
from subreplay.rows.sorted_blocks import Order
from subreplay.whatif.traffic.producer_rerouting import PartitionRouting, choose_keyless_partitions, create_turns

_OLD: Final = ("old_partition", "old_ledger", "old_entry", "old_batch_index")
_NEW_MESSAGES: Final = pa.schema([field for field in MESSAGES if field.name != "origin"])
REROUTED: Final = Order(
    pa.schema([*_NEW_MESSAGES, pa.field("at", pa.int64()), *(pa.field(name, pa.int64()) for name in _OLD)]),
    ("at", "sequence_id", *_OLD),
)
"""Messages in their new partitions, in order of publication (``at``, ns), of their producers and of their old
positions."""
_OF_BATCH: Final = ("batch_key", "batch_ordering_key", "batch_sequence_id", "batch_size")


KEYLESS: Final = REROUTED._replace(scope=("producer", "partition"))
"""Messages without a key, by producer and in its order; their partition is 0 until it is chosen."""


@dataclass(frozen=True)
class RerouteMessages:
    """Splits rows of table ``messages`` into ``outputs``: those that a key moves, and those without one.

    ``as_bytes``: keys were set as bytes, so some schemes hash their base64 text.
    """

    routing: PartitionRouting
    as_bytes: bool = False

    @property
    def outputs(self) -> Mapping[str, Order]:
        """The outputs by name."""
        return {"keyed": REROUTED, "keyless": KEYLESS}

    def __call__(self, messages: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        for batch in messages:
            columns = Columns("messages", batch)
            rows = pa.table({name: columns[name] for name in ("partition", "ledger", "entry", "batch_index", "key")})
            at, keyless = to_nanos(columns, "publish_time"), pc.is_null(columns["key"])
            moved = {
                **{name: columns[name] for name in _NEW_MESSAGES.names if name not in _OF_BATCH},
                **{name: pa.nulls(batch.num_rows) for name in _OF_BATCH},
                "producer": pc.fill_null(columns["producer"], ""),
                "batch_index": pa.repeat(-1, batch.num_rows),
                "partition": pa.array(self._choose_partitions(rows, np.asarray(at))),
                "at": at,
                **{f"old_{name}": pa.array(ints(rows, name)) for name in rows.column_names[:-1]},
            }
            found = pa.RecordBatch.from_arrays(
                [moved[field.name].cast(field.type) for field in REROUTED.schema], schema=REROUTED.schema
            )
            yield "keyed", found.filter(pc.invert(keyless))
            yield "keyless", found.filter(keyless)

    def _choose_partitions(self, rows: pa.Table, at: Ints) -> Ints:
        """Return the partition that the key of each message chooses, and 0 without a key."""
        routing, keys, before = self.routing, column(rows, "key"), ints(rows, "partition")
        of_bytes = self.as_bytes and get_scheme(routing.scheme).of_bytes is not None
        ways = [part.way for part in routing.parts] or [KeyScheme(routing.scheme, of_bytes)]
        numbers, unexplained = _hash_keys(keys, ways[0]), np.ones(len(rows), bool)
        for part in routing.parts:
            of_part = _hash_keys(keys, part.way)
            fits = unexplained & (of_part % part.partitions_at(at) == before)
            numbers[fits], unexplained[fits] = of_part[fits], False
        has_key = np.asarray(keys.is_valid().to_numpy(zero_copy_only=False), np.bool_)
        return np.where(has_key, reduce_numbers(numbers, routing.partitions), 0)


@dataclass(frozen=True)
class TakeTurns:
    """A step: sorted ``KEYLESS`` rows -> the same in the partitions that their producers choose in turn."""

    routing: PartitionRouting

    def __call__(self, keyless: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        turns, at = create_turns(), KEYLESS.schema.get_field_index("partition")
        for batch in keyless:
            rows = pa.Table.from_batches([batch])
            producer = compute_key_identities(column(rows, "producer").cast(pa.binary())) & np.int64(2**40 - 1)
            chosen = choose_keyless_partitions(self.routing, producer, ints(rows, "size", 0), turns)
            partition = pa.array(chosen).cast(KEYLESS.schema.field(at).type)
            yield from rows.set_column(at, KEYLESS.schema.field(at), partition).cast(REROUTED.schema).to_batches()


def number_messages(rerouted: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Turn sorted ``REROUTED`` rows into rows of table ``messages`` with their new positions. A step."""
    scope: tuple[str, int] | None = None
    count = 0
    for batch in rerouted:
        rows = pa.Table.from_batches([batch])
        topic, partition = column(rows, "topic").dictionary_encode(), ints(rows, "partition")
        number = np.asarray(topic.indices, np.int64)
        starts = np.flatnonzero(np.append(True, (np.diff(number) != 0) | (np.diff(partition) != 0)))
        entry = np.arange(len(rows)) - np.repeat(starts, np.diff(starts, append=len(rows)))
        if (topic.dictionary[int(number[0])].as_py(), int(partition[0])) == scope:
            entry[: starts[1] if len(starts) > 1 else len(rows)] += count
        scope, count = (topic.dictionary[int(number[-1])].as_py(), int(partition[-1])), int(entry[-1]) + 1
        positions = {"ledger": pa.array(np.zeros(len(rows), np.int64)), "entry": pa.array(entry)}
        yield pa.RecordBatch.from_arrays(
            [positions.get(field.name, batch[field.name]).cast(field.type) for field in _NEW_MESSAGES],
            schema=_NEW_MESSAGES,
        )


NUMBERED: Final = _NEW_MESSAGES
"""The rows of ``number_messages``."""


def _hash_keys(keys: pa.Array, way: KeyScheme) -> Ints:
    """Return the number of each key by which a scheme chooses the partition."""
    if way.hash in BYTE_KEY_HASHES:
        hashes = HASHES[BYTE_KEY_HASHES[way.hash]](encode_base64(keys))
    else:
        hashes = HASHES[way.hash](keys)
    return to_non_negative(hashes, get_scheme(way.scheme).sign)
