"""Messages that were never delivered: skipped (LOST), without an owner (UNROUTABLE), or still waiting (UNSEEN)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from subreplay.columns import UNKNOWN, ints
from subreplay.policies.base import Policy
from subreplay.rules.instants import DispatcherState
from subreplay.rules.registry import Code
from subreplay.rules.timed import with_witnesses
from subreplay.tables import JUDGED

if TYPE_CHECKING:
    from subreplay.rules.judge import Dispatcher


TICK = 1_000_000_000  # ns; a broker looks for due messages once a second (`delayedDeliveryTickTimeMillis`)


def judge_undelivered(policy: Policy, dispatcher: Dispatcher, state: DispatcherState, rows: pa.Table) -> pa.Table:
    """``JUDGED`` columns of messages without a delivery, once all deliveries of their dispatcher are known.

    A message is lost if it was acknowledged unseen, or if it had been published and was due when a later message of
    its slot was given out for the first time, or a later message of any slot of its owner at a time when nothing of
    its own slot was held. (One active consumer and Shared have one slot: everybody's.) A subscription that was merely
    not drained, or waits for a stuck consumer, is late and not lost.
    """
    codes = ints(rows, "codes")
    ordinal, slots, due = ints(rows, "ordinal"), ints(rows, "slot"), ints(rows, "due")
    hashes = ints(rows, "hash").astype(np.uint32)
    last = int(state.scalars[3])
    epoch = dispatcher.timeline.epoch_at(np.array([last]), np.array([0]))[0] if last != UNKNOWN else 0
    owner = np.asarray(dispatcher.timeline.owner_at(slots, hashes, np.full(len(slots), epoch, np.int32)), np.int64)
    served = [state.slots.get(slot, (UNKNOWN, -1, UNKNOWN)) for slot in slots.tolist()]
    free, slot_reached, slot_reached_at = np.array(served, np.int64).reshape(-1, 3).T
    reached, reached_at = np.append(state.reached, -1)[owner], np.append(state.reached_at, UNKNOWN)[owner]
    due = due + np.where(due > ints(rows, "published"), TICK, 0)
    skipped = (slot_reached > ordinal) & (slot_reached_at > due)
    skipped |= (reached > ordinal) & (reached_at > np.maximum(due, free)) & (policy.routing == "slot")
    homeless = (owner < 0) & (policy.routing == "slot") & (len(dispatcher.timeline.connected(int(epoch))) > 0)
    # a subscription that starts at the latest message never sees what was published before its first consumer
    before = ints(rows, "published") < min(dispatcher.sessions.joined, default=UNKNOWN)
    skipped &= ~(before & (ordinal < state.scalars[4]))
    open_question = codes & Code.LOST.bit == 0
    codes[open_question & skipped] |= Code.LOST.bit
    codes[open_question & ~skipped & homeless] |= Code.UNROUTABLE.bit
    codes[codes & (Code.LOST.bit | Code.UNROUTABLE.bit) == 0] |= Code.UNSEEN.bit
    nothing = pa.nulls(len(codes), JUDGED.field("order_witness").type)
    return with_witnesses(rows, codes, ints(rows, "excuses"), nothing, nothing)
