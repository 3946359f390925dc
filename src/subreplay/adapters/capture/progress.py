"""Which receipts a cumulative acknowledgement, or a commit, ends: those before it of its partition up to its position.

The first one that comes after a receipt counts. So a receipt waits until one does, and no longer than there are any.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.capture.checks import VALID, Mask, are, codes, nulls
from subreplay.adapters.capture.joins import NONE, first_after, ranks
from subreplay.capture.events import Event
from subreplay.rows.model.columns import ints

_WHOLE_ENTRY: Final = np.iinfo(np.int64).max
COVERED: Final = pa.schema([*VALID, ("covered_seq", pa.int64()), ("covered_at", pa.int64())])
"""Events; of a receipt also the number and the time (ns) of the first event that acknowledges it with all before."""


def covered(events: pa.Table) -> pa.Table:
    """Valid events as ``COVERED``."""
    cumulative = are(events, Event.ACKNOWLEDGE_CUMULATIVE) & nulls(events, "error")
    commit = are(events, Event.COMMIT) & nulls(events, "error")
    entry, index = ints(events, "entry"), ints(events, "batch_index")
    told = entry >= 0
    entry = np.where(commit, entry - 1, entry)  # a commit names what is read next
    index = np.where(commit | (cumulative & (index < 0)), _WHOLE_ENTRY, index)
    scope = ranks(codes(events, "instance"), codes(events, "topic"), ints(events, "partition"))
    position, seq = ranks(ints(events, "ledger"), entry, index), ints(events, "seq")
    receipts = np.flatnonzero(are(events, Event.RECEIVE))
    ends = np.flatnonzero(cumulative | (commit & told))
    by = np.full(len(events), NONE, np.int64)
    by[receipts] = first_after(
        scope[receipts], seq[receipts], position[receipts], scope[ends], seq[ends], position[ends]
    )
    source = pa.array(ends[by] if len(ends) else by, mask=by == NONE)
    told_by = [events[name].take(source) for name in ("seq", "at_ns")]
    return pa.table([*events.select(VALID.names).columns, *told_by], schema=COVERED)


def last_ends(events: pa.Table) -> pa.Table:
    """By instance the highest number of an event that may acknowledge several receipts (``LAST``)."""
    ends = events.filter(pa.array(are(events, Event.ACKNOWLEDGE_CUMULATIVE, Event.COMMIT)))
    return ends.group_by("instance").aggregate([("seq", "max")]).rename_columns(LAST.names).cast(LAST)


LAST: Final = pa.schema([("instance", pa.string()), ("seq", pa.int64())])


class Progress:
    """Follows valid events in the order of their instances and numbers. ``last`` is by instance the number of the last
    event that may acknowledge several receipts; 0 or less of receipts that none comes after."""

    def __init__(self, last: Mapping[str, int]) -> None:
        self._last = last
        self._waiting = COVERED.empty_table()

    def take(self, events: pa.Table) -> pa.Table:
        """``COVERED`` events of which all is known, each once."""
        found = covered(pa.concat_tables([self._waiting.select(VALID.names), events]))
        waits = self._waits(found)
        self._waiting = found.filter(pa.array(waits)).combine_chunks()
        return found.filter(pa.array(~waits))

    def finish(self) -> pa.Table:
        """Those that still waited."""
        return self._waiting

    def _waits(self, found: pa.Table) -> Mask:
        if not len(found):
            return np.zeros(0, np.bool_)
        instance, seq = (found[name][-1].as_py() for name in ("instance", "seq"))
        if self._last.get(instance, 0) <= seq:
            return np.zeros(len(found), np.bool_)
        mine = np.asarray(pc.equal(found["instance"], instance).to_numpy(), np.bool_)
        return mine & are(found, Event.RECEIVE) & nulls(found, "covered_seq")
