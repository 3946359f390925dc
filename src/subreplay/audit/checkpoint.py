"""Carry the state of a daily run to the next one: arrays, as rows among the rows of the passes.

The last rows of each dispatcher are its state at the end of the day. They are the first rows that the next daily run
reads of it. Table ``state`` stores them in between. It contains open deliveries and messages, and what the next day's
log may still refer to; some 20 bytes for each key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from subreplay.audit.codes import Code
from subreplay.errors import InputError
from subreplay.rows.model.columns import DAY, UNKNOWN, Ints, column
from subreplay.rows.model.key_masking import KeyMasking
from subreplay.rows.model.rows import Scope
from subreplay.rows.model.tables import CHECKPOINT, FACTS, OPEN_POSITIONS, STATE

ROW_NUMBERS: Final = 1 << 17  # in one row: a megabyte, before it is packed
_MOST_CACHED_ROWS: Final = (
    64  # rows of columns that are remembered: each of many topic partitions hands on as many as the next
)
CARRY: Final = -1  # the kind of a ``LOG`` row that is carried
OPEN: Final = "open"
BASIS: Final = "basis"  # what the judging rests on: `judge.Judge.basis`

# The columns of array ``open``: a position, whether its message is still to be delivered, and the day of its message
# (counted from 1970-01-01; ``UNKNOWN`` where the log has none).
OPEN_LEDGER, OPEN_ENTRY, OPEN_BATCH_INDEX, OPEN_WAITING, OPEN_DAY = range(5)

Arrays = Mapping[str, Ints]

STATE_OF_RUN: Final = pa.schema([f for f in STATE if f.name not in ("date", "subscription")])
"""Rows of table ``state`` without the columns that name the run."""
_PARTS: Final = frozenset(f.name for f in CHECKPOINT)

_UNACKED, _LOST = Code.UNACKED.bit, Code.LOST.bit


@dataclass
class Checkpoint:
    """Collects the checkpoint rows at the beginning of a dispatcher's stream. Only ``words`` can decrypt the encrypted
    ones."""

    parts: list[pa.StructArray] = field(default_factory=list)
    words: KeyMasking | None = None

    def take(self, rows: pa.Table) -> pa.Table:
        """Keep the checkpoint rows and return the others."""
        present = np.asarray(column(rows, "checkpoint").is_valid())
        if not present.any():
            return rows
        self.parts.append(column(rows, "checkpoint").filter(pa.array(present)))
        return rows.filter(pa.array(~present))

    def read_arrays(self) -> dict[str, Ints]:
        """Return the arrays by name, each with two dimensions. Raises ``InputError`` if another secret encrypted
        them."""
        found: dict[str, list[tuple[int, Ints]]] = {}
        for part in self.parts:
            for row in part.to_pylist():
                if _is_sealed(row["name"]) and self.words is None:
                    continue
                data = self._decrypt(row["data"]) if _is_sealed(row["name"]) else row["data"]
                numbers = unpack_array(data, row["rows"], row["width"])
                found.setdefault(row["name"], []).append((row["part"], numbers))
        return {
            n: np.concatenate([a for _, a in sorted(selected, key=lambda p: p[0])]) for n, selected in found.items()
        }

    def _decrypt(self, data: bytes) -> bytes:
        """Decrypt the data of an array."""
        assert self.words is not None
        try:
            return self.words.decrypt(data)
        except ValueError as error:
            raise InputError(
                f"table state: the previous daily run's state is {error}. Set keys.secret to the secret of that run."
            ) from error


def _is_sealed(name: str) -> bool:
    """Return whether an array may contain identities of keys, or slots that are hashes of keys, so that a guessed key
    could be confirmed.

    Positions and the basis are read before the audit starts, and contain none.
    """
    return name not in (OPEN, BASIS)


def make_checkpoint_rows(arrays: Arrays, scope: Scope, words: KeyMasking) -> pa.Table:
    """Convert arrays of two dimensions to ``FACTS`` rows, encrypted if they may reveal keys. They precede all
    deliveries in order of time."""
    cut: list[dict[str, Any]] = []
    for name, array in arrays.items():
        size = max(1, ROW_NUMBERS // array.shape[1])
        for part, begin in enumerate(range(0, max(1, len(array)), size)):
            some = array[begin : begin + size]
            shape = {"width": array.shape[1], "rows": len(some)}
            data = words.encrypt(pack_array(some)) if _is_sealed(name) else pack_array(some)
            cut.append({"name": name, **shape, "part": part, "data": data})
    known = {"topic": scope.topic, "partition": scope.partition, "delivered": True, "at": UNKNOWN}
    columns = [fill_column(f, known.get(f.name), len(cut)) for f in FACTS if f.name != "checkpoint"]
    return pa.table([*columns, pa.array(cut, CHECKPOINT)], schema=FACTS)


def make_state_rows(judged: pa.Table) -> pa.Table:
    """Convert ``JUDGED`` rows that carry state to ``STATE_OF_RUN``."""
    parts = column(judged, "checkpoint")
    columns = [parts.field(f.name) if f.name in _PARTS else judged[f.name] for f in STATE_OF_RUN]
    return pa.table(columns, schema=STATE_OF_RUN)


def make_checkpoints(state: pa.Table) -> pa.StructArray:
    """Convert rows of table ``state`` to ``CHECKPOINT`` values."""
    fields = list(CHECKPOINT)
    return pa.StructArray.from_arrays([column(state, f.name).cast(f.type) for f in fields], fields=fields)


def pack_array(array: Ints) -> bytes:
    """Compress a part of an array: the differences between rows of each column, grouped by byte significance, because
    the high bytes are mostly equal."""
    steps = np.array(array, "<i8")
    steps[1:] -= array[:-1]
    planes = np.ascontiguousarray(steps.T).view(np.uint8).reshape(-1, 8).T
    data: bytes = pa.compress(planes.tobytes(), codec="zstd", asbytes=True)
    return data


def unpack_array(data: bytes, rows: int, width: int) -> Ints:
    """Restore what ``pack_array`` packed."""
    plain = pa.decompress(data, decompressed_size=rows * width * 8, codec="zstd", asbytes=True)
    planes = np.frombuffer(plain, np.uint8).reshape(8, -1).T
    steps = np.ascontiguousarray(planes).view("<i8").reshape(width, rows)
    return np.cumsum(steps, axis=1).T


def fill_column(of: pa.Field, value: object, rows: int) -> pa.Array:
    """Make a column with one value in all rows; without a value null, or 0 if null is not allowed."""
    make = _fill_cached if rows <= _MOST_CACHED_ROWS else _fill
    return make(of.type, of.nullable, value, rows)


def _fill(kind: pa.DataType, nullable: bool, value: object, rows: int) -> pa.Array:
    """Make the column."""
    if value is None and not nullable:
        value = pa.scalar(0).cast(kind).as_py()
    return pa.nulls(rows, kind) if value is None else pa.array([value] * rows, kind)


_fill_cached = lru_cache(maxsize=1024, typed=True)(_fill)


class OpenPositions:
    """Collects the open positions at the end of a day (the horizon) from ``FACTS`` rows and their findings.

    These are deliveries that have not ended or were not acknowledged, and messages that still wait. A lost message does
    not wait: it is reported once.
    """

    def __init__(self, horizon: int) -> None:
        self._horizon = horizon
        self._positions = [np.empty((0, OPEN_DAY + 1), np.int64)]
        self._keys = [np.empty(0, np.int64)]

    @property
    def positions(self) -> Ints:
        """Rows of array ``open``, which the next daily run reads again."""
        return np.concatenate(self._positions)

    @property
    def keys(self) -> Ints:
        """The keys of these messages and of lost messages, which may still be delivered."""
        return np.unique(np.concatenate(self._keys))

    def add(self, rows: pa.Table, codes: Ints) -> None:
        """Add ``FACTS`` rows with the codes of their findings."""
        delivered = np.asarray(column(rows, "delivered").to_numpy(zero_copy_only=False), np.bool_)
        until = column(rows, "held_until").to_numpy()
        still = np.where(delivered, (until > self._horizon) | (codes & _UNACKED != 0), codes & _LOST == 0)
        selected = np.flatnonzero(still)
        found = np.empty((len(selected), OPEN_DAY + 1), np.int64)
        for number, name in ((OPEN_LEDGER, "ledger"), (OPEN_ENTRY, "entry"), (OPEN_BATCH_INDEX, "batch_index")):
            found[:, number] = column(rows, name).to_numpy()[selected]
        found[:, OPEN_WAITING] = ~delivered[selected]
        published = column(rows, "published").to_numpy()[selected]
        found[:, OPEN_DAY] = np.where(published == UNKNOWN, UNKNOWN, published // DAY)
        self._positions.append(found)
        self._keys.append(np.unique(column(rows, "key_id").to_numpy()[still | ~delivered]))


def encode_text(text: str) -> Ints:
    """Encode a text as an array."""
    return np.array([*text.encode()], np.int64)[:, None]


def decode_text(array: Ints) -> str:
    """Decode an array of ``encode_text``."""
    return bytes(array[:, 0].tolist()).decode()


def make_open_table(array: Ints, topics: pa.Array, partitions: pa.Array) -> pa.Table:
    """Convert rows of arrays ``open``, each with its topic and partition, to ``OPEN_POSITIONS``."""
    day = array[:, OPEN_DAY]
    columns = {
        "topic": topics,
        "partition": partitions,
        "ledger": array[:, OPEN_LEDGER],
        "entry": array[:, OPEN_ENTRY],
        "batch_index": array[:, OPEN_BATCH_INDEX],
        "waiting": array[:, OPEN_WAITING] != 0,
        "day": pa.array(np.where(day == UNKNOWN, 0, day).astype(np.int32), mask=day == UNKNOWN).cast(pa.date32()),
    }
    return pa.table([pa.array(columns[f.name]).cast(f.type) for f in OPEN_POSITIONS], schema=OPEN_POSITIONS)
