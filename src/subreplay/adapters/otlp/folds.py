"""Spans of any number, folded as streams of sorted rows.

``_scanned`` reads a file; what a span tells by itself decides at once. ``_once`` has all spans of one id together,
``_best`` all of one message at a consumer. ``_numbered`` has the deliveries in the order of their receipts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.base import Options, Rejected, pairs_of
from subreplay.adapters.detect import chosen
from subreplay.adapters.files import lines_of
from subreplay.adapters.otlp.columns import whole
from subreplay.adapters.otlp.counts import LineCounts
from subreplay.adapters.otlp.deliveries import NAMES, fates_by_file, in_order, names, several
from subreplay.adapters.otlp.fates import FATES, TOLD, Fates, Wanted
from subreplay.adapters.otlp.lines import SPANS, parse
from subreplay.adapters.otlp.spans import NAME, ended, no_spans, none_fits, of_damage, wanted_of, with_others
from subreplay.adapters.streams import (
    REJECTED,
    Batches,
    End,
    Known,
    Rows,
    Stage,
    Streamed,
    quarantine,
    size_of,
)
from subreplay.rows.groups import whole_groups
from subreplay.rows.model.columns import Ints, ints
from subreplay.rows.model.tables import DELIVERIES, QUARANTINE

_ORDER: Final = ("file_number", "span")
_PLACED: Final = pa.schema([*SPANS, pa.field("file_number", pa.int32()), pa.field("span", pa.int64()),
                            pa.field("group", pa.string())])  # fmt: skip
"""Spans with the numbers of their files and their own there; those that may tell the same are of one group."""
_TIMED: Final = pa.schema([*TOLD, pa.field("file_number", pa.int32()), pa.field("span", pa.int64()),
                           pa.field("interval", pa.int64())])  # fmt: skip
_LINES: Final = pa.schema([("file", pa.string()), ("file_number", pa.int32())]
                          + [(name, pa.int64()) for name in LineCounts.__dataclass_fields__])  # fmt: skip
_FIRST: Final = pa.schema([*QUARANTINE, pa.field("of_lines", pa.bool_()), pa.field("file_number", pa.int32()),
                           pa.field("span", pa.int64())])  # fmt: skip
"""The first rejected row of some: a line, or a span."""
_INTERVALS: Final = pa.schema([("interval", pa.int64()), ("count", pa.int64())])
_PAIRS: Final = pa.schema([("subscription", pa.string()), ("topic", pa.string()), ("count", pa.int64())])
_INTERVAL: Final = 36  # bits of a time (ns): 69 seconds


class _File(NamedTuple):
    path: Path
    name: str
    number: int
    wanted: Wanted


def streamed(path: Path, options: Options) -> Streamed:
    """How files of any size are read: rows of the counts are spans, and lines in quarantine. Option ``subscription`` is
    that of spans that name none, too; ``sampled`` is true where it is not told.

    Raises ``InputError`` where there is none.
    """
    files = chosen(path, NAME)
    wanted = wanted_of(options)
    parts = tuple(_File(each, files.named(each), i, wanted) for i, each in enumerate(files.mine))
    told = {"fates": FATES, "first": _FIRST}
    return Streamed(
        size_of(files.mine),
        parts,
        _scanned,
        {"spans": _PLACED, REJECTED: QUARANTINE},
        {"lines": _LINES, **told},
        (
            Stage(lambda _: partial(_once, wanted), {"unique": _PLACED, REJECTED: QUARANTINE}, told, "spans",
                  ("group",), _ORDER),
            Stage(lambda _: partial(_best, wanted), {"told": _TIMED, REJECTED: QUARANTINE},
                  {"intervals": _INTERVALS, "pairs": _PAIRS, "names": NAMES, **told}, "unique", ("group",), _ORDER),
            Stage(_number, {"deliveries": DELIVERIES}, {}, "told", ("interval",), ("received", *_ORDER)),
        ),
        partial(_concluded, path, options.sampled is not False, files.notes),
    )  # fmt: skip


def _scanned(file: _File) -> Rows:
    """The spans of a file that may be deliveries."""
    before = 0
    yield "lines", _lines(file, LineCounts())  # of an empty file, too
    for part in lines_of(file.path, file.name):
        parsed = of_damage(part) if isinstance(part, Rejected) else parse(part)
        yield "lines", _lines(file, parsed.counts)
        rejected = quarantine(parsed.rejected)
        yield REJECTED, rejected
        yield "first", _first(rejected, True, np.full(len(rejected), file.number), np.asarray(rejected["row"]))
        fates = Fates(parsed.spans, file.wanted)
        yield "fates", fates.counts()
        spans = np.flatnonzero(fates.open)
        number = pa.array(spans + before)
        before += len(parsed.spans)
        found = parsed.spans.take(pa.array(spans))
        ids = pc.binary_join_element_wise(pc.fill_null(found["trace_id"], ""), found["span_id"], "/")
        alone = pc.binary_join_element_wise(str(file.number), number.cast(pa.string()), ":")  # no other is of its id
        file_number = pa.repeat(pa.scalar(file.number, pa.int32()), len(found))
        yield "spans", pa.table([*found.columns, file_number, number, pc.coalesce(ids, alone)], schema=_PLACED)


def _lines(file: _File, counts: LineCounts) -> pa.Table:
    return pa.Table.from_pylist([{"file": file.name, "file_number": file.number, **vars(counts)}], _LINES)


def _once(wanted: Wanted, batches: Batches) -> Rows:
    """Spans that are told for the first time; their group is their message at their consumer now."""
    for spans in whole_groups(batches):
        fates = Fates(spans.select(_PLACED.names).cast(_PLACED), wanted)
        fates.repeated()
        yield from _ended(fates)
        rows = pa.array(np.flatnonzero(fates.open))
        words = [pc.fill_null(whole(values), "") for values in (fates.topic, fates.consumer)]
        numbers = [pa.array(values).cast(pa.string()) for values in fates.position]
        group = pc.binary_join_element_wise(*words, *numbers, "\n").take(rows)
        yield "unique", fates.spans.take(rows).set_column(len(_PLACED) - 1, "group", group)


def _best(wanted: Wanted, batches: Batches) -> Rows:
    """Deliveries by the spans that tell most of them, and what has to be known to number them."""
    intervals = _INTERVALS.empty_table()
    for spans in whole_groups(batches):
        fates = Fates(spans.select(_PLACED.names).cast(_PLACED), wanted)
        fates.told_twice()
        fates.check()
        rows = pa.array(np.flatnonzero(fates.open))
        told = fates.told()
        yield from _ended(fates)
        interval = pa.array(told["received"].to_numpy() >> _INTERVAL)
        numbers = [fates.spans[name].take(rows) for name in _ORDER]
        yield "told", pa.table([*told.columns, *numbers, interval], schema=_TIMED)
        one_each = pa.table([interval, pa.repeat(1, len(told))], schema=_INTERVALS)
        intervals = _summed(pa.concat_tables([intervals, one_each]))
        yield "pairs", _counted(told.select(_PAIRS.names[:2]), _PAIRS)
        yield "names", names(told)
    yield "intervals", intervals


def _number(known: Known) -> partial[Rows]:
    counts = _summed(known["intervals"]).sort_by("interval")
    begins = np.cumsum(counts["count"].to_numpy()) - counts["count"].to_numpy()
    return partial(_numbered, counts["interval"].to_numpy(), begins, several(known["names"]))


def _numbered(intervals: Ints, begins: Ints, several: pa.Table, batches: Batches) -> Rows:
    """Deliveries in the order of their receipts; each interval begins with as many as are before it."""
    last, passed = -1, 0  # of the interval that the rows before ended in
    for batch in batches:
        told = pa.Table.from_batches([batch])
        interval = ints(told, "interval")
        begin = np.maximum.accumulate(np.where(np.diff(interval, prepend=-1) != 0, np.arange(len(told)), 0))
        within = np.arange(len(told)) - begin + np.where(interval == last, passed, 0)
        seq = begins[np.searchsorted(intervals, interval)] + within
        yield "deliveries", in_order(told.select(TOLD.names).cast(TOLD), seq, several)
        if len(told):
            last, passed = int(interval[-1]), int(within[-1]) + 1


def _ended(fates: Fates) -> Rows:
    rejected = quarantine(fates.rejected())
    yield REJECTED, rejected
    rows = fates.spans.take(pa.array(sorted(fates.reasons), pa.int64()))
    yield "first", _first(rejected, False, *(np.asarray(rows[name]) for name in _ORDER))
    yield "fates", fates.counts()


def _first(rejected: pa.Table, of_lines: bool, file_number: Ints, span: Ints) -> pa.Table:
    row = np.lexsort((span, file_number))[:1]
    more = [pa.repeat(of_lines, len(row)), pa.array(file_number[row], pa.int32()), pa.array(span[row], pa.int64())]
    return pa.table([*rejected.take(pa.array(row, pa.int64())).columns, *more], schema=_FIRST)


def _summed(counts: pa.Table) -> pa.Table:
    return counts.group_by("interval").aggregate([("count", "sum")]).rename_columns(_INTERVALS.names)


def _counted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return rows.group_by(rows.column_names).aggregate([([], "count_all")]).rename_columns(schema.names).cast(schema)


def line_counts(known: Known) -> dict[str, LineCounts]:
    """What became of the lines of each file."""
    lines: dict[str, LineCounts] = {}
    for row in known["lines"].sort_by("file_number").to_pylist():
        name, _ = row.pop("file"), row.pop("file_number")
        lines[name] = lines.get(name, LineCounts()) + LineCounts(**row)
    return lines


def _concluded(path: Path, sampled: bool, notes: Iterable[str], known: Known, lost: Counter[str]) -> End:
    lines = line_counts(known)
    ordered = known["first"].sort_by([("file_number", "ascending"), ("span", "ascending")])
    first = {of: [Rejected.of(row) for row in ordered.to_pylist() if row["of_lines"] == of] for of in (True, False)}
    counts = fates_by_file([known["fates"]])
    if not sum(of.spans for of in counts.values()):
        raise no_spans(path, lines, first[True])
    quarantined = sum(of.quarantined for of in counts.values())
    if quarantined and not sum(of.deliveries for of in counts.values()):
        raise none_fits(path, quarantined, first[False])
    rows = Counter[tuple[str, str]]()
    for row in known["pairs"].to_pylist():
        rows[row["subscription"], row["topic"]] += row["count"]
    end = ended(path, pairs_of(rows), lines, with_others(counts, lines), sampled)
    return end._replace(notes=(*end.notes, *notes))
