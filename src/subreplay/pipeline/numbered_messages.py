"""Number messages of a source without offsets by time, and drop exact copies of messages."""

from __future__ import annotations

import pyarrow.compute as pc

from subreplay.adapters.source.canonical_rows import BY_TIME, number_messages, split_for_numbers
from subreplay.engine.interface import Dataset, Engine
from subreplay.rows.model.tables import LOG
from subreplay.rows.scan.copies import COPIES, split_copies
from subreplay.rows.sorted_blocks import BY_POSITION


def number_by_time(engine: Engine, messages: Dataset) -> Dataset:
    """Number the readable messages of each topic partition from 0 in the order of their times.

    The messages are canonical, with column ``rejected``.
    """
    outputs = messages.split(split_for_numbers, {"messages": BY_TIME, "others": messages.schema})
    in_order = engine.sort([outputs["messages"]], BY_TIME)
    return engine.concat([in_order.map(number_messages, messages.schema), outputs["others"]])


def drop_copies(engine: Engine, messages: Dataset) -> tuple[Dataset, int]:
    """Return valid messages as rows of the log without exact copies, and the number of copies."""
    in_order = engine.sort([messages], BY_POSITION)
    outputs = in_order.split(split_copies, {"messages": LOG, "copies": COPIES})
    return outputs["messages"], pc.sum(outputs["copies"].to_table()["copies"]).as_py() or 0
