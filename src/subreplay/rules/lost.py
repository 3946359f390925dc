"""Messages that were never delivered: skipped (LOST), without an owner (UNROUTABLE), or still waiting (UNSEEN)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from subreplay.columns import NEVER, UNKNOWN, ints
from subreplay.policies.base import Policy
from subreplay.rules.instants import DispatcherState
from subreplay.rules.registry import Code
from subreplay.rules.timed import with_witnesses
from subreplay.tables import JUDGED

if TYPE_CHECKING:
    from subreplay.rules.judge import Dispatcher


def judge_undelivered(policy: Policy, dispatcher: Dispatcher, state: DispatcherState, rows: pa.Table) -> pa.Table:
    """``JUDGED`` columns of messages without a delivery, once all deliveries of their dispatcher are known.

    A message is lost if it was acknowledged unseen, or if its owner (for Shared: anybody) was given a later message for the first
    time although this one had been published, was due, and no earlier message of its slot was held. A subscription that was merely
    not drained, or waits for a stuck consumer, is late and not lost.
    """
    codes = ints(rows, "codes")
    ordinal, slots, due = ints(rows, "ordinal"), ints(rows, "slot"), ints(rows, "due")
    hashes = ints(rows, "hash").astype(np.uint32)
    last = int(state.scalars[3])
    epoch = dispatcher.timeline.epoch_at(np.array([last]), np.array([0]))[0] if last != UNKNOWN else 0
    owner = np.asarray(dispatcher.timeline.owner_at(slots, hashes, np.full(len(slots), epoch, np.int32)), np.int64)
    free = np.array([state.slot_free.get(slot, UNKNOWN) for slot in slots.tolist()], np.int64)
    if policy.routing == "any":
        best = int(np.argmax(state.reached)) if len(state.reached) else -1
        owner = np.full(len(slots), best, np.int64)
        free = np.full(len(slots), UNKNOWN)
    reached, reached_at = np.append(state.reached, -1)[owner], np.append(state.reached_at, UNKNOWN)[owner]
    skipped = (reached > ordinal) & (reached_at > np.maximum(due, free)) & (free != NEVER)
    homeless = (owner < 0) & (policy.routing == "slot") & (len(dispatcher.timeline.connected(int(epoch))) > 0)
    open_question = codes & Code.LOST.bit == 0
    codes[open_question & skipped] |= Code.LOST.bit
    codes[open_question & ~skipped & homeless] |= Code.UNROUTABLE.bit
    codes[codes & (Code.LOST.bit | Code.UNROUTABLE.bit) == 0] |= Code.UNSEEN.bit
    nothing = pa.nulls(len(codes), JUDGED.field("order_witness").type)
    return with_witnesses(rows, codes, ints(rows, "excuses"), nothing, nothing)
