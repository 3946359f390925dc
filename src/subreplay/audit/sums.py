"""Count judged rows and findings: in a task for its rows, and in the driver for all tasks.

Times and windows are in ns. Nulls come first in sorted rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.audit.codes import Code, Exemption, find_exemption
from subreplay.audit.passes.loads import ACT, ADDED, ALL_TIME, REPEATED, Span
from subreplay.rows.groups import Accumulator, sort_table, with_columns
from subreplay.rows.model.columns import Ints, flags, ints

Rows = list[dict[str, Any]]
TOTALS: Final = {
    "deliveries": "messages", "messages": "firsts",
    **{name: name for name in ("undelivered", "outside", "at_owner", "in_transition", "batched", "entries")},
    **{name: name for name in ("by_receipt", *REPEATED)},
}  # fmt: skip
"""Headline figures, and the columns of ``LOAD`` rows that add up to them."""
IN_TIME: Final = ("at", "topic", "partition", "ledger", "entry", "batch_index")
"""The columns that sort findings in order of time."""
_EARLY_COLUMNS: Final = {"at_consumer": "consumer", "in_window": "window"}
_CHOICE_COLUMNS: Final = ("code", "fails", "turn", *_EARLY_COLUMNS)
_FAILING_COLUMNS: Final = ("code", "consumer", "cause")
_COUNT_COLUMNS: Final = ("window", "code", "excuse", "consumer")


NOT_ABOUT_DELIVERIES: Final = (
    Code.KEY_TWO_PARTITIONS, Code.STICKY_GAP, Code.STICKY_OVERLAP, Code.DLQ_ORDER, Code.DLQ_INCOMPLETE,
    Code.TWO_OWNERS, Code.TOLD_DIFFERS, Code.OWNER_DIFFERS,
)  # fmt: skip
"""Rules whose findings are not about one delivery."""


COUNTS: Final = pa.schema(
    {"window": pa.int64(), "consumer": pa.string(), "code": pa.string(), "excuse": pa.int32(), "count": pa.int64()}
)
"""``count_by_window`` and ``count_others_by_window``."""
PANES: Final = pa.schema(
    [
        pa.field("pane", pa.int64()),
        pa.field("code", pa.string(), nullable=False),
        pa.field("consumer", pa.string()),
        pa.field("cause", pa.string(), nullable=False),
        pa.field("count", pa.int64()),
    ]
)
"""``count_panes``."""


def make_count_adder() -> Accumulator:
    """Return an accumulator of ``count_by_window`` and ``count_others_by_window``."""
    return _make_adder(COUNTS)


def make_pane_adder() -> Accumulator:
    """Return an accumulator of ``count_panes``."""
    return _make_adder(PANES)


def _make_adder(counts: pa.Schema) -> Accumulator:
    by = [name for name in counts.names if name != "count"]
    adding = Accumulator(lambda rows: _sum_by(rows, by, ["count"]).cast(counts))
    adding.add(counts.empty_table())
    return adding


def sum_totals(sums: pa.Table) -> dict[str, int]:
    """Return the headline figures of an audit. ``sums`` are ``LOAD`` rows."""
    selected = sums.filter(pc.equal(sums["width"], ALL_TIME.width))
    found = {name: pc.sum(selected[column]).as_py() for name, column in TOTALS.items()}
    found |= {"first": pc.min(selected["begin"]).as_py(), "last": pc.max(selected["end"]).as_py()}
    return {name: 0 if value is None else value for name, value in found.items()}


def sum_consumers(sums: pa.Table) -> Rows:
    """Return the totals of each consumer: messages, bytes, keys of each topic partition, redeliveries."""
    selected = sums.filter(pc.and_(pc.equal(sums["width"], ALL_TIME.width), sums["consumer"].is_valid()))
    return _list_rows(sort_table(_sum_by(selected, ["consumer"], (*ADDED, "keys")), "consumer"))


def sum_lags(sums: pa.Table) -> Rows:
    """Return the lags of each consumer, counted by size (``audit.clocks.may_be_off``)."""
    selected, by = sums.filter(pc.not_equal(sums["lag"], ACT)), ["consumer", "lag", "size"]
    return _list_rows(sort_table(_sum_by(selected, by, ["messages"]), *by))


def sum_fits(sums: pa.Table) -> Rows:
    """Return the number of deliveries at their owners under each compared selector (``audit.selectors``)."""
    selected = sums.filter(sums["selector"].is_valid())
    return _list_rows(sort_table(_sum_by(selected, ["selector"], ["outside", "at_owner"]), "selector"))


def sum_acts(sums: pa.Table) -> Rows:
    """Return the redeliveries by acts of operators and clients (``passes.loads.ACT``), in order of time."""
    selected = sums.filter(pc.equal(sums["lag"], ACT))
    names = ("pane", "consumer", "messages", "redelivered", "begin", "end")
    return _list_rows(sort_table(selected.select(names), "pane", "consumer"))


def sum_loads(sums: pa.Table, span: Span) -> pa.Table:
    """Return the load of each consumer in each window of a span."""
    selected = _select_span(sums, span)
    selected = selected.filter(selected["firsts"].is_null())  # not what was published
    panes = _expand_windows(_sum_by(selected, ["consumer", "pane", "first"], (*ADDED, "keys")), span.width, span.slide)
    counted = pc.greater_equal(panes["window"], panes["first"])
    return add_loads(with_columns(panes, {"keys": pc.if_else(counted, panes["keys"], 0)}))


def sum_published(sums: pa.Table, span: Span) -> Rows:
    """Return the messages that were published in each window of a span, in order of time."""
    selected = _select_span(sums, span)
    panes = _sum_by(selected.filter(selected["firsts"].is_valid()), ["pane"], ["firsts"])
    windows = _expand_windows(panes.rename_columns(["pane", "messages"]), span.width, span.slide)
    return _list_rows(sort_table(_sum_by(windows, ["window"], ["messages"]), "window"))


def _select_span(sums: pa.Table, span: Span) -> pa.Table:
    return sums.filter(pc.and_(pc.equal(sums["width"], span.width), pc.equal(sums["slide"], span.slide)))


def add_loads(loads: pa.Table) -> pa.Table:
    """Add up loads of the same window and consumer."""
    return sort_table(_sum_by(loads, ["window", "consumer"], (*ADDED, "keys")), "window", "consumer")


def make_assignments(loads: pa.Table, intervals: Iterable[tuple[int, int, int]], width: int) -> pa.Table:
    """Add share and skew to loads by window. A skew of 1 is perfect balance among the most consumers connected at once
    in the window.

    ``intervals`` have the start (ns), the end and the number of connected consumers.
    """
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
    columns = {
        "connected": pa.array(connected.astype(np.int32), mask=connected < 0),
        "share": share,
        "skew": share * np.where(connected < 0, 1, connected),
    }
    return _add_window_bounds(with_columns(loads, columns), width)


def count_panes(found: pa.Table, slide: int) -> pa.Table:
    """Count failing findings of table ``violations`` by pane of a slide, code, consumer and cause."""
    failing = found.filter(pc.not_equal(found["verdict"], "valid"))
    return _count_by(
        with_columns(failing, {"pane": _floor_to_window(_to_nanos(failing, "moment"), slide)}),
        ["pane", *_FAILING_COLUMNS],
    ).cast(PANES)


def sum_violations(panes: pa.Table, width: int, slide: int) -> pa.Table:
    """Add up panes by window."""
    counts = _sum_by(_expand_windows(panes, width, slide), ["window", *_FAILING_COLUMNS], ["count"])
    return _add_window_bounds(sort_table(counts, "window", *_FAILING_COLUMNS), width)


def count_by_window(rows: pa.Table, applicable: int, width: int) -> pa.Table:
    """Count findings of judged rows by window, consumer, code and exemption, whether they fail or not."""
    codes, exemptions = ints(rows, "codes"), ints(rows, "excuses")
    window = _floor_to_window(np.where(flags(rows, "delivered"), ints(rows, "at"), ints(rows, "published")), width)
    parts = []
    for code in Code:
        selected = np.flatnonzero(codes & code.bit) if applicable & code.bit else np.zeros(0, np.int64)
        if len(selected):
            distinct, which = np.unique(exemptions[selected], return_inverse=True)
            of_each = np.array([find_exemption(code, exemption).value for exemption in distinct.tolist()], np.int32)
            consumer = rows["consumer"].take(pa.array(selected))
            parts.append(
                _make_findings(window[selected], consumer, pa.repeat(code.name, len(selected)), of_each[which])
            )
    return _make_counts(parts)


def count_others_by_window(found: pa.Table, width: int) -> pa.Table:
    """Count findings of table ``violations`` that are ``NOT_ABOUT_DELIVERIES`` in the same way.

    Two more are counted, which name no consumer: messages without a key in a wrong partition, which are about their
    producer, and segments that were served too early.
    """
    codes = pa.array([Code.ROUTING_MISMATCH.name, Code.KEY_ORDER.name])
    stray = pc.and_(pc.is_in(found["code"], codes), found["consumer"].is_null())
    stray = pc.and_(stray, found["at"].is_valid())
    selected = found.filter(
        pc.or_(pc.is_in(found["code"], pa.array([code.name for code in NOT_ABOUT_DELIVERIES])), stray)
    )
    columns = [exemption for exemption in Exemption if exemption]
    exemption_numbers = pc.index_in(selected["excuse"], pa.array([exemption.sentence for exemption in columns]))
    values = np.array([*(exemption.value for exemption in columns), Exemption.NONE.value], np.int32)
    exemption = values[np.asarray(exemption_numbers.fill_null(len(columns)))]
    return _make_counts(
        [
            _make_findings(
                _floor_to_window(_to_nanos(selected, "moment"), width),
                selected["consumer"],
                selected["code"],
                exemption,
            )
        ]
    )


def count_scattered_keys(rows: pa.Table) -> tuple[int, int]:
    """Count keys that reached several consumers within one epoch, and all keys: the effect of mixed batches on a steady
    group."""
    given = rows.filter(pc.and_(rows["delivered"], rows["key"].is_valid()))
    of_epoch = given.group_by(["key", "epoch"], use_threads=False).aggregate([("consumer", "count_distinct")])
    of_key = of_epoch.group_by(["key"], use_threads=False).aggregate([("consumer_count_distinct", "max")])
    return int(np.count_nonzero(ints(of_key, "consumer_count_distinct_max") > 1)), len(of_key)


def sort_counts(counts: pa.Table) -> pa.Table:
    """Sort finding counts."""
    return sort_table(counts, *_COUNT_COLUMNS)


def widen_counts(counts: pa.Table, width: int) -> Rows:
    """Sum finding counts into windows of ``width`` ns."""
    return _list_rows(sort_counts(_sum_by(assign_windows(counts, width), _COUNT_COLUMNS, ["count"])))


def assign_windows(counts: pa.Table, width: int) -> pa.Table:
    """Assign finding counts to their window of ``width`` ns."""
    return with_columns(counts, {"window": _floor_to_window(ints(counts, "window"), width)})


def select_first(found: pa.Table, per_window: int, width: int, most: int) -> pa.Table:
    """Select the rows of table ``violations`` that ``select_worst`` may choose once others are added.

    From all rows, it chooses the same rows as from the ``select_first`` rows of each part. There are at most five times
    ``most`` rows for each rule.

    ``select_worst`` chooses failing rows before others, then by ``turn``. Once enough rows come earlier, it chooses
    none of the next turn. In the turn where that happens, it chooses rows that are early for their consumer or in their
    window. Adding other rows never lowers the numbers of consumers, windows and their rows.
    """
    rows = _select_early(_number_turns(found, width), per_window)
    codes, fails, turns, at_consumer, in_window = (_encode_column(rows, name) for name in _CHOICE_COLUMNS)
    order = np.lexsort([turns, ~fails.astype(np.bool_), codes])  # stable: those of a turn stay in order of time
    starts = np.flatnonzero(_find_changes(codes[order], fails[order], turns[order]))
    kept, before, remaining = [], -1, 0
    for some in np.split(order, starts[1:]):
        if len(some) and codes[some[0]] != before:
            before, remaining = int(codes[some[0]]), most
        taken = (
            some if len(some) <= remaining else some[_select_earliest(at_consumer[some], in_window[some], remaining)]
        )
        kept.append(taken)
        remaining = max(0, remaining - len(some))
    return found.take(rows["row"].take(pa.array(np.sort(np.concatenate(kept)))))


def _select_earliest(at_consumer: Ints, in_window: Ints, most: int) -> Ints:
    """Select, among sorted rows of one turn, those that include the ``most`` earliest ones. Their numbers at their
    consumer and in their window show how early they are."""
    if not most:
        return np.zeros(0, np.int64)
    numbers = (at_consumer, in_window)
    last = min(int(np.partition(nth, most - 1)[most - 1]) for nth in numbers)
    chosen = np.flatnonzero(np.minimum(*numbers) <= last)
    if last > 1:
        return chosen
    ends = (np.searchsorted(np.cumsum(nth[chosen] == 1), most) for nth in numbers)
    return chosen[: int(min(ends)) + 1]


def select_worst(found: pa.Table, per_window: int, width: int, most: int) -> Rows:
    """Select at most ``most`` rows of table ``violations``, times in ns: those that ``reports.finding_sample.in_turn``
    chooses first, and at most ``per_window`` for each rule, consumer and window of ``width`` ns."""
    rows = _select_early(_number_turns(found, width), per_window)
    rows = with_columns(rows, {"early": np.minimum(ints(rows, "at_consumer"), ints(rows, "in_window"))})
    taken = [("fails", "descending"), ("turn", "ascending"), ("early", "ascending")]
    rows = rows.take(pc.sort_indices(with_columns(rows, {"nth": np.arange(len(rows))}), [*taken, ("nth", "ascending")]))
    rows = sort_table(with_columns(rows, {"rank": _number_in_group(rows, "code")}), "rank", "code").slice(0, most)
    columns = ("at", "window", "fails", "turn", "early", "rank")
    return _list_rows(with_columns(found.take(rows["row"]), {name: rows[name] for name in columns}))


def _number_turns(found: pa.Table, width: int) -> pa.Table:
    """Return the columns that decide which rows of table ``violations`` are shown.

    ``row`` is the row number, in order of time. ``turn`` is the number of a row among the failing or other rows of its
    rule, consumer and window.
    """
    at = pa.array(_to_nanos(found, "at"), mask=np.asarray(found["at"].is_null()))
    fails = pc.not_equal(found["verdict"], "valid")
    selected = found.select(["code", "consumer", *IN_TIME[1:]])
    rows = with_columns(
        selected,
        {
            "at": at,
            "window": _floor_to_window(_to_nanos(found, "moment"), width),
            "fails": fails,
            "row": np.arange(len(found)),
        },
    )
    rows = sort_table(rows, *IN_TIME)
    return with_columns(rows, {"turn": _number_in_group(rows, "code", "fails", "consumer", "window")})


def _select_early(rows: pa.Table, per_window: int) -> pa.Table:
    """Select the first ``per_window`` turns, with the number of each row within its turn at its consumer and in its
    window."""
    rows = rows.filter(pc.less_equal(rows["turn"], per_window))
    early = {name: _number_in_group(rows, "code", "fails", "turn", of) for name, of in _EARLY_COLUMNS.items()}
    return with_columns(rows, early)


def _encode_column(rows: pa.Table, name: str) -> Ints:
    """Encode a column as integers; texts by their first occurrence."""
    values = rows[name].combine_chunks()
    return np.asarray(
        values.dictionary_encode().indices if pa.types.is_string(values.type) else values.cast(pa.int64())
    )


def _find_changes(*columns: Ints) -> np.ndarray:
    """Return whether each row differs from the one before it."""
    changes = np.ones(len(columns[0]), np.bool_)
    changes[1:] = np.logical_or.reduce([values[1:] != values[:-1] for values in columns])
    return changes


def _list_rows(table: pa.Table) -> Rows:
    rows: Rows = table.to_pylist()
    return rows


def _make_findings(window: Ints, consumer: pa.Array, code: pa.Array, exemption: np.ndarray) -> pa.Table:
    return pa.table({"window": window, "consumer": consumer, "code": code, "excuse": exemption})


def _make_counts(parts: Sequence[pa.Table]) -> pa.Table:
    by = pa.schema([field for field in COUNTS if field.name != "count"])
    return sort_counts(_count_by(pa.concat_tables([by.empty_table(), *parts]), by.names)).cast(COUNTS)


def _count_by(rows: pa.Table, by: Sequence[str]) -> pa.Table:
    return _sum_by(with_columns(rows, {"count": np.ones(len(rows), np.int64)}), by, ["count"])


def _sum_by(rows: pa.Table, by: Sequence[str], added: Sequence[str]) -> pa.Table:
    found = rows.group_by([*by], use_threads=False).aggregate([(name, "sum") for name in added])
    return found.select([*by, *(f"{name}_sum" for name in added)]).rename_columns([*by, *added])


def _expand_windows(panes: pa.Table, width: int, slide: int) -> pa.Table:
    """Expand counts by pane to each window that contains the pane."""
    each = width // slide
    rows = panes.take(pa.array(np.repeat(np.arange(len(panes)), each)))
    later = np.tile(np.arange(each) * slide - (width - slide), len(panes))
    return with_columns(rows, {"window": ints(rows, "pane") + later})


def _add_window_bounds(windows: pa.Table, width: int) -> pa.Table:
    """Add both ends of windows that are identified by their start. Tumbling windows do not overlap."""
    start = ints(windows, "window")
    ends = {"window_start": start, "window_end": start + width}
    as_time = {name: pa.array(at // 1_000).cast(pa.timestamp("us", "UTC")) for name, at in ends.items()}
    return with_columns(windows, {**as_time, "tumbling": start % width == 0})


def _floor_to_window(at: Ints, width: int) -> Ints:
    """Return the starts of the tumbling windows that contain times."""
    return at - at % width


def _to_nanos(rows: pa.Table, name: str) -> Ints:
    """Convert a column of timestamps to ns; 0 for null."""
    return ints(with_columns(rows, {name: rows[name].cast(pa.timestamp("us", "UTC"))}), name, 0) * 1_000


def _number_in_group(rows: pa.Table, *group: str) -> Ints:
    """Number each row within its group, starting at 1, in the order of the rows."""
    codes = [np.asarray(pc.fill_null(rows[name].combine_chunks().dictionary_encode().indices, -1)) for name in group]
    order = np.lexsort([np.arange(len(rows)), *codes])
    begins = _find_changes(*(code[order] for code in codes))
    first = np.maximum.accumulate(np.where(begins, np.arange(len(rows)), 0))
    nth = np.empty(len(rows), np.int64)
    nth[order] = np.arange(len(rows)) - first + 1
    return nth
