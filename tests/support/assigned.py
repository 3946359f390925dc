"""What an evaluation counts, stated slowly: the owner of each message by itself, then plain sums.

This is the specification of ``subreplay.whatif.traffic.plan_evaluator``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa

from subreplay.hashing.murmur3 import murmur3_32
from subreplay.rows.model.entry_keys import outer_sticky_keys, own_keys
from subreplay.rows.model.rows import Scope
from subreplay.semantics.policies.base import Policy
from subreplay.semantics.timelines.timeline import Timeline

Sums = dict[tuple[Any, ...], tuple[int, ...]]


def owner(policy: Policy, timeline: Timeline, epoch: int, entry: int, sticky: bytes) -> str | None:
    """Who gets a message in an epoch, by name."""
    if policy.routing == "any":
        connected = timeline.list_connected(epoch)
        turn = [c.label for c in connected if c.priority == min(c.priority for c in connected)]
        return turn[entry % len(turn)] if turn else None
    hashes = np.array([murmur3_32(sticky)], np.uint32)
    (index,) = timeline.table(epoch).owners_of(policy.compute_slots(hashes), hashes).tolist()
    return timeline.consumers[index].label if index >= 0 else None


def assigned(rows: pa.Table, policy: Policy, timelines: Mapping[Scope, Timeline], first: int) -> list[dict[str, Any]]:
    """Each message (columns of ``LOG``) with its epoch, its owner, and its owner ``before`` the last change.

    All that happens at one instant is one change; what happened at or before ``first`` changed nobody's owner, and
    under Shared nobody owns.
    """
    found = []
    own = own_keys(rows).to_pylist()
    who = cache(partial(owner, policy))  # asked once for each epoch and key, where these decide
    for row, key, sticky in zip(
        rows.to_pylist(), own, outer_sticky_keys(rows, policy.profile).to_pylist(), strict=True
    ):
        timeline = timelines[Scope(row["topic"], row["partition"])]
        starts = [epoch.start.at for epoch in timeline.epochs]
        epoch = max(i for i, start in enumerate(starts) if start <= row["at"])
        earlier = max((i for i, start in enumerate(starts) if start < starts[epoch]), default=-1)
        before = None
        if starts[epoch] > first and earlier >= 0 and policy.routing != "any":
            before = who(timeline, earlier, 0, sticky)
        consumer = who(timeline, epoch, row["entry"] if policy.routing == "any" else 0, sticky)
        found.append(row | {"own": key, "epoch": epoch, "before": before, "consumer": consumer})
    return found


def moved(row: Mapping[str, Any]) -> bool:
    """Whether a message came to another owner than before."""
    return row["before"] is not None and row["before"] != row["consumer"]


def summed(rows: list[dict[str, Any]], width: int) -> dict[str, Sums]:
    """By window and consumer, by consumer, and of all: messages, bytes, distinct keys, messages and keys moved."""
    levels = {
        "window": lambda row: (row["at"] - row["at"] % width, row["consumer"]),
        "consumer": lambda row: (row["consumer"],),
        "scenario": lambda row: (),
    }
    found = {}
    for level, of in levels.items():
        groups = defaultdict(list)
        for row in rows:
            groups[of(row)].append(row)
        found[level] = {group: _sums(mine) for group, mine in groups.items()}
    return found


def moves(rows: list[dict[str, Any]], every: bool) -> Sums:
    """By dispatcher, epoch, owner before and owner, messages, bytes and distinct keys: of what nobody got, and where
    ``every`` of what was moved. The rest of an epoch then has neither owner, nor keys."""
    groups = defaultdict(list)
    for row in rows:
        reported = row["consumer"] is None or (every and moved(row))
        if reported or every:
            sides = (row["before"] if moved(row) else None, row["consumer"]) if reported else (None, None)
            key = row["topic"], row["partition"], row["epoch"]
            groups[key + sides].append(row | {"told": reported})
    return {
        group: (len(mine), sum(row["size"] or 0 for row in mine), len({row["own"] for row in mine if row["told"]}))
        for group, mine in groups.items()
    }


def _sums(rows: list[dict[str, Any]]) -> tuple[int, ...]:
    gone = [row for row in rows if moved(row)]
    keys = {row["own"] for row in rows}
    return len(rows), sum(row["size"] or 0 for row in rows), len(keys), len(gone), len({row["own"] for row in gone})
