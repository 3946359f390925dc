"""Sum the load of each consumer while its deliveries are judged: by window and over all time. Count publications, too.

A task sums over its topic partitions, so windows need no second pass over the deliveries. Keys are counted within their
topic partition, where order is promised. That takes about 64 bytes of memory for each key and consumer of a topic
partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from subreplay.audit.checkpoint import fill_column
from subreplay.audit.codes import Code
from subreplay.audit.passes.lags import LagCounts
from subreplay.audit.passes.states import NOWHERE, StateTable
from subreplay.audit.selectors import OtherTimelines
from subreplay.hashing.key_identity import compute_key_identities
from subreplay.kernels.compiled import compiled
from subreplay.rows.groups import Accumulator
from subreplay.rows.model.columns import NEVER, UNKNOWN, Ints, column, flags, ints
from subreplay.rows.model.tables import LOAD, LOADS


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
LOAD_KEYS: Final = ("width", "slide", "pane", "first", "consumer", "lag", "size", "selector")
"""What a row of ``LOAD`` is about; it has the sums of all else, but for when it begins and ends."""
MOST_WAITING: Final = 1 << 14
"""Deliveries that are worth to be added up, those of many topic partitions together."""
MOST_KEYS: Final = 1 << 16
"""Keys of topic partitions that are done which are remembered."""
_LEAST_COUNTERS: Final = 1 << 10
"""Numbers that there is always room to count by."""
REPEATED: Final = ("repeated", "contradicted", "stored_again")
"""Input rows beside those that were judged."""
_CONSUMER: Final = np.int64(0x1E3779B97F4A7C15)  # an odd number: distinguishes one key at several consumers
_DISPATCHER: Final = np.int64(0x3C6EF372FE94F82B)  # another one: distinguishes dispatchers
_COUNTED: Final = ("consumer", "key", "at", "nth", "size", "in_transition", "batch_index", "by_receipt", "published",
                   "due", "received", "acked", *REPEATED)  # fmt: skip
_UNACKED = Code.UNACKED.bit
_WAITS = Code.UNSEEN.bit | Code.UNROUTABLE.bit  # not lost or dropped: it may still be delivered
_NOT_AT_OWNER = Code.WRONG_OWNER.bit | Code.NOT_CONNECTED.bit | Code.NEVER_JOINED.bit
_EXTENT: Final = {"begin": "min", "end": "max"}


class LoadCollector:
    """Collects loads, dispatcher by dispatcher and batch by batch, and remembers when each consumer last received each
    key. The last of ``spans`` are the windows of the report. ``skew``: how much clocks may differ (ns)."""

    def __init__(self, spans: tuple[Span, ...], skew: int) -> None:
        self._lags = LagCounts(skew)
        self._spans = tuple(dict.fromkeys((*spans, ALL_TIME)))
        self._report = (ALL_TIME, *spans)[-1]
        self._numbers: dict[str, int] = {}  # of consumers
        self._dispatchers = 0
        self._latest = 0  # of them, the one that the last delivery is of
        self.others = OtherTimelines()  # what selectors are compared by
        self._keys = StateTable(len(self._spans))  # the last pane of a key at a consumer, in each span
        self._waiting: list[tuple[pa.Table, Ints, Ints]] = []  # facts, their findings, the numbers of dispatchers
        self._published: list[Ints] = []  # when messages were that still wait at the end
        self._rows = 0  # of these
        self._undelivered = self._stored_again = 0  # messages, and how often these were
        self._sums = make_load_adder()

    def begin(self) -> int:
        """Begin with the next dispatcher, and return its number."""
        self._dispatchers += 1
        return self._dispatchers

    def add(self, facts: pa.Table, codes: Ints, dispatcher: Ints) -> None:
        """Add ``FACTS`` of the numbered dispatchers with their findings, in order of time: either all delivered, or
        none. An undelivered message comes without findings that an exemption makes legal."""
        if not facts["delivered"][0].as_py():
            self._undelivered += facts.num_rows
            self._stored_again += int(ints(facts, "stored_again").sum())
            self._published.append(ints(facts, "published")[codes & _WAITS != 0])
            self._rows += len(codes)
            if self._rows > MOST_WAITING:
                self._add_waiting()
            return
        if self._keys.count[0] > MOST_KEYS and dispatcher[0] != self._latest:
            self._add_waiting()
            self._keys = StateTable(len(self._spans))
        self._latest = int(dispatcher[-1])
        self._waiting.append((facts.select(_COUNTED), codes, dispatcher))
        self._rows += len(codes)
        if self._rows > MOST_WAITING:
            self._add_waiting()

    def end(self, columns: Iterable[Mapping[str, Any]]) -> None:
        """End with a dispatcher. ``columns`` of ``LOAD`` compare its selectors, and count what its acts caused to be
        redelivered."""
        for counted in columns:
            if len(next(iter(counted.values()), ())):
                self._sums.add(_make_loads(NO_TIME, counted))

    def take_sums(self, most: int) -> Iterator[pa.Table]:
        """Yield the sums (``LOADS_OF_RUN``) of what was added, if they have more than ``most`` rows."""
        yield from self._sums.take_sums(most)

    def compute_sum(self) -> pa.Table:
        """Return the sums of everything that was added and not yet taken."""
        self._add_waiting()
        if self._undelivered:
            counted = {"undelivered": [self._undelivered], "stored_again": [self._stored_again]}
            self._sums.add(_make_loads(ALL_TIME, counted))
        lags = self._lags.rows([*self._numbers])
        if lags.num_rows:
            self._sums.add(_make_loads(NO_TIME, {name: column(lags, name) for name in lags.column_names}))
        return self._sums.compute_sum()

    def _add_waiting(self) -> None:
        published, self._published = self._published, []
        if self._waiting:
            published.append(self._add_deliveries())
        self._rows = 0
        if published:
            self._add_published(np.concatenate(published))

    def _add_published(self, published: Ints) -> None:
        """Count messages by the report's window of their publication, in rows without a consumer."""
        published = published[published != UNKNOWN]
        if len(published) and self._report != ALL_TIME:
            pane, messages = _count_by_pane(published, self._report.slide)
            self._sums.add(_make_loads(self._report, {"pane": pane, "first": pane, "firsts": messages}))

    def _add_deliveries(self) -> Ints:
        """Add up the waiting deliveries, and return when their messages were published, once each. If the publication
        is unknown, the first delivery counts as publication: the data show no waiting."""
        facts = pa.concat_tables([facts for facts, _, _ in self._waiting]).combine_chunks()
        codes = np.concatenate([codes for _, codes, _ in self._waiting])
        dispatcher = np.concatenate([numbers for _, _, numbers in self._waiting])
        self._waiting = []
        names = column(facts, "consumer").dictionary_encode()
        numbers = [self._numbers.setdefault(name, len(self._numbers)) for name in names.dictionary.to_pylist()]
        consumer = np.array(numbers, np.int64)[np.asarray(names.indices)]
        self._lags.add(facts, consumer)
        key = column(facts, "key")
        seen = (compute_key_identities(key) ^ consumer * _CONSUMER ^ dispatcher * _DISPATCHER) & NEVER
        row = self._keys.indices(np.where(np.asarray(key.is_valid()), seen, NOWHERE))
        at, nth = ints(facts, "at"), ints(facts, "nth")
        counted = {
            "messages": np.ones(len(at), np.int64),
            "bytes": ints(facts, "size", 0),
            "redelivered": nth > 0,
            "unacked": codes & _UNACKED != 0,
        }
        for number, span in enumerate(self._spans):
            pane = np.zeros(len(at), np.int64) if span == ALL_TIME else at - at % span.slide
            first, new = _find_first_windows(self._keys.rows, row, number, pane, span.width, span.slide)
            values = counted | {"keys": new} | (_count_totals(facts, codes, nth) if span == ALL_TIME else {})
            group = {"pane": pane, "first": first, "consumer": consumer}
            columns: dict[str, Any] = _sum_by_group(group, values, at, span.slide)
            if span != ALL_TIME:
                del columns["begin"], columns["end"]
            columns["consumer"] = pa.array([*self._numbers], pa.string()).take(pa.array(columns["consumer"]))
            self._sums.add(_make_loads(span, columns))
        published = ints(facts, "published")[nth == 0]
        return np.asarray(np.where(published == UNKNOWN, at[nth == 0], published))


def make_act_columns(at: Ints, first: list[str], counts: Ints, times: Ints) -> dict[str, Any]:
    """Return columns of ``LOAD`` about acts: instants, partitions with first positions, counts, and the first and last
    redelivery."""
    columns = {"pane": at, "consumer": first, "lag": [ACT] * len(at)}
    columns |= {"messages": counts[:, 0], "redelivered": counts[:, 1]}
    return columns | {"begin": times[:, 0], "end": times[:, 1]}


def _count_by_pane(at: Ints, slide: int) -> tuple[Ints, Ints]:
    """Return the panes, which start every ``slide`` ns, and the number of instants in each."""
    numbers = at // slide
    first = numbers.min()
    if numbers.max() - first < max(_LEAST_COUNTERS, 4 * len(at)):
        counts = np.bincount(numbers - first)
        numbers = np.flatnonzero(counts)
        return (numbers + first) * slide, counts[numbers]
    numbers, counts = np.unique(numbers, return_counts=True)
    return numbers * slide, counts


def _sum_by_group(group: Mapping[str, Ints], values: Mapping[str, np.ndarray], at: Ints, slide: int) -> dict[str, Ints]:
    """Sum ``values`` by group of deliveries, in the order of the groups' first rows. Also return when each group begins
    and ends. Panes and first windows start every ``slide`` ns."""
    code, groups = np.zeros(len(group["pane"]), np.int64), 1
    for name, part in group.items():
        part, kinds = _make_dense(part if name == "consumer" else (part - part.min()) // slide)
        code, groups = _make_dense(code * kinds + part, groups * kinds)
    first, begin, end, sums = _add_up_by_code(
        code, groups, at, np.stack([*values.values()]).astype(np.int64, copy=False)
    )
    some = np.flatnonzero(first >= 0)
    some = some[np.argsort(first[some])]
    columns = {name: part[first[some]] for name, part in group.items()} | {"begin": begin[some], "end": end[some]}
    return columns | dict(zip(values, sums[:, some], strict=True))


def _make_dense(numbers: Ints, kinds: int | None = None) -> tuple[Ints, int]:
    """Renumber values from 0 below ``kinds`` if an array of ``kinds`` counters would be too large. Also return the
    number of kinds."""
    kinds = int(numbers.max()) + 1 if kinds is None else kinds
    if kinds <= max(_LEAST_COUNTERS, 4 * len(numbers)):
        return numbers, kinds
    distinct, numbers = np.unique(numbers, return_inverse=True)
    return numbers, len(distinct)


def make_load_adder() -> Accumulator:
    """Make an accumulator of ``LOADS_OF_RUN``."""
    adding = Accumulator(_add_up_loads)
    adding.add(LOADS_OF_RUN.empty_table())
    return adding


def _add_up_loads(loads: pa.Table) -> pa.Table:
    how = {field.name: _EXTENT.get(field.name, "sum") for field in LOAD if field.name not in LOAD_KEYS}
    found = loads.group_by([*LOAD_KEYS], use_threads=False).aggregate([*how.items()])
    return pa.table(
        [found[name if name in LOAD_KEYS else f"{name}_{how[name]}"] for name in LOAD.names], schema=LOADS_OF_RUN
    )


def _count_totals(facts: pa.Table, codes: Ints, nth: Ints) -> dict[str, np.ndarray]:
    """Return what is counted only over all time."""
    changing, index = flags(facts, "in_transition"), ints(facts, "batch_index")
    first = nth == 0
    known = codes & Code.UNKNOWN_MESSAGE.bit == 0  # its owner is known
    return {
        "outside": ~changing & known,
        "at_owner": ~changing & known & (codes & _NOT_AT_OWNER == 0),
        "in_transition": changing,
        "firsts": first,
        "batched": index >= 0,
        "entries": (index == 0) & first,
        "by_receipt": flags(facts, "by_receipt"),
        **{name: ints(facts, name) for name in REPEATED},
    }


def _make_loads(span: Span, columns: Mapping[str, Any]) -> pa.Table:
    """Make ``LOADS_OF_RUN``. Missing columns are null or 0."""
    n = len(next(iter(columns.values())))
    given = {"width": np.full(n, span.width), "slide": np.full(n, span.slide), **columns}
    arrays = [pa.array(given[f.name], f.type) if f.name in given else fill_column(f, None, n) for f in LOADS_OF_RUN]
    return pa.table(arrays, schema=LOADS_OF_RUN)


@compiled
def _find_first_windows(
    panes: Ints, row: Ints, span: int, pane: Ints, width: int, slide: int
) -> tuple[Ints, Ints]:  # pragma: no cover - compiled
    """Return for each delivery the first window that has its pane and no earlier pane of its key and consumer. Also
    return 1 for the first delivery in a pane, else 0. So a window counts each key once."""
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
def _add_up_by_code(
    code: Ints, groups: int, at: Ints, values: Ints
) -> tuple[Ints, Ints, Ints, Ints]:  # pragma: no cover - compiled
    """Return for each group its first row (-1: none), its earliest and latest time, and the sum of each row of
    ``values``."""
    first = np.full(groups, -1, np.int64)
    begin, end = np.full(groups, NEVER, np.int64), np.full(groups, UNKNOWN, np.int64)
    sums = np.zeros((len(values), groups), np.int64)
    for i in range(len(code)):
        if first[code[i]] < 0:
            first[code[i]] = i
        begin[code[i]], end[code[i]] = min(begin[code[i]], at[i]), max(end[code[i]], at[i])
    for k in range(len(values)):
        for i in range(len(code)):
            sums[k, code[i]] += values[k, i]
    return first, begin, end, sums
