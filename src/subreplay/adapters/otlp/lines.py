"""From lines of OTLP JSON to the spans of Kafka and Pulsar clients: what each span tells, as text.

Stateless and vectorised: a batch of lines gives a batch of spans, whatever was read before. A line is a whole export
(``{"resourceSpans": [...]}``, of the collector's file exporter and of the agent's standard output) or the spans of one
resource (``{"resource": ..., "scopeSpans": [...]}``, of the agent's logging exporter). Other text may stand before it.
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

from subreplay.adapters.base import Reason, Rejected
from subreplay.adapters.otlp.counts import LineCounts

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
"""Columns by the attributes that tell them, the newest convention first: the first that a span has counts."""

RESOURCE: Final[dict[str, tuple[str, ...]]] = {
    "service_instance": ("service.instance.id",),
    "pod": ("k8s.pod.name",),
    "host": ("host.name",),
    "process": ("process.pid",),
}
SYSTEMS: Final = ("kafka", "pulsar")
_TEXTS: Final = ("trace_id", "span_id", "begin", "end", "scope", *ATTRIBUTES, *RESOURCE)

SPANS: Final = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("line", pa.int64(), nullable=False),
        *[pa.field(name, pa.string()) for name in _TEXTS],
    ]
)
"""Spans whose ``messaging.system`` is Kafka or Pulsar. ``begin`` and ``end`` are ns since 1970, as text."""

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
_ONE_A_LINE: Final = "write one JSON object a line, as the collector's file exporter does"


@dataclass(frozen=True)
class ParsedLines:
    """``SPANS`` in the order of the lines, rejected lines, and counts."""

    spans: pa.Table
    rejected: tuple[Rejected, ...]
    counts: LineCounts


def parse(lines: pa.RecordBatch) -> ParsedLines:
    """Parse lines of one file: columns ``file``, ``line`` (from 1) and ``text`` (bytes)."""
    texts = lines.column("text")
    begins, single, rejected = _found(texts)
    rows = np.flatnonzero(begins >= 0)
    exports = texts.take(pa.array(rows)).to_pylist()
    cut = [text[begin:].strip() for text, begin in zip(exports, begins[rows].tolist(), strict=True)]
    given = [b'{"resourceSpans":[%b]}' % t if one else t for t, one in zip(cut, single[rows].tolist(), strict=True)]
    tables = []
    total = 0
    for found, reason in _read(given, rows):
        if reason is not None:
            rejected[int(found)] = reason
        else:
            at, table = found
            spans = _spans(table, at)
            total += len(spans)
            tables.append(spans.filter(pc.is_in(spans["system"], pa.array(SYSTEMS))))
    table = pa.concat_tables(tables) if tables else _spans(_EXPORT.empty_table(), rows[:0])
    at = table["line"]  # a row of the batch until here
    table = table.set_column(0, SPANS.field("line"), lines.column("line").take(at.combine_chunks()))
    table = table.add_column(0, SPANS.field("file"), lines.column("file").take(at.combine_chunks()))
    quarantined = tuple(_rejected(lines, row, reason) for row, reason in sorted(rejected.items()))
    read = len(rows) - sum(1 for row in rejected if begins[row] >= 0)
    counts = LineCounts(len(lines), read, len(lines) - read - len(rejected), len(rejected), total, total - len(table))
    return ParsedLines(table.cast(SPANS), quarantined, counts)


def _found(texts: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_], dict[int, Reason]]:
    """Where in each line the spans begin (-1: nowhere), whether they are of one resource, and lines that are broken."""
    begins = np.zeros(len(texts), np.int64)
    single = np.zeros(len(texts), np.bool_)
    rejected: dict[int, Reason] = {}
    odd = np.flatnonzero(~_true(pc.starts_with(texts, '{"resourceSpans"')))
    if len(odd):
        texts = texts.take(pa.array(odd))
        export = _true(pc.match_substring(texts, '"resourceSpans"'))
        single[odd] = _true(pc.match_substring(texts, '"scopeSpans"')) & ~export
        spans = export | single[odd]
        begin = np.asarray(pc.find_substring_regex(texts, _OPENING), np.int64)
        begins[odd] = np.where(spans, begin, -1)
        for row in odd[(spans & (begin < 0)) | (~spans & _remains(texts))].tolist():
            rule = "the spans of a line are inside one JSON object that begins there"
            rejected[row] = _reason(rule, f"{_ONE_A_LINE}; copy the file from its beginning")
    return begins, single, rejected


def _remains(texts: pa.Array) -> NDArray[np.bool_]:
    """Lines that are what is left of an export: a span's own fields stand there, or an export inside a text."""
    fields = [_true(pc.match_substring(texts, name)) for name in ('"startTimeUnixNano"', '"endTimeUnixNano"')]
    return np.asarray(fields[0] & fields[1] | _true(pc.match_substring(texts, r"\"resourceSpans\"")), np.bool_)


def _true(values: pa.Array) -> NDArray[np.bool_]:
    return np.asarray(values.to_numpy(zero_copy_only=False), np.bool_)


def _read(texts: Sequence[bytes], rows: NDArray[np.int64]) -> Iterator[tuple[Any, Reason | None]]:
    """Rows and the table of their lines, as many as can be read together; or a row and why it cannot be read."""
    if not texts:
        return
    table = _table(texts)
    if table is not None:
        yield (rows, table), None
    elif len(texts) == 1:
        yield rows[0], _why(texts[0])
    else:
        half = len(texts) // 2
        yield from _read(texts[:half], rows[:half])
        yield from _read(texts[half:], rows[half:])


def _table(texts: Sequence[bytes]) -> pa.Table | None:
    """One row a line; None where one of them cannot be read."""
    text = b"\n".join(texts) + b"\n"
    try:
        text.decode()
        table = _parsed(text)
    except UnicodeDecodeError:
        return None
    except pa.ArrowInvalid as error:
        if "from string to number" not in str(error):
            return None
        try:  # some exporters write whole numbers as such
            table = _parsed(_NUMBERS.sub(rb'\1"\2"', text))
        except pa.ArrowInvalid:
            return None
    return table if len(table) == len(texts) else None


def _parsed(text: bytes) -> pa.Table:
    return pj.read_json(
        pa.BufferReader(text),
        read_options=pj.ReadOptions(block_size=len(text) + 1),  # an object may not straddle blocks
        parse_options=pj.ParseOptions(explicit_schema=_EXPORT, unexpected_field_behavior="ignore"),
    )


def _why(text: bytes) -> Reason:
    try:
        text.decode()
        table = _parsed(_NUMBERS.sub(rb'\1"\2"', text))
    except UnicodeDecodeError as error:
        return _reason(f"JSON is UTF-8, and byte {error.start + 1:,} is none", "export again, or correct the bytes")
    except pa.ArrowInvalid as error:
        told = str(error).removeprefix("JSON parse error: ").removesuffix(" in row 0")
        return _reason(f"the line is one whole export of spans: {told}", "copy the whole line, or export again")
    return _reason(f"a line is one JSON object, and this is {len(table)}", _ONE_A_LINE)


def _spans(table: pa.Table, rows: NDArray[np.int64]) -> pa.Table:
    """All spans of parsed lines, with the rows of their lines in column ``line``."""
    exports = _whole(table["resourceSpans"])
    resources = pc.list_flatten(exports)
    of_export = _parents(exports)
    about = _chosen(pc.struct_field(resources, ["resource", "attributes"]), RESOURCE)
    groups = pc.struct_field(resources, "scopeSpans")
    scopes = pc.list_flatten(groups)
    of_resource = _parents(groups)
    lists = pc.struct_field(scopes, "spans")
    spans = pc.list_flatten(lists)
    of_scope = _parents(lists)
    resource = of_resource[of_scope]
    columns = {
        "line": pa.array(rows[of_export[resource]]),
        "trace_id": pc.struct_field(spans, "traceId"),
        "span_id": pc.struct_field(spans, "spanId"),
        "begin": pc.struct_field(spans, "startTimeUnixNano"),
        "end": pc.struct_field(spans, "endTimeUnixNano"),
        "scope": pc.struct_field(scopes, ["scope", "name"]).take(pa.array(of_scope)),
        **_chosen(pc.struct_field(spans, "attributes"), ATTRIBUTES),
        **{name: values.take(pa.array(resource)) for name, values in about.items()},
    }
    return pa.table(columns)


def _chosen(lists: pa.Array, wanted: dict[str, tuple[str, ...]]) -> dict[str, pa.Array]:
    """Columns of the values of attributes, from lists of all that each span or resource has."""
    names = [name for several in wanted.values() for name in several]
    items = pc.list_flatten(lists)
    owner = _parents(lists)
    which = np.asarray(pc.fill_null(pc.index_in(pc.struct_field(items, "key"), pa.array(names)), -1), np.int64)
    values = pc.coalesce(
        pc.struct_field(items, ["value", "stringValue"]), pc.struct_field(items, ["value", "intValue"])
    )
    told = np.flatnonzero((which >= 0) & _true(values.is_valid()))
    item = np.full((len(names), len(lists)), -1, np.int64)
    item[which[told], owner[told]] = told
    found: dict[str, pa.Array] = {}
    first = 0
    for column, several in wanted.items():
        candidates = item[first : first + len(several)]
        best = np.select(list(candidates >= 0), list(candidates), -1)
        found[column] = values.take(pa.array(best, mask=best < 0))
        first += len(several)
    return found


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _parents(lists: pa.Array) -> NDArray[np.int64]:
    return np.asarray(pc.list_parent_indices(lists), np.int64)


def _reason(rule: str, remedy: str) -> Reason:
    return Reason("(line)", "", rule, remedy)


def _rejected(lines: pa.RecordBatch, row: int, reason: Reason) -> Rejected:
    """A rejected line. Spans may hold keys and bodies of messages: of the line its length only may leave."""
    shown = f"({len(lines.column('text')[row].as_py()):,} bytes)"
    file, line = lines.column("file")[row].as_py(), lines.column("line")[row].as_py()
    return Rejected("deliveries", file, line, shown, (reason._replace(value=shown),))
