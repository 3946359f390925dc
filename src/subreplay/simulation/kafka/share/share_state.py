"""A share group as flat arrays that kernels change: its share partitions, its members, and what they have in hand."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from subreplay.simulation.kafka.group_state import CONSUMED, LAG, NONE, ROWS, STALL
from subreplay.simulation.kafka.share.share_parameters import ShareMemberModel, ShareParameters
from subreplay.simulation.kafka.share.share_window import ShareWindows, create_windows
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records, create_records
from subreplay.simulation.pulsar.service_model import SERVICE, write_service

MEMBER = np.dtype(
    [
        ("runs", "?"),
        ("polls", "?"),  # it waits for records in poll()
        ("polls_from", "i8"),  # since when
        ("epoch", "i8"),  # of its share session
        ("partitions", "i8"),  # how many it is assigned
        ("hand", "i8"),  # records that it has
        ("busy_until", "i8"),  # its application works, or its client is between two requests; NEVER: it waits
        ("locked_until", "i8"),  # when the next lock of its records ends
        ("closing_at", "i8"),  # it closes with its next poll from then on
        ("close_from", "i8"),  # it closes in a batch from then on
        ("close_least", "i8"),  # of so many records
        ("close_done", "f8"),  # when this fraction of them is done
        ("closes", "?"),  # it closes when this batch ends
        ("stall", "i8"),  # next one
        ("stalls_end", "i8"),
        ("stuck_from", "i8"),
        ("stuck_until", "i8"),
        ("explicit", "?"),
        ("commits", "?"),
        ("renew_works", "?"),
        ("overhead", "i8"),
        ("release_rate", "f8"),
        ("reject_rate", "f8"),
        ("renew_rate", "f8"),
        ("mod", "i8"),  # 0: no rule
        ("rule", "i8"),  # its first row in ``rules``
    ],
    align=True,
)
IN_HAND = np.dtype(
    [
        ("slot", "i8"),
        ("delivered_at", "i8"),
        ("received_at", "i8"),
        ("processed_at", "i8"),
        ("partition", "i4"),
        ("count", "i4"),  # its delivery count
        ("renewals", "i4"),
        ("given_up", "?"),  # its acknowledgement was refused, but the lock goes on
    ],
    align=True,
)
"""A record that a member has."""
RULE = np.dtype([("reject", "?"), ("release", "i8"), ("renew", "i8")])
"""What becomes of a remainder of offsets."""
TOTALS = np.dtype(
    [
        ("now", "i8"),
        ("turning", "i8"),  # the member that closes
        ("polling", "i8"),  # members in poll()
        ("rows", "i8"),
        ("lags", "i8"),
        ("max_poll_records", "i8"),
        ("max_wait", "i8"),
        ("interval", "i8"),
        ("interval_number", "i8"),
        ("interval_end", "i8"),
        ("latest", "?"),
        ("seed", "i8"),
    ]
)
COUNTED = np.dtype([("interval", "i8"), ("published", "i8"), ("settled", "i8"), ("opened", "?")])
"""Counts of a partition in its current interval, and whether a member has fetched it."""


class ShareState(NamedTuple):
    """The whole state of a share group. Copies of the tuple share the arrays."""

    totals: Records  # [0]
    windows: ShareWindows
    log: Records  # [slot]: the records, by partition
    counted: Records  # [partition]
    members: Records  # [ordinal of the join]
    assigned: NDArray[np.int64]  # [member, n]: its n-th partition
    has: NDArray[np.bool_]  # [member, partition]
    hands: Records  # [member, n]: what it has, in order
    services: Records
    quantiles: NDArray[np.float64]
    stalls: Records
    rules: Records
    schedule: NDArray[np.int64]
    rows: Records
    lags: Records


def create_share_state(log: Records, partitions: int, members: int, parameters: ShareParameters) -> ShareState:
    """Create a group for so many ``members``, none of which runs, and a log that nobody can read yet.

    ``log`` are all its records (``LOGGED``) in the order of their partitions. Records of a partition that become ready
    at the same time are one batch.
    """
    counts = np.bincount(log["partition"], minlength=partitions)
    bounds = np.concatenate([[0], np.cumsum(counts)])
    ends = [_find_batch_ends(np.asarray(log.ready[a:b])) for a, b in pairwise(bounds.tolist())]
    widest = max((int(np.diff(np.unique(one), prepend=0).max()) for one in ends if len(one)), default=1)
    totals = create_records(1, TOTALS)
    totals_row = totals[0]
    totals_row.interval_end = -NEVER
    for name in ("max_poll_records", "max_wait", "interval", "seed"):
        totals_row[name] = getattr(parameters, name)
    totals_row.latest = parameters.reset == "latest"
    most = min(parameters.max_poll_records, len(log), partitions * (parameters.settings.max_locks + widest))
    hand = 4 * (most + widest)  # records that a lock kept, and a batch that is rounded up twice
    rows = create_records(members, MEMBER)
    for name in ("busy_until", "locked_until", "closing_at", "close_from", "stuck_from", "stuck_until"):
        rows[name] = NEVER
    rows.epoch = NONE
    counted = create_records(partitions, COUNTED)
    counted.interval = NONE
    leaves = 1 << max(members - 1, 1).bit_length()
    return ShareState(
        totals=totals,
        windows=create_windows(ends, parameters.settings),
        log=log,
        counted=counted,
        members=rows,
        assigned=np.zeros((members, partitions), np.int64),
        has=np.zeros((members, partitions), np.bool_),
        hands=np.zeros((members, hand), IN_HAND).view(np.recarray),
        services=create_records(members, SERVICE),
        quantiles=np.zeros(0, np.float64),
        stalls=create_records(0, STALL),
        rules=create_records(0, RULE),
        schedule=np.full(2 * leaves, NEVER, np.int64),
        rows=create_records(ROWS + hand, CONSUMED),
        lags=create_records(ROWS + partitions, LAG),
    )


def _find_batch_ends(ready: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the offset after the last record of each one's batch."""
    return np.searchsorted(ready, ready, "right").astype(np.int64)


def write_model(state: ShareState, member: int, model: ShareMemberModel) -> ShareState:
    """Return ``state`` with the model of a member that starts."""
    row = state.members[member]
    quantiles = write_service(state.services[member], model.service, model.factor, len(state.quantiles))
    row.stuck_from = NEVER if model.stuck_from is None else model.stuck_from
    row.stuck_until = NEVER if model.stuck_until is None else model.stuck_until
    for name in ("explicit", "commits", "renew_works", "overhead", "release_rate", "reject_rate", "renew_rate"):
        row[name] = getattr(model, name)
    if model.closing is not None:
        row.close_from, row.close_done, row.close_least = model.closing.at, model.closing.done, model.closing.least
    stalls = create_records(len(model.stalls), STALL)
    for stall, one in zip(stalls, model.stalls, strict=True):
        stall.at, stall.time, stall.least = one.at, one.time, one.least
    row.stall, row.stalls_end = len(state.stalls), len(state.stalls) + len(stalls)
    rules = np.array(list(_list_rules(model)), RULE).view(np.recarray)
    row.mod, row.rule = len(rules), len(state.rules)
    return state._replace(
        quantiles=np.concatenate([state.quantiles, quantiles]),
        stalls=np.concatenate([state.stalls, stalls]).view(np.recarray),
        rules=np.concatenate([state.rules, rules]).view(np.recarray),
    )


def _list_rules(model: ShareMemberModel) -> Iterator[Any]:
    if model.rule is not None:
        for remainder in range(model.rule.mod):
            yield (
                remainder in model.rule.reject,
                model.rule.release.get(remainder, 0),
                model.rule.renew.get(remainder, 0),
            )
