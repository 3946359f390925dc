"""Retract findings of earlier daily runs that the data of a later day correct: exchanges by position.

A message that was reported LOST was delivered. One that was delivered as UNKNOWN_MESSAGE is in the log. The only one
that a consumer skipped (SKIP) was delivered to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.audit.codes import Code
from subreplay.rows.groups import Accumulator, hashes, make_groups, read_whole_groups, with_columns
from subreplay.rows.model.columns import UNKNOWN, Ints, ints
from subreplay.rows.model.tables import RETRACTED_FINDINGS, TIME
from subreplay.rows.sorted_blocks import make_group_order

CODES: Final = (Code.LOST, Code.UNKNOWN_MESSAGE, Code.SKIP)
"""The rules whose findings may be retracted."""
EVIDENCE_OF_ONE_SKIP: Final = 2
"""The pieces of evidence of a SKIP: the delivery and the skipped message. A third piece mentions others."""
MOST_SHOWN_POSITIONS: Final = 8
"""The largest number of positions that a report shows for the retracted findings of a rule and day, beside their total.
"""
MOST_POSITIONS: Final = 1 << 20
"""The largest number of positions whose hashes are looked up in the day's rows. With more, every row is exchanged."""
FINDING_COLUMNS: Final = (
    "date", "partition", "ledger", "entry", "batch_index", "code", "verdict", "consumer", "at", "witness",
)  # fmt: skip
"""Columns of table ``violations``."""
RETRACTED_COLUMNS: Final = ("partition", "ledger", "entry", "batch_index", "code", "told")
"""Columns of table ``withdrawn``."""
DELIVERY_COLUMNS: Final = ("partition", "ledger", "entry", "batch_index", "consumer", "delivered_at")
MESSAGE_COLUMNS: Final = ("partition", "ledger", "entry", "batch_index", "producer", "publish_time")
POSITIONS: Final = pa.schema([pa.field("hash", pa.int64(), nullable=False)])
_POSITION: Final = ("partition", "ledger", "entry", "batch_index")
_SOUGHT: Final = ("partition", "sought_ledger", "sought_entry", "sought_batch_index")
_FINDING: Final = (*_POSITION, "code", "told")
_RETRACTED, _REPORTED, _DELIVERED, _STORED = range(4)
_FIELDS: Final = [
    pa.field("kind", pa.int8(), nullable=False),
    pa.field("partition", pa.int32()),
    pa.field("ledger", pa.int64()),
    pa.field("entry", pa.int64()),
    pa.field("batch_index", pa.int32()),
    pa.field("code", pa.string()),
    pa.field("told", pa.date32()),  # the day of the run that reported it
    # the message that would correct it
    pa.field("sought_ledger", pa.int64()),
    pa.field("sought_entry", pa.int64()),
    pa.field("sought_batch_index", pa.int32()),
    pa.field("consumer", pa.string()),
    pa.field("at", TIME),
    pa.field("producer", pa.string()),
]
FINDINGS: Final = make_group_order(pa.schema(_FIELDS), then=("kind",))
"""Findings of earlier runs and retracted findings, grouped by what they are about."""
CORRECTIONS: Final = make_group_order(pa.schema(_FIELDS), then=("kind",), last=("consumer",))
"""Findings, deliveries and messages, grouped by the message that would correct the finding."""
COUNTED: Final = pa.schema(
    [*(field for field in RETRACTED_FINDINGS if field.name in _FINDING), pa.field("count", pa.int64(), nullable=False)]
)
"""The first positions of each rule and day. The first row has the total count, the others 0."""


def select_findings_to_retract(violations: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Select the ``FINDINGS`` of ``CODES`` that fail and may be corrected from rows of table ``violations``. A step."""
    for batch in violations:
        rows = pa.Table.from_batches([batch])
        pieces = pc.list_value_length(rows["witness"])
        one = pc.or_(
            pc.not_equal(rows["code"], Code.SKIP.name), pc.fill_null(pc.equal(pieces, EVIDENCE_OF_ONE_SKIP), False)
        )
        rows = rows.filter(pc.and_(pc.not_equal(rows["verdict"], "valid"), one))
        if not len(rows):
            continue
        sought = _find_sought(rows)
        delivered = {"kind": _make_kind(_REPORTED, len(rows)), "told": rows["date"], **sought}
        yield from make_groups(with_columns(rows, delivered), FINDINGS, (*_POSITION, "code"))


def select_retracted_before(retracted: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Select ``FINDINGS`` from rows of table ``withdrawn`` of earlier runs. A step."""
    for batch in retracted:
        rows = pa.Table.from_batches([batch]).select(RETRACTED_COLUMNS)
        yield from make_groups(
            with_columns(rows, {"kind": _make_kind(_RETRACTED, len(rows))}), FINDINGS, (*_POSITION, "code")
        )


def split_not_retracted(findings: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Split sorted ``FINDINGS`` into ``findings``, ``CORRECTIONS`` of those not retracted yet, and the ``positions``
    that would correct them."""
    for rows in read_whole_groups(findings):
        before = rows.filter(pc.equal(rows["kind"], _RETRACTED)).select(_FINDING)
        selected = rows.filter(pc.equal(rows["kind"], _REPORTED))
        if len(before):
            selected = selected.join(before, [*_FINDING], join_type="left anti", use_threads=False)
        for batch in make_groups(selected, CORRECTIONS, _SOUGHT):
            yield "findings", batch
        if len(selected):
            yield "positions", pa.RecordBatch.from_arrays([pa.array(hashes(selected, _SOUGHT))], schema=POSITIONS)


@dataclass(frozen=True, eq=False)
class CorrectionReader:
    """A step: deliveries or messages of the day in canonical columns -> ``CORRECTIONS`` for the hashes in
    ``positions``, or for all."""

    positions: Ints | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            delivered = "delivered_at" in rows.column_names
            values: dict[str, Any] = {f"sought_{name}": rows[name] for name in _POSITION[1:]}
            values["at"] = rows["delivered_at" if delivered else "publish_time"]
            values["kind"] = _make_kind(_DELIVERED if delivered else _STORED, len(rows))
            rows = with_columns(rows, values).drop_columns([*_POSITION[1:]])
            rows = rows.filter(rows["at"].is_valid())
            if self.positions is not None and len(rows):
                rows = rows.filter(pa.array(np.isin(hashes(rows, _SOUGHT), self.positions)))
            yield from make_groups(rows, CORRECTIONS, _SOUGHT)


@dataclass(frozen=True)
class Retractor:
    """Splits sorted ``CORRECTIONS`` into ``withdrawn``, rows of that table in ``columns``, and their ``counted``
    totals.

    ``joins`` are those of the membership: a consumer that joins again is another consumer.
    """

    joins: pa.Table
    columns: tuple[str, ...] = tuple(RETRACTED_FINDINGS.names)

    def __call__(self, corrections: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        counted = make_retracted_counter()
        for rows in read_whole_groups(corrections):
            findings = rows.filter(pc.equal(rows["kind"], _REPORTED))
            if not len(findings):
                continue
            delivered = rows.filter(pc.equal(rows["kind"], _DELIVERED))
            stored = rows.filter(pc.equal(rows["kind"], _STORED))
            parts = (
                _correct_lost(findings, delivered),
                _correct_unknown(findings, stored),
                self._correct_skips(findings, delivered),
            )
            found = pa.concat_tables([part.select([*_FINDING, "corrected_at", "what"]) for part in parts])
            found = found.group_by(found.column_names, use_threads=False).aggregate([])
            if len(found):
                written = _make_retracted(found)
                counted.add(count_retracted(written))
                yield from (("withdrawn", batch) for batch in written.select(self.columns).to_batches())
        yield from (("counted", batch) for batch in counted.compute_sum().to_batches())

    def _correct_skips(self, findings: pa.Table, delivered: pa.Table) -> pa.Table:
        """Return the SKIP findings whose skipped message was delivered on this day to the same, continuously connected
        consumer."""
        delivered = delivered.select([*_SOUGHT, "consumer", "at"]).rename_columns({"at": "corrected_at"})
        selected = findings.filter(pc.equal(findings["code"], Code.SKIP.name))
        selected = selected.join(delivered, [*_SOUGHT, "consumer"], join_type="inner", use_threads=False)
        selected = selected.filter(pa.array(~self._has_joined_again(selected), pa.bool_()))
        what = pc.binary_join_element_wise(
            "and ",
            _format_positions(selected, _SOUGHT),
            ", which it had jumped over, was delivered to ",
            selected["consumer"],
            "",
        )
        return selected.append_column("what", what)

    def _has_joined_again(self, rows: pa.Table) -> np.ndarray:
        """Return whether a consumer joined between a finding and its correction."""
        again = np.zeros(len(rows), np.bool_)
        found, corrected = _to_micros(rows["at"]), _to_micros(rows["corrected_at"])
        consumer_partitions = zip(rows["consumer"].to_pylist(), rows["partition"].to_pylist(), strict=True)
        numbers: dict[tuple[str, int], list[int]] = {}
        for number, one in enumerate(consumer_partitions):
            numbers.setdefault(one, []).append(number)
        for (consumer, partition), some in numbers.items():
            selected = pc.equal(self.joins["consumer"], consumer)
            there = pc.or_(self.joins["partition"].is_null(), pc.equal(self.joins["partition"], partition))
            joins = np.sort(_to_micros(self.joins.filter(pc.and_(selected, pc.fill_null(there, True)))["at"]))
            first, last = (np.searchsorted(joins, at[some], "right") for at in (found, corrected))
            again[some] = (last > first) & (found[some] != UNKNOWN)
        return again


def select_joins(membership: pa.Table) -> pa.Table:
    """Select the joins of ``membership`` for ``Retractor``."""
    return membership.filter(pc.equal(membership["event"], "join")).select(["consumer", "partition", "at"])


def make_retracted_counter() -> Accumulator:
    """Return an accumulator of ``count_retracted``."""
    adding = Accumulator(_keep_first_positions)
    adding.add(COUNTED.empty_table())
    return adding


def count_retracted(retracted: pa.Table) -> pa.Table:
    """Count rows of table ``withdrawn`` (``COUNTED``)."""
    counted = retracted.select(_FINDING).append_column("count", pa.array(np.ones(len(retracted), np.int64)))
    return _keep_first_positions(counted.cast(COUNTED))


def group_retracted_by_rule(counted: pa.Table) -> list[dict[str, Any]]:
    """Group the retracted findings by rule and day, with their number and the first ``positions``."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in counted.to_pylist():
        about = {"code": row["code"], "told": row["told"], "count": 0, "positions": []}
        selected = found.setdefault((row["code"], row["told"]), about)
        selected["count"] += row["count"]
        selected["positions"].append({name: row[name] for name in _POSITION})
    return [*found.values()]


def _keep_first_positions(rows: pa.Table) -> pa.Table:
    rows = rows.sort_by([(name, "ascending") for name in ("code", "told", *_POSITION)])
    totals = rows.group_by(["code", "told"], use_threads=False).aggregate([("count", "sum"), ([], "count_all")])
    sizes, counts = ints(totals, "count_all"), ints(totals, "count_sum")
    nth = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    kept = nth < MOST_SHOWN_POSITIONS
    count = pa.array(np.where(nth == 0, np.repeat(counts, sizes), 0))
    index = rows.schema.get_field_index("count")
    return rows.set_column(index, COUNTED.field("count"), count).filter(pa.array(kept, pa.bool_())).combine_chunks()


def _correct_lost(findings: pa.Table, delivered: pa.Table) -> pa.Table:
    """Return the LOST findings of messages that were delivered on this day."""
    first = _find_earliest(delivered, "consumer")
    what = pc.binary_join_element_wise("and was delivered to ", first["consumer"], "")
    return _join_corrections(findings, Code.LOST, first, what)


def _correct_unknown(findings: pa.Table, stored: pa.Table) -> pa.Table:
    """Return the UNKNOWN_MESSAGE findings of messages that this day's log contains."""
    at = stored.group_by([*_SOUGHT], use_threads=False).aggregate([("at", "min")]).rename_columns([*_SOUGHT, "at"])
    named = _find_earliest(stored.filter(stored["producer"].is_valid()), "producer", by=("producer",))
    first = at.join(named.select([*_SOUGHT, "producer"]), [*_SOUGHT], use_threads=False)
    by = pc.fill_null(pc.binary_join_element_wise(" by ", first["producer"], ""), "")
    return _join_corrections(
        findings, Code.UNKNOWN_MESSAGE, first, pc.binary_join_element_wise("and was published", by, "")
    )


def _find_earliest(rows: pa.Table, name: str, by: tuple[str, ...] = ("at",)) -> pa.Table:
    """Return the first row of each message."""
    order = [(column, "ascending") for column in dict.fromkeys((*by, name))]
    rows = rows.take(pc.sort_indices(rows, order)).append_column("row", pa.array(np.arange(len(rows))))
    first = rows.group_by([*_SOUGHT], use_threads=False).aggregate([("row", "min")])
    return rows.take(first["row_min"]).select([*_SOUGHT, "at", name])


def _join_corrections(findings: pa.Table, code: Code, first: pa.Table, what: pa.ChunkedArray) -> pa.Table:
    selected = findings.filter(pc.equal(findings["code"], code.name))
    by = first.select([*_SOUGHT, "at"]).rename_columns({"at": "corrected_at"}).append_column("what", what)
    return selected.join(by, [*_SOUGHT], join_type="inner", use_threads=False)


def _make_retracted(found: pa.Table) -> pa.Table:
    """Make rows of table ``withdrawn``."""
    at = pc.strftime(found["corrected_at"].cast(pa.timestamp("us")), "%Y-%m-%d %H:%M:%S")
    at = pc.replace_substring_regex(at, r"\.?0*$", "")
    explanation = pc.binary_join_element_wise(
        _format_positions(found, _POSITION), " was reported as ", found["code"], " on ",
        found["told"].cast(pa.string()), " ", found["what"], " at ", at, "",
    )  # fmt: skip
    delivered = {"at": found["corrected_at"], "explanation": explanation}
    return with_columns(found, delivered).select(RETRACTED_FINDINGS.names).cast(RETRACTED_FINDINGS).combine_chunks()


def _find_sought(rows: pa.Table) -> dict[str, pa.ChunkedArray]:
    """Return the message that would correct a finding: its own message, or the skipped one of a SKIP."""
    skips = pc.equal(rows["code"], Code.SKIP.name)
    skipped = pc.if_else(skips, pc.list_element(_pad_lists(rows["witness"]), 1), None)
    parts = pc.extract_regex(skipped, r"^(?P<ledger>-?\d+):(?P<entry>-?\d+)(?:\[(?P<batch_index>\d+)\])?$")
    found = {}
    for name in _POSITION[1:]:
        text = pc.struct_field(parts, name)
        text = pc.if_else(pc.equal(text, ""), "-1", text)
        found[f"sought_{name}"] = pc.if_else(skips, text.cast(rows.schema.field(name).type), rows[name])
    return found


def _pad_lists(lists: pa.ChunkedArray) -> pa.ChunkedArray:
    """Pad lists to at least two elements."""
    short = pc.less(pc.fill_null(pc.list_value_length(lists), 0), EVIDENCE_OF_ONE_SKIP)
    return pc.if_else(short, pa.scalar(["", ""], lists.type), lists)


def _format_positions(rows: pa.Table, names: tuple[str, ...]) -> pa.ChunkedArray:
    """Format positions as findings name them."""
    ledger, entry, batch_index = (rows[name] for name in names[1:])
    index = pc.binary_join_element_wise("[", batch_index.cast(pa.string()), "]", "")
    batched = pc.if_else(pc.greater_equal(batch_index, 0), index, "")
    return pc.binary_join_element_wise(ledger.cast(pa.string()), ":", entry.cast(pa.string()), batched, "")


def _to_micros(times: pa.ChunkedArray) -> Ints:
    return np.asarray(pc.fill_null(times.cast(pa.int64()), UNKNOWN))


def _make_kind(kind: int, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(kind, pa.int8()), rows)
