"""What an audit counts of judged rows and findings: by a task of its rows, and by the driver of what tasks counted.

Times and windows are in ns; nulls come first where rows are in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.audit.codes import Code, Exemption, find_exemption
from subreplay.audit.passes.loads import ACT, ADDED, ALL_TIME, REPEATED, Span
from subreplay.rows.groups import AddingUp, in_order, with_columns
from subreplay.rows.model.columns import Ints, flags, ints

Rows = list[dict[str, Any]]
TOTALS: Final = {
    "deliveries": "messages", "messages": "firsts",
    **{name: name for name in ("undelivered", "outside", "at_owner", "in_transition", "batched", "entries")},
    **{name: name for name in ("by_receipt", *REPEATED)},
}  # fmt: skip
"""Headline figures, and the columns of ``LOAD`` rows that add up to them."""
IN_TIME: Final = ("at", "topic", "partition", "ledger", "entry", "batch_index")
"""The columns by which findings are in order of time."""
_EARLY: Final = {"at_consumer": "consumer", "in_window": "window"}
_CHOSEN_BY: Final = ("code", "fails", "turn", *_EARLY)
_OF_FAILING: Final = ("code", "consumer", "cause")
_OF_COUNTS: Final = ("window", "code", "excuse", "consumer")


NOT_OF_DELIVERIES: Final = (
    Code.KEY_TWO_PARTITIONS, Code.STICKY_GAP, Code.STICKY_OVERLAP, Code.DLQ_ORDER, Code.DLQ_INCOMPLETE,
    Code.TWO_OWNERS, Code.TOLD_DIFFERS, Code.OWNER_DIFFERS,
)  # fmt: skip
"""Rules whose findings are not about one delivery."""


COUNTS: Final = pa.schema(
    {"window": pa.int64(), "consumer": pa.string(), "code": pa.string(), "excuse": pa.int32(), "count": pa.int64()}
)
"""``finding_counts``, and ``counts_of_others``."""
PANES: Final = pa.schema(
    [
        pa.field("pane", pa.int64()),
        pa.field("code", pa.string(), nullable=False),
        pa.field("consumer", pa.string()),
        pa.field("cause", pa.string(), nullable=False),
        pa.field("count", pa.int64()),
    ]
)
"""``panes``."""


def adding_counts() -> AddingUp:
    """Adds up ``finding_counts``, or ``counts_of_others``."""
    return _adding(COUNTS)


def adding_panes() -> AddingUp:
    """Adds up ``panes``."""
    return _adding(PANES)


def _adding(counts: pa.Schema) -> AddingUp:
    by = [name for name in counts.names if name != "count"]
    adding = AddingUp(lambda rows: _summed(rows, by, ["count"]).cast(counts))
    adding.add(counts.empty_table())
    return adding


def totals(sums: pa.Table) -> dict[str, int]:
    """The headline figures of an audit; ``sums`` are ``LOAD`` rows."""
    mine = sums.filter(pc.equal(sums["width"], ALL_TIME.width))
    found = {name: pc.sum(mine[column]).as_py() for name, column in TOTALS.items()}
    found |= {"first": pc.min(mine["begin"]).as_py(), "last": pc.max(mine["end"]).as_py()}
    return {name: 0 if value is None else value for name, value in found.items()}


def consumers(sums: pa.Table) -> Rows:
    """What each consumer was given in all: messages, bytes, keys of each topic partition, redeliveries."""
    mine = sums.filter(pc.and_(pc.equal(sums["width"], ALL_TIME.width), sums["consumer"].is_valid()))
    return _rows(in_order(_summed(mine, ["consumer"], (*ADDED, "keys")), "consumer"))


def lags(sums: pa.Table) -> Rows:
    """The lags of each consumer, counted by size (``audit.clocks.may_be_off``)."""
    mine, by = sums.filter(pc.not_equal(sums["lag"], ACT)), ["consumer", "lag", "size"]
    return _rows(in_order(_summed(mine, by, ["messages"]), *by))


def fits(sums: pa.Table) -> Rows:
    """How many deliveries are at their owners under each selector that was compared (``audit.selectors``)."""
    mine = sums.filter(sums["selector"].is_valid())
    return _rows(in_order(_summed(mine, ["selector"], ["outside", "at_owner"]), "selector"))


def acts(sums: pa.Table) -> Rows:
    """What acts of operators and clients had redelivered (``passes.loads.ACT``), in order of time."""
    mine = sums.filter(pc.equal(sums["lag"], ACT))
    names = ("pane", "consumer", "messages", "redelivered", "begin", "end")
    return _rows(in_order(mine.select(names), "pane", "consumer"))


def loads(sums: pa.Table, span: Span) -> pa.Table:
    """What each consumer was given in each window of a span."""
    mine = sums.filter(pc.and_(pc.equal(sums["width"], span.width), pc.equal(sums["slide"], span.slide)))
    panes = _in_windows(_summed(mine, ["consumer", "pane", "first"], (*ADDED, "keys")), span.width, span.slide)
    counted = pc.greater_equal(panes["window"], panes["first"])
    return summed_loads(with_columns(panes, {"keys": pc.if_else(counted, panes["keys"], 0)}))


def summed_loads(loads: pa.Table) -> pa.Table:
    """Loads by window and consumer, those of the same added up."""
    return in_order(_summed(loads, ["window", "consumer"], (*ADDED, "keys")), "window", "consumer")


def assignments(loads: pa.Table, intervals: Iterable[tuple[int, int, int]], width: int) -> pa.Table:
    """Loads by window with share and skew: 1 is perfect balance among the most consumers connected at once in that
    window; ``intervals`` tell from when (ns) until when how many were."""
    windows = ints(loads, "window")
    distinct, number = np.unique(windows, return_inverse=True)
    most = np.full(len(distinct), -1, np.int64)
    for start, end, members in intervals:
        first, last = np.searchsorted(distinct + width, start, "right"), np.searchsorted(distinct, end, "left")
        np.maximum(most[first:last], members, out=most[first:last])
    messages = ints(loads, "messages")
    of_window = np.zeros(len(distinct), np.int64)
    np.add.at(of_window, number, messages)
    share, connected = messages / of_window[number], most[number]
    told = {
        "connected": pa.array(connected.astype(np.int32), mask=connected < 0),
        "share": share,
        "skew": share * np.where(connected < 0, 1, connected),
    }
    return _bounds(with_columns(loads, told), width)


def panes(found: pa.Table, slide: int) -> pa.Table:
    """Failing findings of table ``violations``, counted by pane of a slide, code, consumer and cause."""
    failing = found.filter(pc.not_equal(found["verdict"], "valid"))
    return _counted(
        with_columns(failing, {"pane": _floor(_nanos(failing, "moment"), slide)}), ["pane", *_OF_FAILING]
    ).cast(PANES)


def violations(panes: pa.Table, width: int, slide: int) -> pa.Table:
    """The same by window."""
    counts = _summed(_in_windows(panes, width, slide), ["window", *_OF_FAILING], ["count"])
    return _bounds(in_order(counts, "window", *_OF_FAILING), width)


def finding_counts(rows: pa.Table, applicable: int, width: int) -> pa.Table:
    """Findings of judged rows counted by window, consumer, code and excuse: all of them, whether they fail or not."""
    codes, exemptions = ints(rows, "codes"), ints(rows, "excuses")
    window = _floor(np.where(flags(rows, "delivered"), ints(rows, "at"), ints(rows, "published")), width)
    parts = []
    for code in Code:
        mine = np.flatnonzero(codes & code.bit) if applicable & code.bit else np.zeros(0, np.int64)
        if len(mine):
            distinct, which = np.unique(exemptions[mine], return_inverse=True)
            of_each = np.array([find_exemption(code, exemption).value for exemption in distinct.tolist()], np.int32)
            consumer = rows["consumer"].take(pa.array(mine))
            parts.append(_findings(window[mine], consumer, pa.repeat(code.name, len(mine)), of_each[which]))
    return _counts(parts)


def counts_of_others(found: pa.Table, width: int) -> pa.Table:
    """Findings of table ``violations`` that are ``NOT_OF_DELIVERIES``, counted alike; with them those of messages
    without a key in a wrong partition, which are about their producer and name no consumer."""
    stray = pc.and_(pc.equal(found["code"], Code.ROUTING_MISMATCH.name), found["consumer"].is_null())
    stray = pc.and_(stray, found["at"].is_valid())
    mine = found.filter(pc.or_(pc.is_in(found["code"], pa.array([code.name for code in NOT_OF_DELIVERIES])), stray))
    told = [exemption for exemption in Exemption if exemption]
    exemption_numbers = pc.index_in(mine["excuse"], pa.array([exemption.sentence for exemption in told]))
    values = np.array([*(exemption.value for exemption in told), Exemption.NONE.value], np.int32)
    exemption = values[np.asarray(exemption_numbers.fill_null(len(told)))]
    return _counts([_findings(_floor(_nanos(mine, "moment"), width), mine["consumer"], mine["code"], exemption)])


def scattered_keys(rows: pa.Table) -> tuple[int, int]:
    """Keys that reached several consumers within one epoch, and keys in all: what mixed batches do to a steady
    group."""
    given = rows.filter(pc.and_(rows["delivered"], rows["key"].is_valid()))
    of_epoch = given.group_by(["key", "epoch"], use_threads=False).aggregate([("consumer", "count_distinct")])
    of_key = of_epoch.group_by(["key"], use_threads=False).aggregate([("consumer_count_distinct", "max")])
    return int(np.count_nonzero(ints(of_key, "consumer_count_distinct_max") > 1)), len(of_key)


def counts_in_order(counts: pa.Table) -> pa.Table:
    """Finding counts in order, of which there is one about the same."""
    return in_order(counts, *_OF_COUNTS)


def coarser(counts: pa.Table, width: int) -> Rows:
    """Finding counts summed into windows of ``width`` ns."""
    return _rows(counts_in_order(_summed(in_windows_of(counts, width), _OF_COUNTS, ["count"])))


def in_windows_of(counts: pa.Table, width: int) -> pa.Table:
    """Finding counts, each with the window of ``width`` ns that it is in."""
    return with_columns(counts, {"window": _floor(ints(counts, "window"), width)})


def first(found: pa.Table, few: int, width: int, most: int) -> pa.Table:
    """The rows of table ``violations`` that ``worst`` may take once others are added: of all rows, it takes the same as
    of the ``first`` of each part of them. Of each rule these are at most five times ``most``.

    ``worst`` takes failing rows before others, then by ``turn``: once so many rows come earlier, none of the next turn
    is taken. Of the turn where that happens it takes those that are ``early`` at their consumer or in their window; of
    consumers, of windows and of the rows of each there are never fewer when others are added.
    """
    rows = _early(_turns(found, width), few)
    codes, fails, turns, at_consumer, in_window = (_numbered(rows, name) for name in _CHOSEN_BY)
    order = np.lexsort([turns, ~fails.astype(np.bool_), codes])  # stable: those of a turn stay in order of time
    starts = np.flatnonzero(_changes(codes[order], fails[order], turns[order]))
    kept, before, left = [], -1, 0
    for some in np.split(order, starts[1:]):
        if len(some) and codes[some[0]] != before:
            before, left = int(codes[some[0]]), most
        taken = some if len(some) <= left else some[_earliest(at_consumer[some], in_window[some], left)]
        kept.append(taken)
        left = max(0, left - len(some))
    return found.take(rows["row"].take(pa.array(np.sort(np.concatenate(kept)))))


def _earliest(at_consumer: Ints, in_window: Ints, most: int) -> Ints:
    """Of rows of one turn, in order of time, those among which the ``most`` earliest are: their numbers at their
    consumer and in their window say how early."""
    if not most:
        return np.zeros(0, np.int64)
    numbers = (at_consumer, in_window)
    last = min(int(np.partition(nth, most - 1)[most - 1]) for nth in numbers)
    chosen = np.flatnonzero(np.minimum(*numbers) <= last)
    if last > 1:
        return chosen
    ends = (np.searchsorted(np.cumsum(nth[chosen] == 1), most) for nth in numbers)
    return chosen[: int(min(ends)) + 1]


def worst(found: pa.Table, few: int, width: int, most: int) -> Rows:
    """At most ``most`` rows of table ``violations``, times in ns: those that ``reports.sample.in_turn`` takes first. Of
    each rule, consumer and window of ``width`` ns, at most ``few``."""
    rows = _early(_turns(found, width), few)
    rows = with_columns(rows, {"early": np.minimum(ints(rows, "at_consumer"), ints(rows, "in_window"))})
    taken = [("fails", "descending"), ("turn", "ascending"), ("early", "ascending")]
    rows = rows.take(pc.sort_indices(with_columns(rows, {"nth": np.arange(len(rows))}), [*taken, ("nth", "ascending")]))
    rows = in_order(with_columns(rows, {"rank": _nth(rows, "code")}), "rank", "code").slice(0, most)
    told = ("at", "window", "fails", "turn", "early", "rank")
    return _rows(with_columns(found.take(rows["row"]), {name: rows[name] for name in told}))


def _turns(found: pa.Table, width: int) -> pa.Table:
    """What says which rows of table ``violations`` are told: their number (``row``), in order of time; ``turn`` is the
    number of each among those of its rule, consumer and window that fail, or do not."""
    at = pa.array(_nanos(found, "at"), mask=np.asarray(found["at"].is_null()))
    fails = pc.not_equal(found["verdict"], "valid")
    mine = found.select(["code", "consumer", *IN_TIME[1:]])
    rows = with_columns(
        mine, {"at": at, "window": _floor(_nanos(found, "moment"), width), "fails": fails, "row": np.arange(len(found))}
    )
    rows = in_order(rows, *IN_TIME)
    return with_columns(rows, {"turn": _nth(rows, "code", "fails", "consumer", "window")})


def _early(rows: pa.Table, few: int) -> pa.Table:
    """The first ``few`` turns, with the number of each row among those of its turn at its consumer, and in its
    window."""
    rows = rows.filter(pc.less_equal(rows["turn"], few))
    early = {name: _nth(rows, "code", "fails", "turn", of) for name, of in _EARLY.items()}
    return with_columns(rows, early)


def _numbered(rows: pa.Table, name: str) -> Ints:
    """A column as whole numbers: texts as the places of their first rows."""
    values = rows[name].combine_chunks()
    return np.asarray(
        values.dictionary_encode().indices if pa.types.is_string(values.type) else values.cast(pa.int64())
    )


def _changes(*columns: Ints) -> np.ndarray:
    """Whether a row differs from the one before it."""
    changes = np.ones(len(columns[0]), np.bool_)
    changes[1:] = np.logical_or.reduce([values[1:] != values[:-1] for values in columns])
    return changes


def _rows(table: pa.Table) -> Rows:
    rows: Rows = table.to_pylist()
    return rows


def _findings(window: Ints, consumer: pa.Array, code: pa.Array, exemption: np.ndarray) -> pa.Table:
    return pa.table({"window": window, "consumer": consumer, "code": code, "excuse": exemption})


def _counts(parts: Sequence[pa.Table]) -> pa.Table:
    by = pa.schema([field for field in COUNTS if field.name != "count"])
    return counts_in_order(_counted(pa.concat_tables([by.empty_table(), *parts]), by.names)).cast(COUNTS)


def _counted(rows: pa.Table, by: Sequence[str]) -> pa.Table:
    return _summed(with_columns(rows, {"count": np.ones(len(rows), np.int64)}), by, ["count"])


def _summed(rows: pa.Table, by: Sequence[str], added: Sequence[str]) -> pa.Table:
    found = rows.group_by([*by], use_threads=False).aggregate([(name, "sum") for name in added])
    return found.select([*by, *(f"{name}_sum" for name in added)]).rename_columns([*by, *added])


def _in_windows(panes: pa.Table, width: int, slide: int) -> pa.Table:
    """Counts by pane, once for each window that has the pane."""
    each = width // slide
    rows = panes.take(pa.array(np.repeat(np.arange(len(panes)), each)))
    later = np.tile(np.arange(each) * slide - (width - slide), len(panes))
    return with_columns(rows, {"window": ints(rows, "pane") + later})


def _bounds(windows: pa.Table, width: int) -> pa.Table:
    """Windows, known by their start, with both ends; those that tumble do not overlap one another."""
    start = ints(windows, "window")
    ends = {"window_start": start, "window_end": start + width}
    as_time = {name: pa.array(at // 1_000).cast(pa.timestamp("us", "UTC")) for name, at in ends.items()}
    return with_columns(windows, {**as_time, "tumbling": start % width == 0})


def _floor(at: Ints, width: int) -> Ints:
    """The starts of the tumbling windows that hold times."""
    return at - at % width


def _nanos(rows: pa.Table, name: str) -> Ints:
    """A column of timestamps in ns; 0 for null."""
    return ints(with_columns(rows, {name: rows[name].cast(pa.timestamp("us", "UTC"))}), name, 0) * 1_000


def _nth(rows: pa.Table, *group: str) -> Ints:
    """The number of each row among those of its group, from 1, in the order in which they stand."""
    codes = [np.asarray(pc.fill_null(rows[name].combine_chunks().dictionary_encode().indices, -1)) for name in group]
    order = np.lexsort([np.arange(len(rows)), *codes])
    begins = _changes(*(code[order] for code in codes))
    first = np.maximum.accumulate(np.where(begins, np.arange(len(rows)), 0))
    nth = np.empty(len(rows), np.int64)
    nth[order] = np.arange(len(rows)) - first + 1
    return nth
