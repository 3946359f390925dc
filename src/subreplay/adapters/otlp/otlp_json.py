"""Parse lines of OTLP JSON into the spans of Kafka and Pulsar clients, with their attributes as text.

Parsing is stateless and vectorised: each batch of lines becomes a batch of spans. A line is a whole export
(``{"resourceSpans": [...]}``, from the collector's file exporter and the agent's standard output), or the spans of one
resource (``{"resource": ..., "scopeSpans": [...]}``, from the agent's logging exporter). Other text may precede it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from numpy.typing import NDArray

from subreplay.adapters.base import Reason, RejectedRow
from subreplay.adapters.otlp.span_counts import LineCounts

ATTRIBUTES: Final[dict[str, tuple[str, ...]]] = {
    "system": ("messaging.system",),
    "operation": ("messaging.operation.type", "messaging.operation", "messaging.operation.name"),
    "topic": ("messaging.destination.name", "messaging.destination"),
    "partition": (
        "messaging.destination.partition.id",
        "messaging.kafka.destination.partition",
        "messaging.kafka.partition",
    ),
    "offset": ("messaging.kafka.offset", "messaging.kafka.message.offset"),
    "message_id": ("messaging.message.id", "messaging.message_id"),
    "subscription": (
        "messaging.destination.subscription.name",
        "messaging.consumer.group.name",
        "messaging.kafka.consumer.group",
    ),
    "client_id": ("messaging.client.id", "messaging.client_id", "messaging.kafka.client_id"),
    "acknowledgment": ("messaging.pulsar.acknowledgment.type",),
    "batch_size": ("messaging.batch.message_count",),
}
"""The attributes of each column, newest convention first; the first one that a span has is used."""

RESOURCE: Final[dict[str, tuple[str, ...]]] = {
    "service_instance": ("service.instance.id",),
    "pod": ("k8s.pod.name",),
    "host": ("host.name",),
    "process": ("process.pid",),
}
SYSTEMS: Final = ("kafka", "pulsar")
_TEXT_COLUMNS: Final = ("trace_id", "span_id", "begin", "end", "scope", *ATTRIBUTES, *RESOURCE)

SPANS: Final = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("line", pa.int64(), nullable=False),
        *[pa.field(name, pa.string()) for name in _TEXT_COLUMNS],
    ]
)
"""Spans with ``messaging.system`` Kafka or Pulsar. ``begin`` and ``end`` are ns since 1970, as text."""

_Attributes: Final = pa.list_(
    pa.struct([("key", pa.string()), ("value", pa.struct([("stringValue", pa.string()), ("intValue", pa.string())]))])
)
_SPAN: Final = pa.struct(
    [
        ("traceId", pa.string()),
        ("spanId", pa.string()),
        ("startTimeUnixNano", pa.string()),
        ("endTimeUnixNano", pa.string()),
        ("attributes", _Attributes),
    ]
)
_SCOPE_SPANS: Final = pa.struct([("scope", pa.struct([("name", pa.string())])), ("spans", pa.list_(_SPAN))])
_RESOURCE_SPANS: Final = pa.struct(
    [("resource", pa.struct([("attributes", _Attributes)])), ("scopeSpans", pa.list_(_SCOPE_SPANS))]
)
_EXPORT: Final = pa.schema([("resourceSpans", pa.list_(_RESOURCE_SPANS))])

_OPENING: Final = r'\{\s*"(?:resourceSpans|resource|scopeSpans|schemaUrl)"\s*:'
_NUMBERS: Final = re.compile(rb'("(?:intValue|startTimeUnixNano|endTimeUnixNano)"\s*:\s*)(-?\d+)')
_LINE_REMEDY: Final = "write one JSON object per line, as the collector's file exporter does"


@dataclass(frozen=True)
class ParsedLines:
    """The ``SPANS`` of some lines in line order, the rejected lines, and the counts."""

    spans: pa.Table
    rejected: tuple[RejectedRow, ...]
    counts: LineCounts


def parse_lines(lines: pa.RecordBatch) -> ParsedLines:
    """Parse lines of one file (columns ``file``, ``line`` from 1, and ``text`` in bytes)."""
    texts = lines.column("text")
    begins, single, rejected = _locate_spans(texts)
    rows = np.flatnonzero(begins >= 0)
    raw = texts.take(pa.array(rows)).to_pylist()
    cut = [text[begin:].strip() for text, begin in zip(raw, begins[rows].tolist(), strict=True)]
    exports = [b'{"resourceSpans":[%b]}' % t if one else t for t, one in zip(cut, single[rows].tolist(), strict=True)]
    tables = []
    total = 0
    for found, reason in _parse_texts(exports, rows):
        if reason is not None:
            rejected[int(found)] = reason
        else:
            at, table = found
            spans = _flatten_spans(table, at)
            total += len(spans)
            tables.append(spans.filter(pc.is_in(spans["system"], pa.array(SYSTEMS))))
    table = pa.concat_tables(tables) if tables else _flatten_spans(_EXPORT.empty_table(), rows[:0])
    at = table["line"]  # so far the row in the batch
    table = table.set_column(0, SPANS.field("line"), lines.column("line").take(at.combine_chunks()))
    table = table.add_column(0, SPANS.field("file"), lines.column("file").take(at.combine_chunks()))
    quarantined = tuple(_build_rejected_row(lines, row, reason) for row, reason in sorted(rejected.items()))
    read = len(rows) - sum(1 for row in rejected if begins[row] >= 0)
    counts = LineCounts(len(lines), read, len(lines) - read - len(rejected), len(rejected), total, total - len(table))
    return ParsedLines(table.cast(SPANS), quarantined, counts)


def _locate_spans(texts: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_], dict[int, Reason]]:
    """Find where the spans of each line begin (-1: nowhere), whether they are of one resource, and broken lines."""
    begins = np.zeros(len(texts), np.int64)
    single = np.zeros(len(texts), np.bool_)
    rejected: dict[int, Reason] = {}
    odd = np.flatnonzero(~_to_mask(pc.starts_with(texts, '{"resourceSpans"')))
    if len(odd):
        texts = texts.take(pa.array(odd))
        export = _to_mask(pc.match_substring(texts, '"resourceSpans"'))
        single[odd] = _to_mask(pc.match_substring(texts, '"scopeSpans"')) & ~export
        spans = export | single[odd]
        begin = np.asarray(pc.find_substring_regex(texts, _OPENING), np.int64)
        begins[odd] = np.where(spans, begin, -1)
        for row in odd[(spans & (begin < 0)) | (~spans & _find_fragments(texts))].tolist():
            rule = "the spans of a line must be inside one JSON object that begins in that line"
            rejected[row] = _build_reason(rule, f"{_LINE_REMEDY}, and copy the file from its first line")
    return begins, single, rejected


def _find_fragments(texts: pa.Array) -> NDArray[np.bool_]:
    """Mark lines that are parts of a split export: they have fields of a span, or an export inside a text."""
    fields = [_to_mask(pc.match_substring(texts, name)) for name in ('"startTimeUnixNano"', '"endTimeUnixNano"')]
    return np.asarray(fields[0] & fields[1] | _to_mask(pc.match_substring(texts, r"\"resourceSpans\"")), np.bool_)


def _to_mask(values: pa.Array) -> NDArray[np.bool_]:
    return np.asarray(values.to_numpy(zero_copy_only=False), np.bool_)


def _parse_texts(texts: Sequence[bytes], rows: NDArray[np.int64]) -> Iterator[tuple[Any, Reason | None]]:
    """Yield tables with their rows, as many lines at once as possible, or one row with the reason of its failure."""
    if not texts:
        return
    table = _parse_table(texts)
    if table is not None:
        yield (rows, table), None
    elif len(texts) == 1:
        yield rows[0], _explain_failure(texts[0])
    else:
        half = len(texts) // 2
        yield from _parse_texts(texts[:half], rows[:half])
        yield from _parse_texts(texts[half:], rows[half:])


def _parse_table(texts: Sequence[bytes]) -> pa.Table | None:
    """Parse one row per line; None where a line cannot be parsed."""
    text = b"\n".join(texts) + b"\n"
    try:
        text.decode()
        table = _parse_json(text)
    except UnicodeDecodeError:
        return None
    except pa.ArrowInvalid as error:
        if "from string to number" not in str(error):
            return None
        try:  # some exporters write integers without quotes
            table = _parse_json(_NUMBERS.sub(rb'\1"\2"', text))
        except pa.ArrowInvalid:
            return None
    return table if len(table) == len(texts) else None


def _parse_json(text: bytes) -> pa.Table:
    return pj.read_json(
        pa.BufferReader(text),
        read_options=pj.ReadOptions(block_size=len(text) + 1),  # an object may not straddle blocks
        parse_options=pj.ParseOptions(explicit_schema=_EXPORT, unexpected_field_behavior="ignore"),
    )


def _explain_failure(text: bytes) -> Reason:
    try:
        text.decode()
        table = _parse_json(_NUMBERS.sub(rb'\1"\2"', text))
    except UnicodeDecodeError as error:
        return _build_reason(
            f"byte {error.start + 1:,} is not UTF-8, which JSON requires", "export again, or fix the bytes"
        )
    except pa.ArrowInvalid as error:
        detail = str(error).removeprefix("JSON parse error: ").removesuffix(" in row 0")
        return _build_reason(
            f"a line must be one complete JSON export: {detail}", "copy the whole line, or export again"
        )
    return _build_reason(f"a line must be one JSON object, and this one has {len(table)}", _LINE_REMEDY)


def _flatten_spans(table: pa.Table, rows: NDArray[np.int64]) -> pa.Table:
    """Flatten parsed lines to spans; column ``line`` has the rows of their lines."""
    exports = _combine_chunks(table["resourceSpans"])
    resources = pc.list_flatten(exports)
    of_export = _find_parents(exports)
    about = _select_attributes(pc.struct_field(resources, ["resource", "attributes"]), RESOURCE)
    groups = pc.struct_field(resources, "scopeSpans")
    scopes = pc.list_flatten(groups)
    of_resource = _find_parents(groups)
    lists = pc.struct_field(scopes, "spans")
    spans = pc.list_flatten(lists)
    of_scope = _find_parents(lists)
    resource = of_resource[of_scope]
    columns = {
        "line": pa.array(rows[of_export[resource]]),
        "trace_id": pc.struct_field(spans, "traceId"),
        "span_id": pc.struct_field(spans, "spanId"),
        "begin": pc.struct_field(spans, "startTimeUnixNano"),
        "end": pc.struct_field(spans, "endTimeUnixNano"),
        "scope": pc.struct_field(scopes, ["scope", "name"]).take(pa.array(of_scope)),
        **_select_attributes(pc.struct_field(spans, "attributes"), ATTRIBUTES),
        **{name: values.take(pa.array(resource)) for name, values in about.items()},
    }
    return pa.table(columns)


def _select_attributes(lists: pa.Array, wanted: dict[str, tuple[str, ...]]) -> dict[str, pa.Array]:
    """Select the values of the wanted attributes from the attribute lists of spans or resources."""
    names = [name for several in wanted.values() for name in several]
    items = pc.list_flatten(lists)
    owner = _find_parents(lists)
    which = np.asarray(pc.fill_null(pc.index_in(pc.struct_field(items, "key"), pa.array(names)), -1), np.int64)
    values = pc.coalesce(
        pc.struct_field(items, ["value", "stringValue"]), pc.struct_field(items, ["value", "intValue"])
    )
    present = np.flatnonzero((which >= 0) & _to_mask(values.is_valid()))
    item = np.full((len(names), len(lists)), -1, np.int64)
    item[which[present], owner[present]] = present
    found: dict[str, pa.Array] = {}
    first = 0
    for column, several in wanted.items():
        candidates = item[first : first + len(several)]
        best = np.select(list(candidates >= 0), list(candidates), -1)
        found[column] = values.take(pa.array(best, mask=best < 0))
        first += len(several)
    return found


def _combine_chunks(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _find_parents(lists: pa.Array) -> NDArray[np.int64]:
    return np.asarray(pc.list_parent_indices(lists), np.int64)


def _build_reason(rule: str, remedy: str) -> Reason:
    return Reason("(line)", "", rule, remedy)


def _build_rejected_row(lines: pa.RecordBatch, row: int, reason: Reason) -> RejectedRow:
    """Build the row of a rejected line. Spans may contain message keys and bodies, so only the length is kept."""
    shown = f"({len(lines.column('text')[row].as_py()):,} bytes)"
    file, line = lines.column("file")[row].as_py(), lines.column("line")[row].as_py()
    return RejectedRow("deliveries", file, line, shown, (reason._replace(value=shown),))
