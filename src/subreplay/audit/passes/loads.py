"""What consumers were given, summed while their deliveries are judged: by window, and in all.

The sums of a batch travel among judged rows as rows of their own (column ``load``), so that windows cost no second look
at every delivery. Keys are counted within their topic partition, where order is promised; that takes about 64 bytes of
memory for each key and consumer of a topic partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from subreplay.audit.checkpoint import filled
from subreplay.audit.codes import Code
from subreplay.audit.passes.lags import Lags
from subreplay.audit.passes.states import NOWHERE, States
from subreplay.audit.selectors import OwnerFits
from subreplay.hashing.identity import key_identity
from subreplay.kernels.compiled import compiled
from subreplay.rows.groups import AddingUp
from subreplay.rows.model.columns import NEVER, Ints, column, flags, ints
from subreplay.rows.model.rows import Scope
from subreplay.rows.model.tables import JUDGED, LOAD, LOADS


class Span(NamedTuple):
    """Windows of ``width`` ns, one of which starts at every multiple of ``slide`` ns, a part of the width.

    What is given is counted once, by pane of one slide; a window adds up its panes.
    """

    width: int
    slide: int


ALL_TIME: Final = Span(NEVER, NEVER)
NO_TIME: Final = Span(0, 0)
"""Of rows that count lags or compare selectors, which no window has."""


ACT: Final = "act"
"""Instead of a lag: the row counts what an act (``audit.acts``) had redelivered. ``pane`` is when it was, ``consumer``
the partition and the first position, ``messages`` what had been acknowledged, ``redelivered`` all of it."""


ADDED: Final = ("messages", "bytes", "redelivered", "unacked")
"""What is added up of deliveries, besides keys."""
LOADS_OF_RUN: Final = pa.schema([f for f in LOADS if f.name not in ("date", "subscription", "topic")])
"""Rows of table ``loads``, without the columns that name the run."""
OF: Final = ("width", "slide", "pane", "first", "consumer", "lag", "size", "selector")
"""What a row of ``LOAD`` is about; it has the sums of all else, but for when it begins and ends."""
MOST_WAITING: Final = 1 << 14
"""Sums of batches that are worth a table of them."""
_FEW: Final = 1 << 10
"""Numbers that there is always room to count by."""
REPEATED: Final = ("repeated", "contradicted", "stored_again")
"""Input rows beside those that were judged."""
_CONSUMER: Final = np.int64(0x1E3779B97F4A7C15)  # an odd number: tells apart one key at several consumers
_UNACKED = Code.UNACKED.bit
_ELSEWHERE = Code.WRONG_OWNER.bit | Code.NOT_CONNECTED.bit | Code.NEVER_JOINED.bit
_EXTENT: Final = {"begin": "min", "end": "max"}


class Given:
    """What one dispatcher's consumers were given, batch by batch; remembers when each last got each key. ``skew``: by
    how much clocks may differ (ns); ``fits`` compares selectors."""

    def __init__(self, scope: Scope, spans: tuple[Span, ...], skew: int, fits: OwnerFits | None = None) -> None:
        self._scope, self._fits = scope, fits
        self._lags = Lags(skew)
        self._day = 0  # a time of the day that was last added
        self._spans = tuple(dict.fromkeys((*spans, ALL_TIME)))
        self._panes = States(len(self._spans))  # the last pane of a key at a consumer, in each span
        self._numbers: dict[str, int] = {}  # of consumers
        self._held: dict[Span, list[dict[str, Ints]]] = {span: [] for span in self._spans}  # columns of ``LOAD``
        self._undelivered = self._stored_again = 0  # messages, and how often these were

    @property
    def many(self) -> bool:
        """Whether more sums wait than are worth a table."""
        return sum(len(columns["pane"]) for held in self._held.values() for columns in held) > MOST_WAITING

    def add(self, facts: pa.Table, codes: Ints) -> None:
        """Add ``FACTS`` in order of time, all delivered or none, and their findings."""
        self._day = int(ints(facts, "at" if flags(facts, "delivered")[0] else "published")[0])
        if not flags(facts, "delivered")[0]:
            self._undelivered += facts.num_rows
            self._stored_again += int(ints(facts, "stored_again").sum())
            return
        if self._fits is not None:
            self._fits.add(facts, codes)
        names = column(facts, "consumer").dictionary_encode()
        numbers = [self._numbers.setdefault(name, len(self._numbers)) for name in names.dictionary.to_pylist()]
        consumer = np.array(numbers, np.int64)[np.asarray(names.indices)]
        self._lags.add(facts, consumer)
        key = column(facts, "key")
        seen = (key_identity(key) ^ consumer * _CONSUMER) & NEVER
        row = self._panes.indices(np.where(np.asarray(key.is_valid()), seen, NOWHERE))
        at, nth = ints(facts, "at"), ints(facts, "nth")
        counted = {
            "messages": np.ones(len(at), np.int64),
            "bytes": ints(facts, "size", 0),
            "redelivered": nth > 0,
            "unacked": codes & _UNACKED != 0,
        }
        for number, span in enumerate(self._spans):
            pane = np.zeros(len(at), np.int64) if span == ALL_TIME else at - at % span.slide
            first, new = _first_windows(self._panes.rows, row, number, pane, span.width, span.slide)
            values = counted | {"keys": new} | (_totals(facts, codes, nth) if span == ALL_TIME else {})
            group = {"pane": pane, "first": first, "consumer": consumer}
            columns, begin, end = _by_group(group, values, span.slide)
            self._held[span].append(columns | ({"begin": at[begin], "end": at[end]} if span == ALL_TIME else {}))

    def sums(self) -> pa.Table:
        """``JUDGED`` rows with the sums of what was added since they were last asked for."""
        loads = [self._loads(span, held) for span, held in self._held.items() if held]
        if self._undelivered:
            counted = {"undelivered": [self._undelivered], "stored_again": [self._stored_again]}
            loads.append(_loads(ALL_TIME, counted))
        self._held, self._undelivered, self._stored_again = {span: [] for span in self._spans}, 0, 0
        return _as_judged(pa.concat_arrays(loads), self._scope, self._day) if loads else JUDGED.empty_table()

    def lags(self) -> pa.Table:
        """``JUDGED`` rows that count the lags of all that was added."""
        counted = self._lags.rows([*self._numbers])
        if not counted.num_rows:
            return JUDGED.empty_table()
        loads = _loads(NO_TIME, {name: column(counted, name) for name in counted.column_names})
        return _as_judged(loads, self._scope, self._day)

    def fits(self) -> pa.Table:
        """``JUDGED`` rows that compare selectors by the first of what was added."""
        counted = {} if self._fits is None else self._fits.rows()
        if not counted.get("selector"):
            return JUDGED.empty_table()
        return _as_judged(_loads(NO_TIME, counted), self._scope, self._day)

    def _loads(self, span: Span, held: list[dict[str, Ints]]) -> pa.StructArray:
        columns: dict[str, Any] = {name: np.concatenate([each[name] for each in held]) for name in held[0]}
        columns["consumer"] = pa.array([*self._numbers], pa.string()).take(pa.array(columns["consumer"]))
        return _loads(span, columns)


def act_rows(scope: Scope, at: Ints, first: list[str], counts: Ints, times: Ints) -> pa.Table:
    """``JUDGED`` rows of acts: their instants, partitions with first positions, counts, first and last redelivery."""
    if not len(at):
        return JUDGED.empty_table()
    columns = {"pane": at, "consumer": first, "lag": [ACT] * len(at)}
    columns |= {"messages": counts[:, 0], "redelivered": counts[:, 1]}
    return _as_judged(_loads(NO_TIME, columns | {"begin": times[:, 0], "end": times[:, 1]}), scope, int(times[0, 0]))


def _by_group(
    group: Mapping[str, Ints], values: Mapping[str, np.ndarray], slide: int
) -> tuple[dict[str, Ints], Ints, Ints]:
    """Groups of deliveries in the order of their first rows, with their sums of ``values``; and the first and last row
    of each. Panes and first windows start every ``slide`` ns."""
    code, groups = np.zeros(len(group["pane"]), np.int64), 1
    for name, part in group.items():
        part, kinds = _dense(part if name == "consumer" else (part - part.min()) // slide)
        code, groups = _dense(code * kinds + part, groups * kinds)
    first, last, sums = _added_up_by(code, groups, np.stack([*values.values()]).astype(np.int64, copy=False))
    some = np.flatnonzero(first >= 0)
    some = some[np.argsort(first[some])]
    first, last = first[some], last[some]
    columns = {name: part[first] for name, part in group.items()}
    return columns | dict(zip(values, sums[:, some], strict=True)), first, last


def _dense(numbers: Ints, kinds: int | None = None) -> tuple[Ints, int]:
    """Numbers from 0 below ``kinds``, by as few as there is room to count by, and how many these are."""
    kinds = int(numbers.max()) + 1 if kinds is None else kinds
    if kinds <= max(_FEW, 4 * len(numbers)):
        return numbers, kinds
    distinct, numbers = np.unique(numbers, return_inverse=True)
    return numbers, len(distinct)


def adding_loads() -> AddingUp:
    """Adds up ``LOADS_OF_RUN``."""
    adding = AddingUp(_added_up)
    adding.add(LOADS_OF_RUN.empty_table())
    return adding


def _added_up(loads: pa.Table) -> pa.Table:
    how = {field.name: _EXTENT.get(field.name, "sum") for field in LOAD if field.name not in OF}
    found = loads.group_by([*OF], use_threads=False).aggregate([*how.items()])
    return pa.table([found[name if name in OF else f"{name}_{how[name]}"] for name in LOAD.names], schema=LOADS_OF_RUN)


def _as_judged(loads: pa.StructArray, scope: Scope, day: int) -> pa.Table:
    known = {"topic": scope.topic, "partition": scope.partition, "published": day}  # its date
    columns = [loads if f.name == "load" else filled(f, known.get(f.name), len(loads)) for f in JUDGED]
    return pa.table(columns, schema=JUDGED)


def _totals(facts: pa.Table, codes: Ints, nth: Ints) -> dict[str, np.ndarray]:
    """What is counted of all time only."""
    changing, index = flags(facts, "in_transition"), ints(facts, "batch_index")
    first = nth == 0
    known = codes & Code.UNKNOWN_MESSAGE.bit == 0  # whose owner can be told
    return {
        "outside": ~changing & known,
        "at_owner": ~changing & known & (codes & _ELSEWHERE == 0),
        "in_transition": changing,
        "firsts": first,
        "batched": index >= 0,
        "entries": (index == 0) & first,
        "by_receipt": flags(facts, "by_receipt"),
        **{name: ints(facts, name) for name in REPEATED},
    }


def _loads(span: Span, columns: Mapping[str, Any]) -> pa.StructArray:
    """``LOAD`` values; null or 0 where there is no column."""
    n = len(next(iter(columns.values())))
    given = {"width": np.full(n, span.width), "slide": np.full(n, span.slide), **columns}
    arrays = [pa.array(given[f.name], f.type) if f.name in given else filled(f, None, n) for f in LOAD]
    return pa.StructArray.from_arrays(arrays, fields=list(LOAD))


@compiled
def _first_windows(
    panes: Ints, row: Ints, span: int, pane: Ints, width: int, slide: int
) -> tuple[Ints, Ints]:  # pragma: no cover - compiled
    """Of each delivery, the first window with its pane and none with an earlier one of its key and consumer, and 1
    where it is the pane's first of them: a window counts a key where it sees it first."""
    n = len(row)
    first, new = np.empty(n, np.int64), np.zeros(n, np.int64)
    for i in range(n):
        first[i] = pane[i]
        if row[i] >= 0:
            before = panes[row[i], span]
            if before != pane[i]:
                first[i] = max(before, pane[i] - width) + slide
                new[i] = 1
                panes[row[i], span] = pane[i]
    return first, new


@compiled
def _added_up_by(code: Ints, groups: int, values: Ints) -> tuple[Ints, Ints, Ints]:  # pragma: no cover - compiled
    """The first and last row of each group, -1 where it has none, and its sum of each row of ``values``."""
    first, last = np.full(groups, -1, np.int64), np.full(groups, -1, np.int64)
    sums = np.zeros((len(values), groups), np.int64)
    for i in range(len(code)):
        if first[code[i]] < 0:
            first[code[i]] = i
        last[code[i]] = i
    for k in range(len(values)):
        for i in range(len(code)):
            sums[k, code[i]] += values[k, i]
    return first, last, sums
