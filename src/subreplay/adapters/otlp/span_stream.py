"""Fold spans of any number as streams of sorted rows.

``_scan_file`` reads a file and decides the outcomes that a span alone determines. ``_close_repeated`` receives all
spans of one id together, ``_close_duplicates`` all spans of one message at a consumer. ``_number_deliveries`` receives
the deliveries in receipt order.
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

from subreplay.adapters.base import Options, RejectedRow, rank_subscriptions
from subreplay.adapters.format_detection import select_files
from subreplay.adapters.input_files import read_line_batches
from subreplay.adapters.otlp.otlp_json import SPANS, parse_lines
from subreplay.adapters.otlp.span_columns import combine_chunks
from subreplay.adapters.otlp.span_counts import LineCounts
from subreplay.adapters.otlp.span_deliveries import (
    CONSUMERS,
    build_deliveries,
    find_shared_ids,
    list_consumers,
    sum_outcomes,
)
from subreplay.adapters.otlp.span_outcomes import OUTCOMES, RECEIPTS, SpanOutcomes, SpanSelection
from subreplay.adapters.otlp.span_summary import (
    NAME,
    add_other_spans,
    build_no_spans_error,
    build_no_valid_span_error,
    build_result,
    reject_rest,
    select_spans,
)
from subreplay.adapters.streams import (
    REJECTED,
    Batches,
    Rows,
    SmallTables,
    SourceStream,
    Stage,
    StreamResult,
    build_quarantine,
    sum_file_sizes,
)
from subreplay.rows.groups import read_whole_groups
from subreplay.rows.model.columns import Ints, ints
from subreplay.rows.model.tables import DELIVERIES, QUARANTINE

_ORDER: Final = ("file_number", "span")
_GROUPED_SPANS: Final = pa.schema([*SPANS, pa.field("file_number", pa.int32()), pa.field("span", pa.int64()),
                            pa.field("group", pa.string())])  # fmt: skip
"""Spans with their file number and their number in the file. Possible duplicates are in one group."""
_NUMBERED_RECEIPTS: Final = pa.schema([*RECEIPTS, pa.field("file_number", pa.int32()), pa.field("span", pa.int64()),
                           pa.field("interval", pa.int64())])  # fmt: skip
_LINES: Final = pa.schema([("file", pa.string()), ("file_number", pa.int32())]
                          + [(name, pa.int64()) for name in LineCounts.__dataclass_fields__])  # fmt: skip
_FIRST: Final = pa.schema([*QUARANTINE, pa.field("from_lines", pa.bool_()), pa.field("file_number", pa.int32()),
                           pa.field("span", pa.int64())])  # fmt: skip
"""The first rejected row of a batch: a line, or a span."""
_INTERVALS: Final = pa.schema([("interval", pa.int64()), ("count", pa.int64())])
_PAIRS: Final = pa.schema([("subscription", pa.string()), ("topic", pa.string()), ("count", pa.int64())])
_INTERVAL: Final = 36  # bits of a time in ns: 69 seconds


class _SpanFile(NamedTuple):
    path: Path
    name: str
    number: int
    selection: SpanSelection


def open_stream(path: Path, options: Options) -> SourceStream:
    """Describe how to read files of any size. The counts count spans and quarantined lines.

    Option ``subscription`` also names the subscription of spans without one. ``sampled`` is true unless the options say
    otherwise. Raises ``InputError`` where there is no file.
    """
    files = select_files(path, NAME)
    selection = select_spans(options)
    parts = tuple(_SpanFile(each, files.relative_name(each), i, selection) for i, each in enumerate(files.files))
    shared = {"outcomes": OUTCOMES, "first": _FIRST}
    return SourceStream(
        sum_file_sizes(files.files),
        parts,
        _scan_file,
        {"spans": _GROUPED_SPANS, REJECTED: QUARANTINE},
        {"lines": _LINES, **shared},
        (
            Stage(lambda _: partial(_close_repeated, selection),
                  {"unique": _GROUPED_SPANS, REJECTED: QUARANTINE}, shared, "spans",
                  ("group",), _ORDER),
            Stage(lambda _: partial(_close_duplicates, selection),
                  {"receipts": _NUMBERED_RECEIPTS, REJECTED: QUARANTINE},
                  {"intervals": _INTERVALS, "pairs": _PAIRS, "consumers": CONSUMERS, **shared},
                  "unique", ("group",), _ORDER),
            Stage(_plan_numbering, {"deliveries": DELIVERIES}, {}, "receipts", ("interval",), ("received", *_ORDER)),
        ),
        partial(_build_result, path, options.sampled is not False, files.notes),
    )  # fmt: skip


def _scan_file(file: _SpanFile) -> Rows:
    """Read the spans of a file that may be deliveries."""
    before = 0
    yield "lines", _build_line_counts(file, LineCounts())  # so that an empty file is counted
    for part in read_line_batches(file.path, file.name):
        parsed = reject_rest(part) if isinstance(part, RejectedRow) else parse_lines(part)
        yield "lines", _build_line_counts(file, parsed.counts)
        rejected = build_quarantine(parsed.rejected)
        yield REJECTED, rejected
        yield "first", _select_first(rejected, True, np.full(len(rejected), file.number), np.asarray(rejected["row"]))
        outcomes = SpanOutcomes(parsed.spans, file.selection)
        yield "outcomes", outcomes.count_outcomes()
        spans = np.flatnonzero(outcomes.open)
        number = pa.array(spans + before)
        before += len(parsed.spans)
        found = parsed.spans.take(pa.array(spans))
        ids = pc.binary_join_element_wise(pc.fill_null(found["trace_id"], ""), found["span_id"], "/")
        alone = pc.binary_join_element_wise(str(file.number), number.cast(pa.string()), ":")  # a unique group
        file_number = pa.repeat(pa.scalar(file.number, pa.int32()), len(found))
        yield "spans", pa.table([*found.columns, file_number, number, pc.coalesce(ids, alone)], schema=_GROUPED_SPANS)


def _build_line_counts(file: _SpanFile, counts: LineCounts) -> pa.Table:
    return pa.Table.from_pylist([{"file": file.name, "file_number": file.number, **vars(counts)}], _LINES)


def _close_repeated(selection: SpanSelection, batches: Batches) -> Rows:
    """Close repeated spans. The group of the others is now their message at their consumer."""
    for spans in read_whole_groups(batches):
        outcomes = SpanOutcomes(spans.select(_GROUPED_SPANS.names).cast(_GROUPED_SPANS), selection)
        outcomes.close_repeated()
        yield from _yield_outcomes(outcomes)
        rows = pa.array(np.flatnonzero(outcomes.open))
        words = [pc.fill_null(combine_chunks(values), "") for values in (outcomes.topic, outcomes.consumer)]
        numbers = [pa.array(values).cast(pa.string()) for values in outcomes.position]
        group = pc.binary_join_element_wise(*words, *numbers, "\n").take(rows)
        yield "unique", outcomes.spans.take(rows).set_column(len(_GROUPED_SPANS) - 1, "group", group)


def _close_duplicates(selection: SpanSelection, batches: Batches) -> Rows:
    """Build receipts from the spans that describe them best, and the counts that number them."""
    intervals = _INTERVALS.empty_table()
    for spans in read_whole_groups(batches):
        outcomes = SpanOutcomes(spans.select(_GROUPED_SPANS.names).cast(_GROUPED_SPANS), selection)
        outcomes.close_duplicates()
        outcomes.check()
        rows = pa.array(np.flatnonzero(outcomes.open))
        receipts = outcomes.build_receipts()
        yield from _yield_outcomes(outcomes)
        interval = pa.array(receipts["received"].to_numpy() >> _INTERVAL)
        numbers = [outcomes.spans[name].take(rows) for name in _ORDER]
        yield "receipts", pa.table([*receipts.columns, *numbers, interval], schema=_NUMBERED_RECEIPTS)
        one_each = pa.table([interval, pa.repeat(1, len(receipts))], schema=_INTERVALS)
        intervals = _sum_intervals(pa.concat_tables([intervals, one_each]))
        yield "pairs", _count_rows(receipts.select(_PAIRS.names[:2]), _PAIRS)
        yield "consumers", list_consumers(receipts)
    yield "intervals", intervals


def _plan_numbering(small: SmallTables) -> partial[Rows]:
    counts = _sum_intervals(small["intervals"]).sort_by("interval")
    begins = np.cumsum(counts["count"].to_numpy()) - counts["count"].to_numpy()
    return partial(_number_deliveries, counts["interval"].to_numpy(), begins, find_shared_ids(small["consumers"]))


def _number_deliveries(intervals: Ints, begins: Ints, shared_ids: pa.Table, batches: Batches) -> Rows:
    """Number deliveries in receipt order; each interval starts after the deliveries of earlier intervals."""
    last, passed = -1, 0  # the last interval of earlier rows, and its rows so far
    for batch in batches:
        receipts = pa.Table.from_batches([batch])
        interval = ints(receipts, "interval")
        begin = np.maximum.accumulate(np.where(np.diff(interval, prepend=-1) != 0, np.arange(len(receipts)), 0))
        within = np.arange(len(receipts)) - begin + np.where(interval == last, passed, 0)
        seq = begins[np.searchsorted(intervals, interval)] + within
        yield "deliveries", build_deliveries(receipts.select(RECEIPTS.names).cast(RECEIPTS), seq, shared_ids)
        if len(receipts):
            last, passed = int(interval[-1]), int(within[-1]) + 1


def _yield_outcomes(outcomes: SpanOutcomes) -> Rows:
    rejected = build_quarantine(outcomes.build_rejected_rows())
    yield REJECTED, rejected
    rows = outcomes.spans.take(pa.array(sorted(outcomes.reasons), pa.int64()))
    yield "first", _select_first(rejected, False, *(np.asarray(rows[name]) for name in _ORDER))
    yield "outcomes", outcomes.count_outcomes()


def _select_first(rejected: pa.Table, from_lines: bool, file_number: Ints, span: Ints) -> pa.Table:
    row = np.lexsort((span, file_number))[:1]
    more = [pa.repeat(from_lines, len(row)), pa.array(file_number[row], pa.int32()), pa.array(span[row], pa.int64())]
    return pa.table([*rejected.take(pa.array(row, pa.int64())).columns, *more], schema=_FIRST)


def _sum_intervals(counts: pa.Table) -> pa.Table:
    return counts.group_by("interval").aggregate([("count", "sum")]).rename_columns(_INTERVALS.names)


def _count_rows(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return rows.group_by(rows.column_names).aggregate([([], "count_all")]).rename_columns(schema.names).cast(schema)


def sum_line_counts(small: SmallTables) -> dict[str, LineCounts]:
    """Sum the line counts of each file."""
    lines: dict[str, LineCounts] = {}
    for row in small["lines"].sort_by("file_number").to_pylist():
        name, _ = row.pop("file"), row.pop("file_number")
        lines[name] = lines.get(name, LineCounts()) + LineCounts(**row)
    return lines


def _build_result(
    path: Path, sampled: bool, notes: Iterable[str], small: SmallTables, quarantined: Counter[str]
) -> StreamResult:
    lines = sum_line_counts(small)
    ordered = small["first"].sort_by([("file_number", "ascending"), ("span", "ascending")])
    first = {
        from_lines: [RejectedRow.from_row(row) for row in ordered.to_pylist() if row["from_lines"] == from_lines]
        for from_lines in (True, False)
    }
    counts = sum_outcomes([small["outcomes"]])
    if not sum(of.spans for of in counts.values()):
        raise build_no_spans_error(path, lines, first[True])
    rejected = sum(of.quarantined for of in counts.values())
    if rejected and not sum(of.deliveries for of in counts.values()):
        raise build_no_valid_span_error(path, rejected, first[False])
    rows = Counter[tuple[str, str]]()
    for row in small["pairs"].to_pylist():
        rows[row["subscription"], row["topic"]] += row["count"]
    result = build_result(path, rank_subscriptions(rows), lines, add_other_spans(counts, lines), sampled)
    return result._replace(notes=(*result.notes, *notes))
