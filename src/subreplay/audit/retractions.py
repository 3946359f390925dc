"""Retract findings of earlier daily runs that a day's data correct: exchanges by position.

A message that was reported LOST has come; one that was delivered as UNKNOWN_MESSAGE stands in the log; the only one
that a consumer's stream jumped over (SKIP) was given to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.audit.codes import Code
from subreplay.rows.groups import AddingUp, hashes, in_groups, whole_groups, with_columns
from subreplay.rows.model.columns import UNKNOWN, Ints, ints
from subreplay.rows.model.tables import TIME, WITHDRAWN
from subreplay.rows.sorted_blocks import grouped

CODES: Final = (Code.LOST, Code.UNKNOWN_MESSAGE, Code.SKIP)
"""Rules whose findings may be retracted."""
ONE_SKIPPED: Final = 2
"""Pieces of evidence of a SKIP: the delivery, and the message that was jumped over; a third one names others."""
NAMED: Final = 8
"""Retracted findings of a rule and day whose positions a report shows, beside how many there are."""
MOST_POSITIONS: Final = 1 << 20
"""Positions of findings whose hashes are looked for in the day's rows; of more, every row is exchanged."""
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
    pa.field("told", pa.date32()),  # on which day
    # the message that would correct it
    pa.field("sought_ledger", pa.int64()),
    pa.field("sought_entry", pa.int64()),
    pa.field("sought_batch_index", pa.int32()),
    pa.field("consumer", pa.string()),
    pa.field("at", TIME),
    pa.field("producer", pa.string()),
]
FINDINGS: Final = grouped(pa.schema(_FIELDS), then=("kind",))
"""Findings of earlier runs, and those that were retracted since, grouped by what they are about."""
CORRECTIONS: Final = grouped(pa.schema(_FIELDS), then=("kind",), last=("consumer",))
"""Findings, deliveries and messages, grouped by the message that is sought."""
COUNTED: Final = pa.schema(
    [*(field for field in WITHDRAWN if field.name in _FINDING), pa.field("count", pa.int64(), nullable=False)]
)
"""The first positions of each rule and day; the first of them has how many there are, the others 0."""


def findings_to_retract(violations: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A step: rows of table ``violations`` of ``CODES`` -> ``FINDINGS`` that fail, and may be corrected."""
    for batch in violations:
        rows = pa.Table.from_batches([batch])
        pieces = pc.list_value_length(rows["witness"])
        one = pc.or_(pc.not_equal(rows["code"], Code.SKIP.name), pc.fill_null(pc.equal(pieces, ONE_SKIPPED), False))
        rows = rows.filter(pc.and_(pc.not_equal(rows["verdict"], "valid"), one))
        if not len(rows):
            continue
        sought = _sought(rows)
        given = {"kind": _kind(_REPORTED, len(rows)), "told": rows["date"], **sought}
        yield from in_groups(with_columns(rows, given), FINDINGS, (*_POSITION, "code"))


def retracted_before(withdrawn: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A step: rows of table ``withdrawn`` of earlier runs -> ``FINDINGS``."""
    for batch in withdrawn:
        rows = pa.Table.from_batches([batch]).select(RETRACTED_COLUMNS)
        yield from in_groups(with_columns(rows, {"kind": _kind(_RETRACTED, len(rows))}), FINDINGS, (*_POSITION, "code"))


def not_retracted(findings: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Split ``FINDINGS`` in order into ``findings``, ``CORRECTIONS`` of those that were not retracted yet, and the
    ``positions`` that are sought."""
    for rows in whole_groups(findings):
        before = rows.filter(pc.equal(rows["kind"], _RETRACTED)).select(_FINDING)
        mine = rows.filter(pc.equal(rows["kind"], _REPORTED))
        if len(before):
            mine = mine.join(before, [*_FINDING], join_type="left anti", use_threads=False)
        for batch in in_groups(mine, CORRECTIONS, _SOUGHT):
            yield "findings", batch
        if len(mine):
            yield "positions", pa.RecordBatch.from_arrays([pa.array(hashes(mine, _SOUGHT))], schema=POSITIONS)


@dataclass(frozen=True, eq=False)
class Corrections:
    """A step: deliveries of the day, or its messages, in the canonical columns -> ``CORRECTIONS``; those whose hash is
    in ``positions``, or all."""

    positions: Ints | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            delivered = "delivered_at" in rows.column_names
            given: dict[str, Any] = {f"sought_{name}": rows[name] for name in _POSITION[1:]}
            given["at"] = rows["delivered_at" if delivered else "publish_time"]
            given["kind"] = _kind(_DELIVERED if delivered else _STORED, len(rows))
            rows = with_columns(rows, given).drop_columns([*_POSITION[1:]])
            rows = rows.filter(rows["at"].is_valid())
            if self.positions is not None and len(rows):
                rows = rows.filter(pa.array(np.isin(hashes(rows, _SOUGHT), self.positions)))
            yield from in_groups(rows, CORRECTIONS, _SOUGHT)


@dataclass(frozen=True)
class Retract:
    """Splits ``CORRECTIONS`` in order into ``withdrawn``, rows of that table in ``columns``, and what is ``counted`` of
    them. ``joins`` are the membership's: who joins anew is another consumer."""

    joins: pa.Table
    columns: tuple[str, ...] = tuple(WITHDRAWN.names)

    def __call__(self, corrections: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        counted = adding_retracted()
        for rows in whole_groups(corrections):
            findings = rows.filter(pc.equal(rows["kind"], _REPORTED))
            if not len(findings):
                continue
            given = rows.filter(pc.equal(rows["kind"], _DELIVERED))
            stored = rows.filter(pc.equal(rows["kind"], _STORED))
            parts = (_came(findings, given), _published(findings, stored), self._skipped(findings, given))
            found = pa.concat_tables([part.select([*_FINDING, "corrected_at", "what"]) for part in parts])
            found = found.group_by(found.column_names, use_threads=False).aggregate([])
            if len(found):
                written = _written(found)
                counted.add(counted_retracted(written))
                yield from (("withdrawn", batch) for batch in written.select(self.columns).to_batches())
        yield from (("counted", batch) for batch in counted.together().to_batches())

    def _skipped(self, findings: pa.Table, given: pa.Table) -> pa.Table:
        """SKIP of messages that the day gave to the consumer that had not been given them, which has been there without
        a break."""
        given = given.select([*_SOUGHT, "consumer", "at"]).rename_columns({"at": "corrected_at"})
        mine = findings.filter(pc.equal(findings["code"], Code.SKIP.name))
        mine = mine.join(given, [*_SOUGHT, "consumer"], join_type="inner", use_threads=False)
        mine = mine.filter(pa.array(~self._joined_again(mine), pa.bool_()))
        what = pc.binary_join_element_wise(
            "and ", _words(mine, _SOUGHT), ", which it had jumped over, was delivered to ", mine["consumer"], ""
        )
        return mine.append_column("what", what)

    def _joined_again(self, rows: pa.Table) -> np.ndarray:
        """Whether a consumer joined between a finding and what corrects it."""
        again = np.zeros(len(rows), np.bool_)
        found, corrected = _micros(rows["at"]), _micros(rows["corrected_at"])
        whose = zip(rows["consumer"].to_pylist(), rows["partition"].to_pylist(), strict=True)
        numbers: dict[tuple[str, int], list[int]] = {}
        for number, one in enumerate(whose):
            numbers.setdefault(one, []).append(number)
        for (consumer, partition), some in numbers.items():
            mine = pc.equal(self.joins["consumer"], consumer)
            there = pc.or_(self.joins["partition"].is_null(), pc.equal(self.joins["partition"], partition))
            joins = np.sort(_micros(self.joins.filter(pc.and_(mine, pc.fill_null(there, True)))["at"]))
            first, last = (np.searchsorted(joins, at[some], "right") for at in (found, corrected))
            again[some] = (last > first) & (found[some] != UNKNOWN)
        return again


def joins_of(membership: pa.Table) -> pa.Table:
    """The joins of ``membership``, as ``Retract`` needs them."""
    return membership.filter(pc.equal(membership["event"], "join")).select(["consumer", "partition", "at"])


def adding_retracted() -> AddingUp:
    """Adds up ``counted_retracted``."""
    adding = AddingUp(_first_positions)
    adding.add(COUNTED.empty_table())
    return adding


def counted_retracted(withdrawn: pa.Table) -> pa.Table:
    """``COUNTED`` of rows of table ``withdrawn``."""
    counted = withdrawn.select(_FINDING).append_column("count", pa.array(np.ones(len(withdrawn), np.int64)))
    return _first_positions(counted.cast(COUNTED))


def retracted_by_rule(counted: pa.Table) -> list[dict[str, Any]]:
    """Retracted findings by rule and day: how many there are, and the first ``positions``."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in counted.to_pylist():
        about = {"code": row["code"], "told": row["told"], "count": 0, "positions": []}
        mine = found.setdefault((row["code"], row["told"]), about)
        mine["count"] += row["count"]
        mine["positions"].append({name: row[name] for name in _POSITION})
    return [*found.values()]


def _first_positions(rows: pa.Table) -> pa.Table:
    rows = rows.sort_by([(name, "ascending") for name in ("code", "told", *_POSITION)])
    totals = rows.group_by(["code", "told"], use_threads=False).aggregate([("count", "sum"), ([], "count_all")])
    sizes, counts = ints(totals, "count_all"), ints(totals, "count_sum")
    nth = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    kept = nth < NAMED
    count = pa.array(np.where(nth == 0, np.repeat(counts, sizes), 0))
    index = rows.schema.get_field_index("count")
    return rows.set_column(index, COUNTED.field("count"), count).filter(pa.array(kept, pa.bool_())).combine_chunks()


def _came(findings: pa.Table, given: pa.Table) -> pa.Table:
    """LOST of messages that the day delivered."""
    first = _earliest(given, "consumer")
    what = pc.binary_join_element_wise("and was delivered to ", first["consumer"], "")
    return _corrected(findings, Code.LOST, first, what)


def _published(findings: pa.Table, stored: pa.Table) -> pa.Table:
    """UNKNOWN_MESSAGE of messages that the day has."""
    at = stored.group_by([*_SOUGHT], use_threads=False).aggregate([("at", "min")]).rename_columns([*_SOUGHT, "at"])
    named = _earliest(stored.filter(stored["producer"].is_valid()), "producer", by=("producer",))
    first = at.join(named.select([*_SOUGHT, "producer"]), [*_SOUGHT], use_threads=False)
    by = pc.fill_null(pc.binary_join_element_wise(" by ", first["producer"], ""), "")
    return _corrected(findings, Code.UNKNOWN_MESSAGE, first, pc.binary_join_element_wise("and was published", by, ""))


def _earliest(rows: pa.Table, name: str, by: tuple[str, ...] = ("at",)) -> pa.Table:
    """The first row of each message."""
    order = [(column, "ascending") for column in dict.fromkeys((*by, name))]
    rows = rows.take(pc.sort_indices(rows, order)).append_column("row", pa.array(np.arange(len(rows))))
    first = rows.group_by([*_SOUGHT], use_threads=False).aggregate([("row", "min")])
    return rows.take(first["row_min"]).select([*_SOUGHT, "at", name])


def _corrected(findings: pa.Table, code: Code, first: pa.Table, what: pa.ChunkedArray) -> pa.Table:
    mine = findings.filter(pc.equal(findings["code"], code.name))
    by = first.select([*_SOUGHT, "at"]).rename_columns({"at": "corrected_at"}).append_column("what", what)
    return mine.join(by, [*_SOUGHT], join_type="inner", use_threads=False)


def _written(found: pa.Table) -> pa.Table:
    """Rows of table ``withdrawn``."""
    at = pc.strftime(found["corrected_at"].cast(pa.timestamp("us")), "%Y-%m-%d %H:%M:%S")
    at = pc.replace_substring_regex(at, r"\.?0*$", "")
    explanation = pc.binary_join_element_wise(
        _words(found, _POSITION), " was told ", found["code"], " on ", found["told"].cast(pa.string()), " ",
        found["what"], " at ", at, "",
    )  # fmt: skip
    given = {"at": found["corrected_at"], "explanation": explanation}
    return with_columns(found, given).select(WITHDRAWN.names).cast(WITHDRAWN).combine_chunks()


def _sought(rows: pa.Table) -> dict[str, pa.ChunkedArray]:
    """The message that would correct a finding: that which it is about, or of a SKIP that which was jumped over."""
    skips = pc.equal(rows["code"], Code.SKIP.name)
    skipped = pc.if_else(skips, pc.list_element(_two(rows["witness"]), 1), None)
    parts = pc.extract_regex(skipped, r"^(?P<ledger>-?\d+):(?P<entry>-?\d+)(?:\[(?P<batch_index>\d+)\])?$")
    found = {}
    for name in _POSITION[1:]:
        text = pc.struct_field(parts, name)
        text = pc.if_else(pc.equal(text, ""), "-1", text)
        found[f"sought_{name}"] = pc.if_else(skips, text.cast(rows.schema.field(name).type), rows[name])
    return found


def _two(lists: pa.ChunkedArray) -> pa.ChunkedArray:
    """Lists with at least two elements."""
    short = pc.less(pc.fill_null(pc.list_value_length(lists), 0), ONE_SKIPPED)
    return pc.if_else(short, pa.scalar(["", ""], lists.type), lists)


def _words(rows: pa.Table, names: tuple[str, ...]) -> pa.ChunkedArray:
    """Positions as findings name them."""
    ledger, entry, batch_index = (rows[name] for name in names[1:])
    index = pc.binary_join_element_wise("[", batch_index.cast(pa.string()), "]", "")
    batched = pc.if_else(pc.greater_equal(batch_index, 0), index, "")
    return pc.binary_join_element_wise(ledger.cast(pa.string()), ":", entry.cast(pa.string()), batched, "")


def _micros(times: pa.ChunkedArray) -> Ints:
    return np.asarray(pc.fill_null(times.cast(pa.int64()), UNKNOWN))


def _kind(kind: int, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(kind, pa.int8()), rows)
