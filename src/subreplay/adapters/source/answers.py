"""What the columns of a source leave open, answered by some of its rows: each answer is an assumption, and is told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.source.columns import Column, columns, find, kind_of
from subreplay.adapters.source.mapping import TO_FILL_IN, Source
from subreplay.adapters.source.presets import TIMES, targets
from subreplay.adapters.source.recognise import BY_NAME, Candidate, section
from subreplay.model.contracts import FIRST_TIME, LAST_TIME

_PER_MICRO: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
_MOST_PARTITIONS: Final = 1_000
_PART: Final = re.compile(r"part|shard", re.IGNORECASE)
_OFFSET: Final = re.compile(r"off|pos|seq|entry|num|idx|index", re.IGNORECASE)
_KEY: Final = re.compile(r"key|(^|_)id$|account|user|customer|device|order", re.IGNORECASE)


class Answered(NamedTuple):
    """A candidate with answers, the section of a run file that reads it, and what was assumed for it; ``open`` is what
    nobody could answer (``?`` stands there in the section)."""

    candidate: Candidate
    section: dict[str, Any]
    assumed: tuple[str, ...]
    open: tuple[str, ...]


def answered(candidate: Candidate, rows: pa.Table, name: str) -> Answered:
    """A candidate with its questions answered by some rows of the source, of which ``name`` is the name."""
    told: list[str] = []
    found, answers = dict(candidate.found), dict[str, Any]()
    if candidate.name == BY_NAME:
        for ours, column, why in _by_content(candidate, rows):
            found[ours] = Source(column.name)
            told.append(f"{ours} is taken to be {column.name}: {why}")
    missing = tuple(ours for ours in candidate.missing if not any(targets(ours) & targets(each) for each in found))
    for ours, each in found.items():
        if each.column is None or (each.as_ is not None and not each.as_.startswith("epoch_")):
            continue
        column = find(rows.schema, each.column)
        if (how := _conversion(ours, column, rows)) not in (None, each.as_):
            found[ours] = each._replace(as_=how)
            answers[ours] = {"column": each.column, "as": how}
            told.append(f"{ours} ({each.column}) is taken as {how}")
    open_ = {ours for ours in candidate.questions if ours not in found or _undecided(ours, found[ours], rows)}
    left_open = {ours: candidate.questions[ours] for ours in sorted(open_)}
    whole = replace(candidate, found=found, missing=missing, questions=left_open)
    given = section(whole)
    if answers:  # a preset tells its columns by itself, but for these
        given["columns"] = {**given.get("columns", {}), **answers}
    values = given.get("values", {})
    if values.get("topic") == TO_FILL_IN:
        values["topic"] = name
        told.append(f"topic: no column tells it; the source's own name, {name}, stands for it")
    if values.get("partition") == TO_FILL_IN:
        values["partition"] = -1
        told.append("partition: no column tells it; the topic is taken to have none")
    left = [*(o for o in whole.questions if o not in values), *(o for o in missing if o not in ("topic", "partition"))]
    return Answered(whole, given, tuple(told), tuple(dict.fromkeys(left)))


def _undecided(ours: str, source: Source, rows: pa.Table) -> bool:
    """Whether a column still wants a conversion that nobody named."""
    if source.column is None or source.as_ is not None:
        return False
    kind = kind_of(find(rows.schema, source.column).type)
    return (ours in TIMES and kind == "integer") or (ours in ("key", "ordering_key") and kind == "text")


def _conversion(ours: str, column: Column, rows: pa.Table) -> str | None:
    kind = kind_of(column.type)
    if ours in TIMES and kind == "integer":
        return _unit(_values(column, rows))
    if ours in TIMES and kind == "text":
        return "iso8601"
    return "utf8" if ours in ("key", "ordering_key") and kind == "text" else None


def _unit(values: pa.ChunkedArray) -> str | None:
    """The unit in which all these numbers are times that a row may have."""
    ends = pc.min_max(values.cast(pa.int64()))
    least, most = ends["min"].as_py(), ends["max"].as_py()
    if least is None:
        return None
    fit = [f"epoch_{unit}" for unit, per in _PER_MICRO.items() if least * per >= FIRST_TIME and most * per <= LAST_TIME]
    if not fit and least // 1_000 >= FIRST_TIME and most // 1_000 <= LAST_TIME:
        fit = ["epoch_ns"]
    return fit[0] if fit else None


def _by_content(candidate: Candidate, rows: pa.Table) -> Iterator[tuple[str, Column, str]]:
    """Columns of unknown names which hold what only one of ours does."""
    taken = {each.column for each in candidate.found.values()}
    free = [column for column in columns(rows.schema) if len(column.path) == 1 and column.name not in taken]
    have = {target for ours in candidate.found for target in targets(ours)}
    told = candidate.found.get("partition")
    partition = None if told is None or told.column is None else find(rows.schema, told.column)
    wanted = ("publish_time", "partition", "entry", "key")
    for ours in wanted:
        if ours in have:
            continue
        for column in free:
            why = _is_offset(column, partition, rows) if ours == "entry" else _holds(ours, column, rows)
            if why:
                free.remove(column)
                partition = column if ours == "partition" else partition
                yield ("offset" if ours == "entry" else ours), column, why
                break


def _holds(ours: str, column: Column, rows: pa.Table) -> str | None:
    """Why a column may be one of ours; None where nothing speaks for it."""
    kind, name = kind_of(column.type), column.path[-1]
    values = _values(column, rows)
    if not len(values) or values.null_count == len(values):
        return None
    if ours == "publish_time":
        if kind == "time":
            return "it is the first column of times"
        timely = kind == "integer" and _unit(values) and pc.min(values).as_py() > 10**8
        return "its numbers are times" if timely else None
    if ours == "key":
        return "its name speaks of keys" if kind in ("text", "bytes") and _KEY.search(name) else None
    if kind != "integer" or values.null_count or pc.min(values).as_py() < 0:
        return None
    few = pc.max(values).as_py() < _MOST_PARTITIONS
    return "its name speaks of partitions" if few and _PART.search(name) else None


def _is_offset(column: Column, partition: Column | None, rows: pa.Table) -> str | None:
    """Why a column may hold offsets: in each partition no number comes twice, and its name or its order speaks for
    it."""
    values = _values(column, rows)
    if kind_of(column.type) != "integer" or not len(values) or values.null_count or pc.min(values).as_py() < 0:
        return None
    offsets = np.asarray(values.cast(pa.int64()))
    parts = np.zeros(len(offsets), np.int64)
    if partition is not None:
        parts = np.asarray(pc.fill_null(_values(partition, rows).cast(pa.int64()), -1))
    order = np.lexsort((np.arange(len(offsets)), parts))
    steps = np.diff(offsets[order])[np.diff(parts[order]) == 0]
    if len(np.unique(np.stack([parts, offsets]), axis=1).T) < len(offsets):
        return None
    once = "no number in it comes twice" + ("" if partition is None else f" in one {partition.name}")
    if _OFFSET.search(column.path[-1]):
        return f"its name speaks of offsets, and {once}"
    return f"it rises, and {once}" if len(steps) and (steps > 0).all() else None


def _values(column: Column, rows: pa.Table) -> pa.ChunkedArray:
    return pa.chunked_array([column.of(batch) for batch in rows.to_batches()], None if rows.num_rows else column.type)
