"""Find the receipts that a cumulative acknowledgement or a commit ends: the earlier ones up to its position.

The first such event after a receipt counts. A receipt waits for one as long as any can follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.capture.event_checks import VALID_EVENTS, Mask, encode_column, is_event, is_null
from subreplay.adapters.capture.event_joins import NONE, find_first_after, rank_rows
from subreplay.capture.file_format import CaptureEvent
from subreplay.rows.model.columns import ints

_WHOLE_ENTRY: Final = np.iinfo(np.int64).max
COVERED_EVENTS: Final = pa.schema([*VALID_EVENTS, ("covered_seq", pa.int64()), ("covered_at", pa.int64())])
"""Events. A receipt also has the number and the time (ns) of the first event that acknowledges it cumulatively."""


def find_covering_events(events: pa.Table) -> pa.Table:
    """Find for each receipt the event that acknowledges it cumulatively (``COVERED_EVENTS``)."""
    cumulative = is_event(events, CaptureEvent.ACKNOWLEDGE_CUMULATIVE) & is_null(events, "error")
    commit = is_event(events, CaptureEvent.COMMIT) & is_null(events, "error")
    entry, index = ints(events, "entry"), ints(events, "batch_index")
    has_offset = entry >= 0
    entry = np.where(commit, entry - 1, entry)  # a commit contains the next offset to read
    index = np.where(commit | (cumulative & (index < 0)), _WHOLE_ENTRY, index)
    scope = rank_rows(encode_column(events, "instance"), encode_column(events, "topic"), ints(events, "partition"))
    position, seq = rank_rows(ints(events, "ledger"), entry, index), ints(events, "seq")
    receipts = np.flatnonzero(is_event(events, CaptureEvent.RECEIVE))
    ends = np.flatnonzero(cumulative | (commit & has_offset))
    by = np.full(len(events), NONE, np.int64)
    by[receipts] = find_first_after(
        scope[receipts], seq[receipts], position[receipts], scope[ends], seq[ends], position[ends]
    )
    source = pa.array(ends[by] if len(ends) else by, mask=by == NONE)
    covering = [events[name].take(source) for name in ("seq", "at_ns")]
    return pa.table([*events.select(VALID_EVENTS.names).columns, *covering], schema=COVERED_EVENTS)


def find_last_ends(events: pa.Table) -> pa.Table:
    """Find by instance the highest number of an event that may acknowledge several receipts (``LAST_ENDS``)."""
    ends = events.filter(pa.array(is_event(events, CaptureEvent.ACKNOWLEDGE_CUMULATIVE, CaptureEvent.COMMIT)))
    return ends.group_by("instance").aggregate([("seq", "max")]).rename_columns(LAST_ENDS.names).cast(LAST_ENDS)


LAST_ENDS: Final = pa.schema([("instance", pa.string()), ("seq", pa.int64())])


class AckProgress:
    """Follows valid events in the order of instances and numbers. ``last`` has by instance the number of the last event
    that may acknowledge several receipts, so no receipt waits longer than that."""

    def __init__(self, last: Mapping[str, int]) -> None:
        self._last = last
        self._waiting = COVERED_EVENTS.empty_table()

    def add(self, events: pa.Table) -> pa.Table:
        """Add events, and return the ``COVERED_EVENTS`` events that are complete, each once."""
        found = find_covering_events(pa.concat_tables([self._waiting.select(VALID_EVENTS.names), events]))
        waits = self._is_waiting(found)
        self._waiting = found.filter(pa.array(waits)).combine_chunks()
        return found.filter(pa.array(~waits))

    def finish(self) -> pa.Table:
        """Return the events that still wait."""
        return self._waiting

    def _is_waiting(self, found: pa.Table) -> Mask:
        if not len(found):
            return np.zeros(0, np.bool_)
        instance, seq = (found[name][-1].as_py() for name in ("instance", "seq"))
        if self._last.get(instance, 0) <= seq:
            return np.zeros(len(found), np.bool_)
        of_instance = np.asarray(pc.equal(found["instance"], instance).to_numpy(), np.bool_)
        return of_instance & is_event(found, CaptureEvent.RECEIVE) & is_null(found, "covered_seq")
