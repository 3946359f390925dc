"""A broker's log of any size: each file is parsed by itself, each subscription of a topic partition is folded as a
stream of its sorted events.

What has to be known of the whole log before the folds are the counts of its files, the lines that tell of members, and
the membership.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.broker_log.acts import ACTS
from subreplay.adapters.broker_log.adapter import BATCH
from subreplay.adapters.broker_log.deliveries import STEPS
from subreplay.adapters.broker_log.logs import SIZES, sizes
from subreplay.adapters.broker_log.parsing import NUMBERED, TOTALS, LogFile, blocks
from subreplay.adapters.broker_log.stories import KINDS, Story, telling_of_members, told
from subreplay.adapters.streams import REJECTED, Batches, Rows, as_batches, changes, quarantine
from subreplay.rows.model.tables import DELIVERIES, QUARANTINE
from subreplay.rows.sorted_blocks import Order

_DISPATCHER: Final = "dispatcher"  # a topic and its subscription
IN_ORDER: Final = Order(
    pa.schema([pa.field(_DISPATCHER, pa.string(), nullable=False), *NUMBERED]), ("seq", "nth"), (),
    (_DISPATCHER, "partition"),
)  # fmt: skip
"""The events of each dispatcher in order."""
PARSED: Final = {
    "steps": IN_ORDER.schema, "connections": NUMBERED, REJECTED: QUARANTINE, "totals": TOTALS, "kinds": KINDS,
    "telling": NUMBERED, "acts": ACTS,
}  # fmt: skip
"""What ``parse`` gives; ``connections`` are the events of all topics of one."""
_UNNAMED: Final = pa.schema([("file", pa.string()), ("count", pa.int64())])
FOLDED: Final = {"deliveries": DELIVERIES, REJECTED: QUARANTINE, "sizes": SIZES, "unnamed": _UNNAMED}
"""What ``fold`` gives; ``unnamed`` counts the rejected rows by file."""


def parse(file: LogFile) -> Rows:
    """What a file tells (``PARSED``)."""
    for block in blocks(file):
        of_topic = pc.is_valid(block.events["topic"])
        yield "steps", _steps(block.events)
        yield "connections", block.events.filter(pc.invert(of_topic))
        yield REJECTED, quarantine(block.rejected)
        yield "totals", block.totals
        yield "acts", block.acts
        yield "kinds", block.events.select(KINDS.names).group_by(KINDS.names).aggregate([])
        yield "telling", telling_of_members(block.events.filter(of_topic))


def _steps(events: pa.Table) -> pa.Table:
    """The events that the fold of a dispatcher looks at, with its name."""
    known = [pc.is_valid(events[name]) for name in ("topic", "partition", "subscription")]
    steps = pc.is_in(events["kind"], value_set=pa.array([*STEPS]))
    mine = events.filter(pc.and_(pc.and_(known[0], known[1]), pc.and_(known[2], steps)))
    return mine.add_column(0, _DISPATCHER, pc.binary_join_element_wise(mine["topic"], mine["subscription"], "\n"))


def of_connections(connections: pa.Array, batches: Batches) -> Iterator[pa.RecordBatch]:
    """The events of some connections."""
    for batch in batches:
        yield batch.filter(pc.is_in(batch.column("connection"), value_set=connections))


def by_dispatcher(stories: Iterable[Story]) -> dict[tuple[str, int], Story]:
    """Stories by the scope of their events (``IN_ORDER``)."""
    return {(f"{story.topic}\n{story.subscription}", story.partition): story for story in stories}


def fold(
    stories: Mapping[tuple[str, int], Story], twice: tuple[str, ...], batches: Batches
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """What is told by the stories (``FOLDED``) without the files that are there ``twice``, of events in order."""
    return as_batches(_folded(stories, pa.array(twice, pa.string()), batches), FOLDED)


def _folded(stories: Mapping[tuple[str, int], Story], twice: pa.Array, batches: Batches) -> Rows:
    for scope, parts in groupby(_stretches(batches, twice), itemgetter(0)):
        for kind, table in told(stories[scope], _gathered(part for _, part in parts)) if scope in stories else ():
            yield kind, table
            if kind == "deliveries":
                yield "sizes", sizes(table)
            else:
                counts = table.group_by("file").aggregate([([], "count_all")])
                yield "unnamed", counts.rename_columns(_UNNAMED.names)


def _stretches(batches: Batches, twice: pa.Array) -> Iterator[tuple[tuple[str, int], pa.Table]]:
    """Rows of one dispatcher, with its scope."""
    for batch in batches:
        rows = pa.Table.from_batches([batch.filter(pc.invert(pc.is_in(batch.column("file"), value_set=twice)))])
        rows = rows.combine_chunks()
        inner = (np.flatnonzero(changes(rows, IN_ORDER.scope)) + 1).tolist()
        for begin, end in pairwise([0, *inner, len(rows)]):
            if end > begin:
                name, partition = (rows[name][begin].as_py() for name in IN_ORDER.scope)
                yield (name, partition), rows.slice(begin, end - begin).select(NUMBERED.names).cast(NUMBERED)


def _gathered(parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Rows as many at a time as are folded at once."""
    held, count = [], 0
    for part in parts:
        held.append(part)
        count += len(part)
        if count >= BATCH:
            yield pa.concat_tables(held)
            held, count = [], 0
    if held:
        yield pa.concat_tables(held)
