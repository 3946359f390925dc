"""For each delivery: the epoch, who should have got it, and the session of who did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from subreplay.audit.context import Dispatcher, group_alike_dispatchers
from subreplay.audit.deliveries import Ending, Flags
from subreplay.audit.sessions import UNKNOWN_CONSUMER
from subreplay.rows.model.columns import NEVER, UNKNOWN, Ints
from subreplay.rows.model.range_table import NOBODY
from subreplay.semantics.policies.base import Policy
from subreplay.semantics.timelines.group_timeline import REBALANCE_TIMEOUT_NS

ENDS: Final = {
    "": Ending.REVOKED, "revoked": Ending.REVOKED, "assigned": Ending.REVOKED, "owner": Ending.REVOKED,
    "join": Ending.REVOKED, "rebalance": Ending.REVOKED, "closed": Ending.CLOSED, "leave": Ending.CLOSED,
    "lost": Ending.LOST, "crash": Ending.CRASHED,
}  # fmt: skip
"""How what a member of a Kafka group was given ends with its ownership, by the event that ended that."""
SENDING_TIME: Final = 5_000_000
"""How long (ns) what is on its way to a consumer may take (recorded of 4.0.8: 0.2 ms)."""


@dataclass(frozen=True)
class Owners:
    """Columns beside deliveries: ``consumer`` is what it is called in results, ``expected`` a consumer's index, -1 for
    nobody."""

    epoch: Ints
    expected: Ints
    consumer: pa.Array  # in words
    several: Flags  # it may be to other consumers of its name, too
    session: Ints
    left: Ints  # when its session ended; of a Kafka group, when the partition was no longer its own
    ends: Ints  # how: an ``Ending``
    wrong: Flags
    in_transition: Flags


def compare_owners(
    policy: Policy,
    dispatchers: Sequence[Dispatcher],
    number: Ints,
    slots: Ints,
    hashes: NDArray[np.uint32],
    at: Ints,
    seq: Ints,
    names: pa.Array,
    instances: pa.Array,
) -> Owners:
    """Find the owners of deliveries of several dispatchers; ``number`` is the dispatcher of each delivery.

    Dispatchers with the same timeline are looked up together.
    """
    parts = group_alike_dispatchers(dispatchers, number)
    if len(parts) == 1:
        return find_owners_at(policy, parts[0][0], slots, hashes, at, seq, names, instances)
    found = [
        find_owners_at(
            policy, dispatcher, slots[rows], hashes[rows], at[rows], seq[rows], names.take(pa.array(rows)),
            instances.take(pa.array(rows)),
        )
        for dispatcher, rows in parts
    ]  # fmt: skip
    back = np.argsort(np.concatenate([rows for _, rows in parts]))
    columns = ([getattr(part, field.name) for part in found] for field in fields(Owners))
    return Owners(*(_concatenate(each, back) for each in columns))


def _concatenate(parts: list[Any], order: Ints) -> Any:
    """Concatenate Arrow or numpy columns, and put the rows into an order."""
    if isinstance(parts[0], pa.Array):
        return pa.concat_arrays(parts).take(pa.array(order))
    return np.concatenate(parts)[order]


def find_owners_at(
    policy: Policy,
    dispatcher: Dispatcher,
    slots: Ints,
    hashes: NDArray[np.uint32],
    at: Ints,
    seq: Ints,
    names: pa.Array,
    instances: pa.Array,
) -> Owners:
    """Compare the expected owner with the observed consumer of each delivery.

    While a change is under way (requested, not yet complete), the owner before it and the owner after it are both
    right. Otherwise there is exactly one. If several consumers with equal names could have received a delivery, and one
    of them is the owner, it counts as the owner's. Entries that were being written to the active consumer when another
    one took over still go to the former (``PersistentDispatcherSingleActiveConsumer.readEntriesComplete`` checks before
    it sends).

    Members of a Kafka group that is not eager keep a partition until they learn that it has another owner and have
    given it up. If callbacks do not record when that was, the former owner is also right, up to the rebalance timeout.
    """
    timeline, sessions = dispatcher.timeline, dispatcher.sessions
    served = sessions.number_consumers(names, instances)
    session, several = sessions.find(served, at, seq)
    epoch = timeline.find_epochs(at, seq)
    within = epoch.astype(np.int64)  # the epoch that it is right in
    last = timeline.find_last_candidates(at, seq)
    expected = timeline.find_owners(slots, hashes, epoch)
    right = np.ones(len(at), np.bool_)
    if policy.routing != "any":
        right = sessions.fits_session(expected, served)
        session = np.where(right, expected, session)
        for step in range(1, int((last - epoch).max(initial=0)) + 1):
            again = np.flatnonzero(~right & (epoch + step <= last))
            candidates = timeline.find_owners(slots[again], hashes[again], epoch[again] + np.int32(step))
            right[again] = found = sessions.fits_session(candidates, served.of(again))
            session[again[found]] = candidates[found]
            within[again[found]] += step
    in_transition = last > epoch
    if policy.routing == "partition":
        late = np.flatnonzero(~right & (at != UNKNOWN))
        before = timeline.find_owners(
            slots[late], hashes[late], timeline.find_epochs(at[late] - SENDING_TIME, seq[late])
        )
        right[late] = found = sessions.fits_session(before, served.of(late))
        in_transition[late] |= found
    left = np.append(np.array([end.at for end in sessions.left], np.int64), NEVER)[session]
    ends = np.full(len(at), Ending.CLOSED, np.int64)
    if policy.serving == "polled":
        tenures = timeline.tenures
        left = np.where(right & (session >= 0), tenures.until[within], left)
        ends = np.where(right, np.array([ENDS[how] for how in tenures.ends], np.int64)[within], ends)
        if not timeline.ends and policy.rebalance != "eager":  # type: ignore[attr-defined]
            late = np.flatnonzero(~right & (at != UNKNOWN))
            had, lost = tenures.before[epoch[late]], tenures.lost[epoch[late]]
            found = (
                (had != NOBODY)
                & (at[late] - lost <= REBALANCE_TIMEOUT_NS)
                & sessions.fits_session(had, served.of(late))
            )
            late = late[found]
            right[late], in_transition[late], session[late] = True, True, had[found]
            left[late], ends[late] = at[late], Ending.REVOKED
    return Owners(
        epoch.astype(np.int64),
        expected.astype(np.int64),
        sessions.label_consumers(names, instances, session),
        several,
        session,
        left,
        ends,
        ~right & (session != UNKNOWN_CONSUMER),
        in_transition,
    )
