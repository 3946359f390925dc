"""What one night's audit hands to the next: arrays of state, as rows among the rows of the passes.

A night's last rows of each dispatcher are its state when the day ended; they are the first rows that the next night's
passes see of it. Table ``state`` keeps them in between. It holds what is open, and what the next night's log may still
be about; of a key that some 20 bytes.
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
from subreplay.rows.model.rows import Scope
from subreplay.rows.model.tables import CHECKPOINT, FACTS, OPEN_POSITIONS, STATE
from subreplay.rows.model.words import KeyWords

NUMBERS: Final = 1 << 17  # in one row: a megabyte, before it is packed
_FEW: Final = 64  # rows of columns that are remembered: each of many topic partitions hands on as many as the next
CARRY: Final = -1  # the kind of a ``LOG`` row that is carried
OPEN: Final = "open"
BASIS: Final = "basis"  # what the judging rests on: `judge.Judge.basis`

# The columns of array ``open``: a position, whether its message is still to be delivered, and the day of its message
# (counted from 1970-01-01; ``UNKNOWN`` where the log has none).
OPEN_LEDGER, OPEN_ENTRY, OPEN_BATCH_INDEX, OPEN_WAITING, OPEN_DAY = range(5)

Arrays = Mapping[str, Ints]

STATE_OF_RUN: Final = pa.schema([f for f in STATE if f.name not in ("date", "subscription")])
"""Rows of table ``state``, without the columns that name the run."""
_PARTS: Final = frozenset(f.name for f in CHECKPOINT)

_UNACKED, _LOST = Code.UNACKED.bit, Code.LOST.bit


@dataclass
class Checkpoint:
    """Collects the checkpoint's rows that a dispatcher's stream begins with; what is sealed is read with ``words``
    only."""

    parts: list[pa.StructArray] = field(default_factory=list)
    words: KeyWords | None = None

    def take(self, rows: pa.Table) -> pa.Table:
        """Keep the checkpoint's rows; returns the others."""
        there = np.asarray(column(rows, "checkpoint").is_valid())
        if not there.any():
            return rows
        self.parts.append(column(rows, "checkpoint").filter(pa.array(there)))
        return rows.filter(pa.array(~there))

    def arrays(self) -> dict[str, Ints]:
        """The arrays by name, each with two dimensions. Raises ``InputError`` where another secret sealed them."""
        found: dict[str, list[tuple[int, Ints]]] = {}
        for part in self.parts:
            for row in part.to_pylist():
                if _is_sealed(row["name"]) and self.words is None:
                    continue
                data = self._opened(row["data"]) if _is_sealed(row["name"]) else row["data"]
                numbers = unpacked(data, row["rows"], row["width"])
                found.setdefault(row["name"], []).append((row["part"], numbers))
        return {n: np.concatenate([a for _, a in sorted(mine, key=lambda p: p[0])]) for n, mine in found.items()}

    def _opened(self, data: bytes) -> bytes:
        assert self.words is not None
        try:
            return self.words.opened(data)
        except ValueError as error:
            raise InputError(f"what the night before handed on is {error}; use the secret of that night") from error


def _is_sealed(name: str) -> bool:
    """Whether an array may hold identities of keys, or slots that are hashes of them: who guesses a key could check it.
    Positions and the basis are read before anything is judged, and hold none."""
    return name not in (OPEN, BASIS)


def checkpoint_rows(arrays: Arrays, scope: Scope, words: KeyWords) -> pa.Table:
    """Arrays of two dimensions as ``FACTS`` rows, sealed if they may tell keys; in order of time they come before all
    deliveries."""
    cut: list[dict[str, Any]] = []
    for name, array in arrays.items():
        size = max(1, NUMBERS // array.shape[1])
        for part, begin in enumerate(range(0, max(1, len(array)), size)):
            some = array[begin : begin + size]
            shape = {"width": array.shape[1], "rows": len(some)}
            data = words.sealed(packed(some)) if _is_sealed(name) else packed(some)
            cut.append({"name": name, **shape, "part": part, "data": data})
    known = {"topic": scope.topic, "partition": scope.partition, "delivered": True, "at": UNKNOWN}
    columns = [filled(f, known.get(f.name), len(cut)) for f in FACTS if f.name != "checkpoint"]
    return pa.table([*columns, pa.array(cut, CHECKPOINT)], schema=FACTS)


def state_rows(judged: pa.Table) -> pa.Table:
    """``JUDGED`` rows that hold state as ``STATE_OF_RUN``."""
    parts = column(judged, "checkpoint")
    columns = [parts.field(f.name) if f.name in _PARTS else judged[f.name] for f in STATE_OF_RUN]
    return pa.table(columns, schema=STATE_OF_RUN)


def checkpoints(state: pa.Table) -> pa.StructArray:
    """``CHECKPOINT`` values of rows of table ``state``."""
    fields = list(CHECKPOINT)
    return pa.StructArray.from_arrays([column(state, f.name).cast(f.type) for f in fields], fields=fields)


def packed(array: Ints) -> bytes:
    """A part of an array: of each column the differences from row to row, bytes of one significance together, since
    the high ones are nearly all alike; compressed."""
    steps = np.array(array, "<i8")
    steps[1:] -= array[:-1]
    planes = np.ascontiguousarray(steps.T).view(np.uint8).reshape(-1, 8).T
    data: bytes = pa.compress(planes.tobytes(), codec="zstd", asbytes=True)
    return data


def unpacked(data: bytes, rows: int, width: int) -> Ints:
    """What ``packed`` packed."""
    plain = pa.decompress(data, decompressed_size=rows * width * 8, codec="zstd", asbytes=True)
    planes = np.frombuffer(plain, np.uint8).reshape(8, -1).T
    steps = np.ascontiguousarray(planes).view("<i8").reshape(width, rows)
    return np.cumsum(steps, axis=1).T


def filled(of: pa.Field, value: object, rows: int) -> pa.Array:
    """A column with one value in all rows; where there is none, null or 0."""
    make = _filled_few if rows <= _FEW else _filled
    return make(of.type, of.nullable, value, rows)


def _filled(kind: pa.DataType, nullable: bool, value: object, rows: int) -> pa.Array:
    if value is None and not nullable:
        value = pa.scalar(0).cast(kind).as_py()
    return pa.nulls(rows, kind) if value is None else pa.array([value] * rows, kind)


_filled_few = lru_cache(maxsize=1024, typed=True)(_filled)


class Open:
    """Collects what is open at the end of a day, the horizon, from ``FACTS`` rows and their findings: deliveries that
    have not ended or were not acknowledged, messages still waiting.

    A message that was lost is not waiting: it is reported once.
    """

    def __init__(self, horizon: int) -> None:
        self._horizon = horizon
        self._positions = [np.empty((0, OPEN_DAY + 1), np.int64)]
        self._keys = [np.empty(0, np.int64)]

    @property
    def positions(self) -> Ints:
        """Rows of array ``open``, which the next night has to look at again."""
        return np.concatenate(self._positions)

    @property
    def keys(self) -> Ints:
        """The keys of these, and of what was lost, which may come after all."""
        return np.unique(np.concatenate(self._keys))

    def add(self, rows: pa.Table, codes: Ints) -> None:
        delivered = np.asarray(column(rows, "delivered").to_numpy(zero_copy_only=False), np.bool_)
        until = column(rows, "held_until").to_numpy()
        still = np.where(delivered, (until > self._horizon) | (codes & _UNACKED != 0), codes & _LOST == 0)
        mine = np.flatnonzero(still)
        found = np.empty((len(mine), OPEN_DAY + 1), np.int64)
        for number, name in ((OPEN_LEDGER, "ledger"), (OPEN_ENTRY, "entry"), (OPEN_BATCH_INDEX, "batch_index")):
            found[:, number] = column(rows, name).to_numpy()[mine]
        found[:, OPEN_WAITING] = ~delivered[mine]
        published = column(rows, "published").to_numpy()[mine]
        found[:, OPEN_DAY] = np.where(published == UNKNOWN, UNKNOWN, published // DAY)
        self._positions.append(found)
        self._keys.append(np.unique(column(rows, "key_id").to_numpy()[still | ~delivered]))


def written(text: str) -> Ints:
    """A text as an array."""
    return np.array([*text.encode()], np.int64)[:, None]


def read(array: Ints) -> str:
    """The text that was ``written``."""
    return bytes(array[:, 0].tolist()).decode()


def open_table(array: Ints, topics: pa.Array, partitions: pa.Array) -> pa.Table:
    """Rows of arrays ``open``, each with its topic and partition, as ``OPEN_POSITIONS``."""
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
