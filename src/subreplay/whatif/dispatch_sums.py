"""Sum the rows of a dispatch replay (``PREDICTED``): each task sums its rows in one pass, then the sums are added up.

Times and windows are in ns. Windows begin at multiples of their width.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.rows.groups import Accumulator, sort_table
from subreplay.rows.model.columns import NEVER, column, flags, gather_batches, ints
from subreplay.rows.sorted_blocks import Order
from subreplay.whatif.dispatch_replay import CHANGE, DELIVERY, INTERVAL, PREDICTED, WAITED
from subreplay.whatif.grouped_sums import GroupedSum, Rows, find_run_starts, iterate_whole_runs, name_batches, sort_rows
from subreplay.whatif.replay_rows import CumulativeAcks, build_delivery_log, find_scenario_numbers, name_dispatchers
from subreplay.whatif.wait_sums import WAITS, build_wait_levels

STEPS: Final = 64  # buckets of a histogram for every doubling: quantiles are within 1.1 %
MOST_SUMS: Final = 1 << 18
"""The largest number of rows of one sum that a task keeps. It emits them when there are more."""


_SCENARIO: Final = [("scenario", pa.string())]


def _build_schema(by: Sequence[tuple[str, pa.DataType]], *added: str) -> pa.Schema:
    return pa.schema([*_SCENARIO, *by, *((name, pa.int64()) for name in added)])


OUTCOMES: Final = GroupedSum(
    _build_schema([("outcome", pa.string()), ("settled", pa.bool_())], "rows", "delivered", "retried", "last", "late"),
    ("scenario", "outcome", "settled"),
    maximums=("last",),
)
"""Delivery rows counted by outcome, and by whether the message was settled.

``late`` counts messages that were settled after the last message was published, but in the same window.
"""
LATENCIES: Final = GroupedSum(
    _build_schema(
        [("event", pa.string()), ("bucket", pa.int32())],
        *("messages", "most", "delayed", "early", "early_least", "early_most"),
    ),
    ("scenario", "event", "bucket"),
    minimums=("early_least",),
    maximums=("most", "early_most"),
)
"""Latency histograms by event: bucket b counts latencies in ``[2**(b/STEPS), 2**((b+1)/STEPS))`` ns.

Latency runs from the time when a message is due to the time when an application first received it (``received``) or
acknowledged it (``acked``). The bucket is null for messages that no application received and that are not settled.
``early`` counts messages received before they were due by more than one tick of the scenario; ``early_least`` and
``early_most`` are by how much. ``delayed`` counts messages with a delay.
"""
TAKEN: Final = GroupedSum(
    _build_schema(
        [("consumer", pa.string()), ("window", pa.int64()), ("width", pa.int64())],
        *("messages", "bytes", "redelivered", "busy_until", "delivered_until"),
    ),
    ("scenario", "consumer", "window", "width"),
    maximums=("busy_until", "delivered_until"),
)
"""What each consumer's application received, by window. ``busy_until`` is when the work on it ended."""
PENDING: Final = GroupedSum(_build_schema([("consumer", pa.string())], "messages"), ("scenario", "consumer"))
"""Messages that were neither acknowledged nor given up at the end, by the consumer that has them (null: none)."""
BACKLOG: Final = GroupedSum(_build_schema([("window", pa.int64())], "published", "settled"), ("scenario", "window"))
"""Messages published and settled, by window."""
UNACKED: Final = GroupedSum(_build_schema([("window", pa.int64())], "held"), ("scenario", "window"))
"""Messages delivered to consumers minus messages that left them, by window. The running sum is unacknowledged."""
DRAINS: Final = GroupedSum(
    _build_schema(
        [("kind", pa.string()), ("consumer", pa.string()), ("slot", pa.int64()), ("topic", pa.string()),
         ("partition", pa.int32())],
        *("messages", "busy"),
    ),
    ("scenario", "kind", "consumer", "slot", "topic", "partition"),
)  # fmt: skip
"""What was processed after the last message was published, by consumer, slot or partition."""
SUMS: Final[Mapping[str, GroupedSum]] = {
    "outcomes": OUTCOMES, "latencies": LATENCIES, "taken": TAKEN, "pending": PENDING, "backlog": BACKLOG,
    "held": UNACKED, "drains": DRAINS,
}  # fmt: skip
CHANGES: Final = pa.schema(
    [PREDICTED.field(name) for name in ("scenario", "generation", "member", "origin", "outcome", "at", "until")]
)
"""Decisions about consumer groups: a few rows for each membership event."""
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
"""Predicted deliveries sorted by message. One message may have several."""
_SLOTS = pa.schema(
    [
        pa.field("scenario", pa.string(), nullable=False),
        pa.field("bucket", pa.int32(), nullable=False),
        *((name, pa.int64()) for name in ("slot", "messages", "busy")),
    ]
)
_BY_SLOT: Final = GroupedSum(_SLOTS, ("scenario", "bucket", "slot"))
SLOTS: Final = Order(_SLOTS, ("slot",), scope=("scenario", "bucket"))
"""What was processed of each slot after the last message was published. There may be as many slots as keys."""
_BUCKETS: Final = 16  # the slots of a scenario are divided into this many buckets


@dataclass(frozen=True)
class SumReplay:
    """Splits ``PREDICTED`` rows into ``outputs``: the rows themselves (``predicted``) and the sums that a report needs.

    ``last_published`` is when the last message was published, and ``width`` is the width of windows. ``ticks`` is how
    early each scenario may deliver a message. ``cumulative`` says which consumers of a scenario acknowledge
    cumulatively.
    """

    scenarios: tuple[str, ...]
    last_published: int
    width: int
    ticks: Mapping[str, int]
    cumulative: Mapping[str, CumulativeAcks] = field(default_factory=dict)

    @property
    def outputs(self) -> Mapping[str, pa.Schema | Order]:
        """The outputs by name, except for ``name_log_output`` of each scenario."""
        sums = {name: summed.schema for name, summed in SUMS.items()}
        return {
            **sums,
            "predicted": PREDICTED,
            "changes": CHANGES,
            "received": RECEIVED,
            "slots": SLOTS,
            "waits": WAITS,
        }

    def __call__(self, predicted: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        adding = {name: summed.start_adding() for name, summed in SUMS.items()} | {"slots": _BY_SLOT.start_adding()}
        for rows in gather_batches(predicted):
            yield from name_batches("predicted", rows)
            kinds = ints(rows, "kind")
            rows_by_kind = {kind: _filter_rows(rows, kinds == kind) for kind in np.unique(kinds).tolist()}
            if selected := rows_by_kind.get(DELIVERY):
                for name, sums in self._sum_deliveries(selected).items():
                    adding[name].add(sums)
                yield from name_batches("received", self._select_received(selected))
                numbers = find_scenario_numbers(selected, self.scenarios)
                for number in np.unique(numbers).tolist() if self.cumulative else []:
                    acknowledged = self.cumulative[self.scenarios[number]]
                    log = build_delivery_log(_filter_rows(selected, numbers == number), acknowledged)
                    yield from name_batches(name_log_output(number), log)
            if selected := rows_by_kind.get(INTERVAL):
                adding["backlog"].add(self._sum_backlog(selected))
            if selected := rows_by_kind.get(WAITED):
                yield from name_batches("waits", build_wait_levels(selected))
            if selected := rows_by_kind.get(CHANGE):
                yield from name_batches("changes", selected.select(CHANGES.names))
            for name, sums in adding.items():
                for batch_of_sums in sums.take_sums(MOST_SUMS):
                    yield from name_batches(name, batch_of_sums)
        for name, sums in adding.items():
            yield from name_batches(name, sums.compute_sum())

    def _sum_deliveries(self, rows: pa.Table) -> dict[str, pa.Table]:
        late = self._select_late(rows)
        return {
            "outcomes": self._sum_outcomes(rows),
            "latencies": self._sum_acknowledged(rows),
            "taken": self._sum_taken(rows),
            "pending": _sum_pending(rows),
            "held": self._sum_unacked(rows),
            "drains": _sum_drains(late),
            "slots": _sum_slots(late),
        }

    def _sum_outcomes(self, rows: pa.Table) -> pa.Table:
        done = pc.max_element_wise(rows["acked_at"], rows["nacked_at"], rows["delivered_at"])
        until = self._find_window(self.last_published) + self.width
        late = pc.and_(rows["settled"], pc.and_(pc.greater(done, self.last_published), pc.less(done, until)))
        values = {
            "rows": pa.repeat(1, len(rows)),
            "delivered": rows["delivered_at"].is_valid(),
            "retried": pc.greater(rows["retries"], 0),
            "last": done,
            "late": pc.fill_null(late, False),
        }
        return _add_up_by(OUTCOMES, rows, values)

    def _sum_acknowledged(self, rows: pa.Table) -> pa.Table:
        selected = rows.filter(pc.and_(rows["settled"], rows["acked_at"].is_valid()))
        selected = selected.select(["scenario", "at", "due", "acked_at"]).rename_columns(
            ["scenario", "at", "due", "until"]
        )
        return count_latencies(selected, "acked", self.ticks)

    def _select_received(self, rows: pa.Table) -> pa.Table:
        numbers = pa.array(find_scenario_numbers(rows, self.scenarios))
        values = {"dispatcher": name_dispatchers(numbers, column(rows, "topic")), "until": rows["received_at"]}
        return pa.table([values[f.name] if f.name in values else rows[f.name] for f in RECEIVED.schema],
                        schema=RECEIVED.schema)  # fmt: skip

    def _sum_taken(self, rows: pa.Table) -> pa.Table:
        selected = rows.filter(rows["received_at"].is_valid())
        done = pc.coalesce(selected["processed_at"], selected["acked_at"], selected["nacked_at"])
        values = {
            "window": pa.array(self._find_window(ints(selected, "received_at"))),
            "width": pa.repeat(self.width, len(selected)),
            "messages": pa.repeat(1, len(selected)),
            "bytes": selected["size"],
            "redelivered": pc.greater(selected["redelivery_count"], 0),
            "busy_until": done,
            "delivered_until": selected["delivered_at"],
        }
        return _add_up_by(TAKEN, selected, values)

    def _sum_backlog(self, rows: pa.Table) -> pa.Table:
        values = {"window": pa.array(self._find_window(ints(rows, "at"))), "published": rows["messages_published"],
                 "settled": rows["messages_settled"]}  # fmt: skip
        return _add_up_by(BACKLOG, rows, values)

    def _sum_unacked(self, rows: pa.Table) -> pa.Table:
        returned = pc.fill_null(pc.equal(rows["outcome"], "returned"), False)  # the time is not known
        selected = rows.filter(pc.and_(rows["delivered_at"].is_valid(), pc.invert(returned)))
        end = pc.coalesce(selected["acked_at"], selected["nacked_at"])
        steps = []
        for at, step in ((selected["delivered_at"], 1), (end, -1)):
            known = pa.table({"scenario": selected["scenario"], "at": at}).filter(at.is_valid())
            window = pa.array(self._find_window(ints(known, "at")))
            steps.append(_add_up_by(UNACKED, known, {"window": window, "held": pa.repeat(step, len(known))}))
        return pa.concat_tables(steps)

    def _select_late(self, rows: pa.Table) -> pa.Table:
        """Select messages processed after the last message was published, and the work on them (``busy``)."""
        done = pc.coalesce(rows["processed_at"], rows["acked_at"])
        served = pc.and_(rows["acked_at"].is_valid(), rows["received_at"].is_valid())
        late = pc.and_(pc.greater(done, self.last_published), served)
        rows, done = rows.filter(late), done.filter(late)
        busy = pc.subtract(done, pc.max_element_wise(rows["received_at"], self.last_published))
        return rows.append_column("busy", busy)

    def _find_window(self, at: Any) -> Any:
        return at - at % self.width


def name_log_output(number: int) -> str:
    """Return the name of the output with the ``LOG`` rows of a scenario's predicted deliveries."""
    return f"deliveries {number}"


def _sum_pending(rows: pa.Table) -> pa.Table:
    unsettled = pc.and_(pc.equal(rows["outcome"], "pending"), pc.invert(rows["settled"]))
    selected = rows.filter(unsettled)
    return _add_up_by(PENDING, selected, {"messages": pa.repeat(1, len(selected))})


def _sum_drains(late: pa.Table) -> pa.Table:
    kinds = {"consumer": ("consumer",), "partition": ("topic", "partition")}
    values = {"messages": pa.repeat(1, len(late)), "busy": late["busy"]}
    tables = []
    for kind, names in kinds.items():
        others = {
            f.name: pa.nulls(len(late), f.type) for f in DRAINS.schema if f.name in DRAINS.by and f.name not in names
        }
        selected = {**others, "scenario": late["scenario"], "kind": pa.repeat(kind, len(late)), **values}
        tables.append(_add_up_by(DRAINS, late, selected))
    return pa.concat_tables(tables)


def _sum_slots(late: pa.Table) -> pa.Table:
    bucket = ints(late, "slot", 0) % _BUCKETS
    values = {"bucket": pa.array(bucket), "messages": pa.repeat(1, len(late)), "busy": late["busy"]}
    return _add_up_by(_BY_SLOT, late, values)


def _add_up_by(into: GroupedSum, rows: pa.Table, values: Mapping[str, pa.Array]) -> pa.Table:
    """Add up rows by all their columns that are not in ``values``."""
    columns = [(values[f.name] if f.name in values else rows[f.name]).cast(f.type) for f in into.schema]
    return into.add_up(pa.table(columns, schema=into.schema))


def count_latencies(rows: pa.Table, event: str, ticks: Mapping[str, int]) -> pa.Table:
    """Count the latencies of an event as ``LATENCIES`` rows.

    ``rows`` have the columns ``at`` (published), ``due`` (when the message could be delivered) and ``until`` (when the
    event happened; null: never).
    """
    scenarios = tuple(ticks)
    numbers = np.append(
        np.array([ticks[name] for name in scenarios], np.int64), 0
    )  # the last element is for no scenario
    scenario_indexes = pc.fill_null(
        pc.index_in(column(rows, "scenario"), pa.array(scenarios, pa.string())), len(scenarios)
    )
    tolerated = numbers[np.asarray(scenario_indexes, np.int64)]
    until, due = ints(rows, "until", NEVER), ints(rows, "due")
    never = until == NEVER
    latency = np.maximum(np.where(never, due, until) - due, 0)
    early = ~never & (until < due - tolerated)
    by = np.where(early, due - until, 0)
    bucket = np.floor(np.log(np.maximum(latency, 1)) / np.log(2) * STEPS).astype(np.int32)
    values = {
        "event": pa.repeat(event, len(rows)),
        "bucket": pa.array(bucket, mask=never),
        "messages": pa.repeat(1, len(rows)),
        "most": pa.array(latency, mask=never),
        "delayed": pa.array(due > ints(rows, "at")),
        "early": pa.array(early),
        "early_least": pa.array(by, mask=~early),
        "early_most": pa.array(by, mask=~early),
    }
    return _add_up_by(LATENCIES, rows, values)


@dataclass(frozen=True)
class SumReceived:
    """Turns ordered ``RECEIVED`` rows into ``LATENCIES`` rows: until an application first received each message."""

    scenarios: tuple[str, ...]
    ticks: Mapping[str, int]

    def __call__(self, received: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        adding = LATENCIES.start_adding()
        for rows in iterate_whole_runs(gather_batches(received), _POSITION):
            adding.add(count_latencies(self._reduce_by_message(rows), "received", self.ticks))
        yield from adding.compute_sum().to_batches()

    def _reduce_by_message(self, rows: pa.Table) -> pa.Table:
        starts = np.flatnonzero(find_run_starts(rows, _POSITION))
        first = {name: np.minimum.reduceat(ints(rows, name, NEVER), starts) for name in ("at", "due", "until")}
        settled = np.logical_or.reduceat(flags(rows, "settled"), starts)
        dispatchers = column(rows, "dispatcher").take(pa.array(starts)).dictionary_encode()
        scenario_names = [self.scenarios[int(name.split(" ", 1)[0])] for name in dispatchers.dictionary.to_pylist()]
        scenario = pa.array(scenario_names, pa.string()).take(dispatchers.indices)
        until = pa.array(first["until"], mask=first["until"] == NEVER)
        tables = pa.table({"scenario": scenario, "at": first["at"], "due": first["due"], "until": until})
        return tables.filter(pa.array((first["until"] != NEVER) | ~settled))


@dataclass(frozen=True)
class WidenWindows:
    """Sums ``TAKEN`` rows over wider windows. ``widths`` by scenario are multiples of the original width."""

    widths: Mapping[str, int]

    def __call__(self, taken: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        adding = TAKEN.start_adding()
        names = tuple(self.widths)
        widths = np.array([self.widths[name] for name in names], np.int64)
        for rows in gather_batches(taken):
            width = widths[np.asarray(pc.index_in(column(rows, "scenario"), pa.array(names, pa.string())), np.int64)]
            window = ints(rows, "window")
            adding.add(_add_up_by(TAKEN, rows, {"window": pa.array(window - window % width), "width": pa.array(width)}))
        yield from adding.compute_sum().to_batches()


def choose_window_widths(width: int, ends: Mapping[str, int], start: int, most: int) -> dict[str, int]:
    """Return the window width of each scenario, a multiple of ``width``.

    It is the smallest multiple that gives at most ``most`` windows between ``start`` and the end of the scenario.
    """
    return {name: width * max(1, -(-(end - start) // (width * most))) for name, end in ends.items()}


def build_taken_rows(*parts: pa.Table) -> Rows:
    """Return what consumers received, by scenario and consumer, for each window and in total (window null)."""
    rows = pa.concat_tables([TAKEN.schema.empty_table(), *parts])
    of_all = {name: pa.nulls(len(rows), TAKEN.schema.field(name).type) for name in ("window", "width")}
    return TAKEN.build_rows(rows, _add_up_by(TAKEN, rows, of_all), order=("scenario", "window", "consumer"))


def find_hottest_slots(slots: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Turn ordered ``SLOTS`` rows into ``DRAINS`` rows: for each scenario the slot with the most work."""
    adding = Accumulator(_keep_hottest)
    adding.add(DRAINS.schema.empty_table())
    for rows in iterate_whole_runs(gather_batches(slots), _BY_SLOT.by):
        summed = _BY_SLOT.add_up(rows)
        values = {"kind": pa.repeat("hash", len(summed))}
        values |= {
            name: pa.nulls(len(summed), DRAINS.schema.field(name).type) for name in ("consumer", "topic", "partition")
        }
        adding.add(_add_up_by(DRAINS, summed, values))
    yield from adding.compute_sum().to_batches()


def _keep_hottest(rows: pa.Table) -> pa.Table:
    """Keep the row with the most work for each scenario and kind. Ties go to the first in order."""
    tables = sort_table(rows, "scenario", "kind", ("busy", "descending"), *DRAINS.by[2:])
    return tables.filter(pa.array(find_run_starts(tables, ("scenario", "kind"))))


def build_drain_rows(*parts: pa.Table) -> Rows:
    """Return the consumer, slot and partition with the most work after the last message was published, by scenario."""
    summed = DRAINS.add_up(pa.concat_tables([DRAINS.schema.empty_table(), *parts]))
    columns = ("scenario", *DRAINS.by[2:], "messages", "busy", "kind")
    return sort_rows(_keep_hottest(summed).select(columns).to_pylist(), ("scenario", "kind"))


def _filter_rows(rows: pa.Table, selected: np.ndarray) -> pa.Table:
    return rows if selected.all() else rows.filter(pa.array(selected))
