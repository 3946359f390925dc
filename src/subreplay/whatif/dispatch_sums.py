"""What a dispatch replay adds up: sums of each task over its ``PREDICTED`` rows, in one look, and how they are added.

Times and windows are in ns. Windows begin at whole multiples of their width.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.rows.groups import AddingUp, in_order
from subreplay.rows.model.columns import NEVER, column, flags, gathered, ints
from subreplay.rows.sorted_blocks import Order
from subreplay.whatif.dispatch_replay import CHANGE, DELIVERY, INTERVAL, PREDICTED, WAITED
from subreplay.whatif.grouped_sums import Rows, Sum, begins, named, ordered, whole_runs
from subreplay.whatif.replay_rows import Cumulative, delivery_log_rows, scenario_numbers, with_dispatcher
from subreplay.whatif.wait_sums import WAITS, waits_to_sum

STEPS: Final = 64  # buckets of a histogram for every doubling: quantiles are within 1.1 %
MOST_SUMS: Final = 1 << 18
"""Rows of one sum that a task holds; of more it hands over those that it has."""


_WHOSE: Final = [("scenario", pa.string())]


def _schema(by: Sequence[tuple[str, pa.DataType]], *added: str) -> pa.Schema:
    return pa.schema([*_WHOSE, *by, *((name, pa.int64()) for name in added)])


OUTCOMES: Final = Sum(
    _schema([("outcome", pa.string()), ("settled", pa.bool_())], "rows", "delivered", "retried", "last", "late"),
    ("scenario", "outcome", "settled"),
    most=("last",),
)
"""Rows by outcome and whether the message was done with, with what consumers saw of them. ``late`` counts those that
were done with after the last message was published, but in the same window."""
LATENCIES: Final = Sum(
    _schema(
        [("event", pa.string()), ("bucket", pa.int32())],
        *("messages", "most", "delayed", "early", "early_least", "early_most"),
    ),
    ("scenario", "event", "bucket"),
    least=("early_least",),
    most=("most", "early_most"),
)
"""Histograms of latency by event: bucket b holds ``[2**(b/STEPS), 2**((b+1)/STEPS))`` ns.

Latency counts from when a message is due to when an application first took it (``received``), or to its acknowledgement
(``acked``); the bucket of those that none ever took, though they are not done with, is null. Of those received
``early``, before their time by more than a tick of the scenario, there is by how much, too, and how many are
``delayed`` at all."""
TAKEN: Final = Sum(
    _schema(
        [("consumer", pa.string()), ("window", pa.int64()), ("width", pa.int64())],
        *("messages", "bytes", "redelivered", "busy_until", "delivered_until"),
    ),
    ("scenario", "consumer", "window", "width"),
    most=("busy_until", "delivered_until"),
)
"""What each consumer's application took, by window; ``busy_until`` is when the work on it was over."""
PENDING: Final = Sum(_schema([("consumer", pa.string())], "messages"), ("scenario", "consumer"))
"""What was neither acknowledged nor given up in the end, by the consumer that holds it (null: it is at nobody)."""
BACKLOG: Final = Sum(_schema([("window", pa.int64())], "published", "settled"), ("scenario", "window"))
"""Messages published and settled by window."""
HELD: Final = Sum(_schema([("window", pa.int64())], "held"), ("scenario", "window"))
"""Messages that came to a consumer, less those that left one, by window: the running sum is at consumers."""
DRAINS: Final = Sum(
    _schema(
        [("kind", pa.string()), ("consumer", pa.string()), ("slot", pa.int64()), ("topic", pa.string()),
         ("partition", pa.int32())],
        *("messages", "busy"),
    ),
    ("scenario", "kind", "consumer", "slot", "topic", "partition"),
)  # fmt: skip
"""What was served after the last message was published, by consumer, slot or partition."""
SUMS: Final[Mapping[str, Sum]] = {
    "outcomes": OUTCOMES, "latencies": LATENCIES, "taken": TAKEN, "pending": PENDING, "backlog": BACKLOG,
    "held": HELD, "drains": DRAINS,
}  # fmt: skip
CHANGES: Final = pa.schema(
    [PREDICTED.field(name) for name in ("scenario", "generation", "member", "origin", "outcome", "at", "until")]
)
"""What was decided about groups: a few rows a membership event."""
_POSITION: Final = ("dispatcher", "partition", "ledger", "entry", "batch_index")
RECEIVED: Final = Order(
    pa.schema(
        [
            pa.field("dispatcher", pa.string(), nullable=False),
            pa.field("partition", pa.int32(), nullable=False),
            *(pa.field(name, PREDICTED.field(name).type) for name in _POSITION[2:]),
            pa.field("at", pa.int64()),
            pa.field("due", pa.int64()),
            pa.field("until", pa.int64()),
            pa.field("settled", pa.bool_()),
        ]
    ),
    _POSITION[2:],
    scope=("dispatcher", "partition"),
)
"""Predicted deliveries by message, which may have several."""
_SLOTS = pa.schema(
    [
        pa.field("scenario", pa.string(), nullable=False),
        pa.field("bucket", pa.int32(), nullable=False),
        *((name, pa.int64()) for name in ("slot", "messages", "busy")),
    ]
)
_BY_SLOT: Final = Sum(_SLOTS, ("scenario", "bucket", "slot"))
SLOTS: Final = Order(_SLOTS, ("slot",), scope=("scenario", "bucket"))
"""What was served of each slot after the last message was published; there may be as many slots as keys."""
_BUCKETS: Final = 16  # into which the slots of a scenario are divided


@dataclass(frozen=True)
class SumReplay:
    """Splits ``PREDICTED`` rows into ``outputs``: these rows (``predicted``) and all that a report needs of them.

    ``last_published`` is when the last message was published, ``width`` that of windows, ``ticks`` how much before
    their time messages of each scenario may be delivered, ``cumulative`` how consumers acknowledge, by scenario.
    """

    scenarios: tuple[str, ...]
    last_published: int
    width: int
    ticks: Mapping[str, int]
    cumulative: Mapping[str, Cumulative] = field(default_factory=dict)

    @property
    def outputs(self) -> Mapping[str, pa.Schema | Order]:
        """What comes of it, but for ``log_output`` of each scenario."""
        sums = {name: each.schema for name, each in SUMS.items()}
        return {
            **sums,
            "predicted": PREDICTED,
            "changes": CHANGES,
            "received": RECEIVED,
            "slots": SLOTS,
            "waits": WAITS,
        }

    def __call__(self, predicted: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        adding = {name: each.adding() for name, each in SUMS.items()} | {"slots": _BY_SLOT.adding()}
        for rows in gathered(predicted):
            yield from named("predicted", rows)
            kinds = ints(rows, "kind")
            of_kind = {kind: _where(rows, kinds == kind) for kind in np.unique(kinds).tolist()}
            if mine := of_kind.get(DELIVERY):
                for name, sums in self._of_deliveries(mine).items():
                    adding[name].add(sums)
                yield from named("received", self._received(mine))
                numbers = scenario_numbers(mine, self.scenarios)
                for number in np.unique(numbers).tolist() if self.cumulative else []:
                    acknowledged = self.cumulative[self.scenarios[number]]
                    log = delivery_log_rows(_where(mine, numbers == number), acknowledged)
                    yield from named(log_output(number), log)
            if mine := of_kind.get(INTERVAL):
                adding["backlog"].add(self._backlog(mine))
            if mine := of_kind.get(WAITED):
                yield from named("waits", waits_to_sum(mine))
            if mine := of_kind.get(CHANGE):
                yield from named("changes", mine.select(CHANGES.names))
            for name, sums in adding.items():
                for enough in sums.taken(MOST_SUMS):
                    yield from named(name, enough)
        for name, sums in adding.items():
            yield from named(name, sums.together())

    def _of_deliveries(self, rows: pa.Table) -> dict[str, pa.Table]:
        late = self._late(rows)
        return {
            "outcomes": self._outcomes(rows),
            "latencies": self._acknowledged(rows),
            "taken": self._taken(rows),
            "pending": _pending(rows),
            "held": self._held(rows),
            "drains": _drains(late),
            "slots": _slots(late),
        }

    def _outcomes(self, rows: pa.Table) -> pa.Table:
        done = pc.max_element_wise(rows["acked_at"], rows["nacked_at"], rows["delivered_at"])
        until = self._window(self.last_published) + self.width
        late = pc.and_(rows["settled"], pc.and_(pc.greater(done, self.last_published), pc.less(done, until)))
        given = {
            "rows": pa.repeat(1, len(rows)),
            "delivered": rows["delivered_at"].is_valid(),
            "retried": pc.greater(rows["retries"], 0),
            "last": done,
            "late": pc.fill_null(late, False),
        }
        return _summed(OUTCOMES, rows, given)

    def _acknowledged(self, rows: pa.Table) -> pa.Table:
        mine = rows.filter(pc.and_(rows["settled"], rows["acked_at"].is_valid()))
        mine = mine.select(["scenario", "at", "due", "acked_at"]).rename_columns(["scenario", "at", "due", "until"])
        return histogram(mine, "acked", self.ticks)

    def _received(self, rows: pa.Table) -> pa.Table:
        numbers = pa.array(scenario_numbers(rows, self.scenarios))
        given = {"dispatcher": with_dispatcher(numbers, column(rows, "topic")), "until": rows["received_at"]}
        return pa.table([given[f.name] if f.name in given else rows[f.name] for f in RECEIVED.schema],
                        schema=RECEIVED.schema)  # fmt: skip

    def _taken(self, rows: pa.Table) -> pa.Table:
        mine = rows.filter(rows["received_at"].is_valid())
        done = pc.coalesce(mine["processed_at"], mine["acked_at"], mine["nacked_at"])
        given = {
            "window": pa.array(self._window(ints(mine, "received_at"))),
            "width": pa.repeat(self.width, len(mine)),
            "messages": pa.repeat(1, len(mine)),
            "bytes": mine["size"],
            "redelivered": pc.greater(mine["redelivery_count"], 0),
            "busy_until": done,
            "delivered_until": mine["delivered_at"],
        }
        return _summed(TAKEN, mine, given)

    def _backlog(self, rows: pa.Table) -> pa.Table:
        given = {"window": pa.array(self._window(ints(rows, "at"))), "published": rows["messages_published"],
                 "settled": rows["messages_settled"]}  # fmt: skip
        return _summed(BACKLOG, rows, given)

    def _held(self, rows: pa.Table) -> pa.Table:
        returned = pc.fill_null(pc.equal(rows["outcome"], "returned"), False)  # nobody knows when
        mine = rows.filter(pc.and_(rows["delivered_at"].is_valid(), pc.invert(returned)))
        end = pc.coalesce(mine["acked_at"], mine["nacked_at"])
        steps = []
        for at, step in ((mine["delivered_at"], 1), (end, -1)):
            known = pa.table({"scenario": mine["scenario"], "at": at}).filter(at.is_valid())
            window = pa.array(self._window(ints(known, "at")))
            steps.append(_summed(HELD, known, {"window": window, "held": pa.repeat(step, len(known))}))
        return pa.concat_tables(steps)

    def _late(self, rows: pa.Table) -> pa.Table:
        """What was served after the last message was published, and the work on it (``busy``)."""
        done = pc.coalesce(rows["processed_at"], rows["acked_at"])
        served = pc.and_(rows["acked_at"].is_valid(), rows["received_at"].is_valid())
        late = pc.and_(pc.greater(done, self.last_published), served)
        rows, done = rows.filter(late), done.filter(late)
        busy = pc.subtract(done, pc.max_element_wise(rows["received_at"], self.last_published))
        return rows.append_column("busy", busy)

    def _window(self, at: Any) -> Any:
        return at - at % self.width


def log_output(number: int) -> str:
    """The output with ``LOG`` rows of the predicted deliveries of a scenario."""
    return f"deliveries {number}"


def _pending(rows: pa.Table) -> pa.Table:
    left = pc.and_(pc.equal(rows["outcome"], "pending"), pc.invert(rows["settled"]))
    mine = rows.filter(left)
    return _summed(PENDING, mine, {"messages": pa.repeat(1, len(mine))})


def _drains(late: pa.Table) -> pa.Table:
    kinds = {"consumer": ("consumer",), "partition": ("topic", "partition")}
    given = {"messages": pa.repeat(1, len(late)), "busy": late["busy"]}
    found = []
    for kind, names in kinds.items():
        others = {
            f.name: pa.nulls(len(late), f.type) for f in DRAINS.schema if f.name in DRAINS.by and f.name not in names
        }
        mine = {**others, "scenario": late["scenario"], "kind": pa.repeat(kind, len(late)), **given}
        found.append(_summed(DRAINS, late, mine))
    return pa.concat_tables(found)


def _slots(late: pa.Table) -> pa.Table:
    bucket = ints(late, "slot", 0) % _BUCKETS
    given = {"bucket": pa.array(bucket), "messages": pa.repeat(1, len(late)), "busy": late["busy"]}
    return _summed(_BY_SLOT, late, given)


def _summed(into: Sum, rows: pa.Table, given: Mapping[str, pa.Array]) -> pa.Table:
    """Rows added up by those of their columns that are not ``given``."""
    columns = [(given[f.name] if f.name in given else rows[f.name]).cast(f.type) for f in into.schema]
    return into.add_up(pa.table(columns, schema=into.schema))


def histogram(rows: pa.Table, event: str, ticks: Mapping[str, int]) -> pa.Table:
    """``LATENCIES`` of an event of messages, which was ``until`` (null: never); they were published ``at`` and ``due``
    when they could be delivered."""
    scenarios = tuple(ticks)
    numbers = np.append(np.array([ticks[name] for name in scenarios], np.int64), 0)  # the last is that of no scenario
    of_each = pc.fill_null(pc.index_in(column(rows, "scenario"), pa.array(scenarios, pa.string())), len(scenarios))
    tolerated = numbers[np.asarray(of_each, np.int64)]
    until, due = ints(rows, "until", NEVER), ints(rows, "due")
    never = until == NEVER
    latency = np.maximum(np.where(never, due, until) - due, 0)
    early = ~never & (until < due - tolerated)
    by = np.where(early, due - until, 0)
    bucket = np.floor(np.log(np.maximum(latency, 1)) / np.log(2) * STEPS).astype(np.int32)
    given = {
        "event": pa.repeat(event, len(rows)),
        "bucket": pa.array(bucket, mask=never),
        "messages": pa.repeat(1, len(rows)),
        "most": pa.array(latency, mask=never),
        "delayed": pa.array(due > ints(rows, "at")),
        "early": pa.array(early),
        "early_least": pa.array(by, mask=~early),
        "early_most": pa.array(by, mask=~early),
    }
    return _summed(LATENCIES, rows, given)


@dataclass(frozen=True)
class SumReceived:
    """``RECEIVED`` rows in order -> ``LATENCIES`` of their messages until an application first took them."""

    scenarios: tuple[str, ...]
    ticks: Mapping[str, int]

    def __call__(self, received: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        adding = LATENCIES.adding()
        for rows in whole_runs(gathered(received), _POSITION):
            adding.add(histogram(self._by_message(rows), "received", self.ticks))
        yield from adding.together().to_batches()

    def _by_message(self, rows: pa.Table) -> pa.Table:
        starts = np.flatnonzero(begins(rows, _POSITION))
        first = {name: np.minimum.reduceat(ints(rows, name, NEVER), starts) for name in ("at", "due", "until")}
        settled = np.logical_or.reduceat(flags(rows, "settled"), starts)
        dispatchers = column(rows, "dispatcher").take(pa.array(starts)).dictionary_encode()
        of_each = [self.scenarios[int(name.split(" ", 1)[0])] for name in dispatchers.dictionary.to_pylist()]
        scenario = pa.array(of_each, pa.string()).take(dispatchers.indices)
        until = pa.array(first["until"], mask=first["until"] == NEVER)
        found = pa.table({"scenario": scenario, "at": first["at"], "due": first["due"], "until": until})
        return found.filter(pa.array((first["until"] != NEVER) | ~settled))


@dataclass(frozen=True)
class WiderWindows:
    """``TAKEN`` rows in windows of the ``widths`` of each scenario, multiples of those that they had."""

    widths: Mapping[str, int]

    def __call__(self, taken: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        adding = TAKEN.adding()
        names = tuple(self.widths)
        widths = np.array([self.widths[name] for name in names], np.int64)
        for rows in gathered(taken):
            width = widths[np.asarray(pc.index_in(column(rows, "scenario"), pa.array(names, pa.string())), np.int64)]
            window = ints(rows, "window")
            adding.add(_summed(TAKEN, rows, {"window": pa.array(window - window % width), "width": pa.array(width)}))
        yield from adding.together().to_batches()


def wide_windows(width: int, ends: Mapping[str, int], start: int, most: int) -> dict[str, int]:
    """The width of windows of each scenario: ``width``, or as many of these as it takes to have ``most`` from ``start``
    to where it ``ends``."""
    return {name: width * max(1, -(-(end - start) // (width * most))) for name, end in ends.items()}


def taken_rows(*parts: pa.Table) -> Rows:
    """What consumers took, by scenario and consumer, and by window (null: all of them together)."""
    rows = pa.concat_tables([TAKEN.schema.empty_table(), *parts])
    of_all = {name: pa.nulls(len(rows), TAKEN.schema.field(name).type) for name in ("window", "width")}
    return TAKEN.rows(rows, _summed(TAKEN, rows, of_all), order=("scenario", "window", "consumer"))


def hottest_slots(slots: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """``SLOTS`` rows in order -> ``DRAINS`` rows: of each scenario that of the slot with the most work."""
    adding = AddingUp(_hottest)
    adding.add(DRAINS.schema.empty_table())
    for rows in whole_runs(gathered(slots), _BY_SLOT.by):
        summed = _BY_SLOT.add_up(rows)
        given = {"kind": pa.repeat("hash", len(summed))}
        given |= {
            name: pa.nulls(len(summed), DRAINS.schema.field(name).type) for name in ("consumer", "topic", "partition")
        }
        adding.add(_summed(DRAINS, summed, given))
    yield from adding.together().to_batches()


def _hottest(rows: pa.Table) -> pa.Table:
    """Of each scenario and kind the row with the most work; of several the first by what it is about."""
    found = in_order(rows, "scenario", "kind", ("busy", "descending"), *DRAINS.by[2:])
    return found.filter(pa.array(begins(found, ("scenario", "kind"))))


def drain_rows(*parts: pa.Table) -> Rows:
    """Of each scenario the consumer, the slot and the partition with the most work after the last message was
    published."""
    summed = DRAINS.add_up(pa.concat_tables([DRAINS.schema.empty_table(), *parts]))
    columns = ("scenario", *DRAINS.by[2:], "messages", "busy", "kind")
    return ordered(_hottest(summed).select(columns).to_pylist(), ("scenario", "kind"))


def _where(rows: pa.Table, mine: np.ndarray) -> pa.Table:
    return rows if mine.all() else rows.filter(pa.array(mine))
