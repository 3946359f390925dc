"""Run a broker's log of any size as stages: each file is parsed separately, and each subscription of a topic partition
is folded as a stream of its sorted events.

Before the folds the driver needs the counts of all files, the lines about members, and the membership.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.broker_log.broker_logs import DELIVERY_COUNTS, count_deliveries
from subreplay.adapters.broker_log.located_rows import BATCH_EVENTS
from subreplay.adapters.broker_log.log_deliveries import STEP_KINDS
from subreplay.adapters.broker_log.log_dispatchers import EVENT_KINDS, Dispatcher, fold_dispatcher, select_member_events
from subreplay.adapters.broker_log.numbered_events import BLOCK_TOTALS, NUMBERED_EVENTS, LogFile, parse_blocks
from subreplay.adapters.broker_log.operator_acts import ACTS
from subreplay.adapters.streams import REJECTED, Batches, Rows, build_quarantine, find_changes, split_into_batches
from subreplay.rows.model.tables import DELIVERIES, QUARANTINE
from subreplay.rows.sorted_blocks import Order

_DISPATCHER: Final = "dispatcher"  # a topic with a subscription
DISPATCHER_ORDER: Final = Order(
    pa.schema([pa.field(_DISPATCHER, pa.string(), nullable=False), *NUMBERED_EVENTS]), ("seq", "nth"), (),
    (_DISPATCHER, "partition"),
)  # fmt: skip
"""The order of events: by dispatcher, then by number."""
PARSED_SCHEMAS: Final = {
    "steps": DISPATCHER_ORDER.schema,
    "connections": NUMBERED_EVENTS,
    REJECTED: QUARANTINE,
    "totals": BLOCK_TOTALS,
    "kinds": EVENT_KINDS,
    "member_events": NUMBERED_EVENTS,
    "acts": ACTS,
}
"""The outputs of ``parse_file``. ``connections`` are events of connections, which concern all their topics."""
_UNNAMED: Final = pa.schema([("file", pa.string()), ("count", pa.int64())])
FOLDED_SCHEMAS: Final = {"deliveries": DELIVERIES, REJECTED: QUARANTINE, "sizes": DELIVERY_COUNTS, "unnamed": _UNNAMED}
"""The outputs of ``fold_dispatchers``. ``unnamed`` counts the rejected rows by file."""


def parse_file(file: LogFile) -> Rows:
    """Parse a file (``PARSED_SCHEMAS``)."""
    for block in parse_blocks(file):
        of_topic = pc.is_valid(block.events["topic"])
        yield "steps", _select_steps(block.events)
        yield "connections", block.events.filter(pc.invert(of_topic))
        yield REJECTED, build_quarantine(block.rejected)
        yield "totals", block.totals
        yield "acts", block.acts
        yield "kinds", block.events.select(EVENT_KINDS.names).group_by(EVENT_KINDS.names).aggregate([])
        yield "member_events", select_member_events(block.events.filter(of_topic))


def _select_steps(events: pa.Table) -> pa.Table:
    """Select the events that the fold of a dispatcher reads, and add the dispatcher's name."""
    known = [pc.is_valid(events[name]) for name in ("topic", "partition", "subscription")]
    steps = pc.is_in(events["kind"], value_set=pa.array([*STEP_KINDS]))
    selected = events.filter(pc.and_(pc.and_(known[0], known[1]), pc.and_(known[2], steps)))
    dispatcher = pc.binary_join_element_wise(selected["topic"], selected["subscription"], "\n")
    return selected.add_column(0, _DISPATCHER, dispatcher)


def select_connections(connections: pa.Array, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Select the events of some connections."""
    for batch in batches:
        yield batch.filter(pc.is_in(batch.column("connection"), value_set=connections))


def index_dispatchers(dispatchers: Iterable[Dispatcher]) -> dict[tuple[str, int], Dispatcher]:
    """Index dispatchers by the scope of their events (``DISPATCHER_ORDER``)."""
    return {
        (f"{dispatcher.topic}\n{dispatcher.subscription}", dispatcher.partition): dispatcher
        for dispatcher in dispatchers
    }


def fold_dispatchers(
    dispatchers: Mapping[tuple[str, int], Dispatcher], duplicates: tuple[str, ...], batches: Batches
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Fold the ordered events of dispatchers (``FOLDED_SCHEMAS``), without the duplicate files ``duplicates``."""
    return split_into_batches(_fold_parts(dispatchers, pa.array(duplicates, pa.string()), batches), FOLDED_SCHEMAS)


def _fold_parts(dispatchers: Mapping[tuple[str, int], Dispatcher], duplicates: pa.Array, batches: Batches) -> Rows:
    for scope, parts in groupby(_split_by_dispatcher(batches, duplicates), itemgetter(0)):
        for kind, table in (
            fold_dispatcher(dispatchers[scope], _gather_batches(part for _, part in parts))
            if scope in dispatchers
            else ()
        ):
            yield kind, table
            if kind == "deliveries":
                yield "sizes", count_deliveries(table)
            else:
                counts = table.group_by("file").aggregate([([], "count_all")])
                yield "unnamed", counts.rename_columns(_UNNAMED.names)


def _split_by_dispatcher(batches: Batches, duplicates: pa.Array) -> Iterator[tuple[tuple[str, int], pa.Table]]:
    """Split batches into rows of one dispatcher each, with its scope."""
    for batch in batches:
        rows = pa.Table.from_batches([batch.filter(pc.invert(pc.is_in(batch.column("file"), value_set=duplicates)))])
        rows = rows.combine_chunks()
        inner = (np.flatnonzero(find_changes(rows, DISPATCHER_ORDER.scope)) + 1).tolist()
        for begin, end in pairwise([0, *inner, len(rows)]):
            if end > begin:
                name, partition = (rows[name][begin].as_py() for name in DISPATCHER_ORDER.scope)
                yield (
                    (name, partition),
                    rows.slice(begin, end - begin).select(NUMBERED_EVENTS.names).cast(NUMBERED_EVENTS),
                )


def _gather_batches(parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Concatenate rows to tables of at least ``BATCH_EVENTS`` rows, the last one excepted."""
    tables, count = [], 0
    for part in parts:
        tables.append(part)
        count += len(part)
        if count >= BATCH_EVENTS:
            yield pa.concat_tables(tables)
            tables, count = [], 0
    if tables:
        yield pa.concat_tables(tables)
