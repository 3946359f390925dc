"""Whole histories of joins and leaves in one line: ``"+C1 +C2@1 -C1 !C2 +C3[0-99,200-299]"``.

``+`` joins, ``-`` leaves, ``!`` crashes, ``@`` gives a priority level, ``[]`` the ranges of a sticky consumer. Event i,
counted from 1, happens at 10 * i µs and was asked for 3 µs before.
"""

from __future__ import annotations

import re

import numpy as np

from subreplay.rows.model.range_table import NOBODY
from subreplay.rows.model.rows import Instant, MembershipEvent, Scope
from subreplay.semantics.policies.base import Policy
from subreplay.semantics.timelines.timeline import Timeline

TOPIC = Scope("persistent://public/default/orders")
WORD = re.compile(r"([+!-])([^@\[]+)(?:@(-?\d+))?(?:\[([\d,-]*)\])?")
KIND = {"+": "join", "-": "leave", "!": "crash"}


def events(history: str, scope: Scope = TOPIC) -> list[MembershipEvent]:
    """The membership events that ``history`` spells."""
    return [_event(word, 10 * number, scope) for number, word in enumerate(history.split(), start=1)]


def _event(word: str, at: int, scope: Scope) -> MembershipEvent:
    sign, name, priority, ranges = WORD.fullmatch(word).groups()
    pairs = None if ranges is None else tuple(tuple(map(int, r.split("-"))) for r in ranges.split(",") if r)
    return MembershipEvent(scope, KIND[sign], name, Instant(at), Instant(at - 3), int(priority or 0), pairs)


def fold(policy: Policy, history: str, scope: Scope = TOPIC) -> Timeline:
    """The timeline of ``history``."""
    return Timeline.fold(policy, scope, events(history, scope))


def shares(timeline: Timeline, epoch: int = -1) -> dict[str, list[tuple[int, int]]]:
    """The inclusive ranges of each consumer in an epoch, by name in slot order."""
    table = timeline.table(range(len(timeline.epochs))[epoch])
    return {timeline.consumers[owner].name: ranges for owner, ranges in table.by_owner().items()}


def owner(timeline: Timeline, hash_: int, epoch: int = -1) -> str | None:
    """The name of the consumer that gets messages of this hash in an epoch."""
    hashes = np.array([hash_], np.uint32)
    epochs = np.array([range(len(timeline.epochs))[epoch]], np.int32)
    (index,) = timeline.find_owners(timeline.policy.compute_slots(hashes), hashes, epochs)
    return None if index == NOBODY else timeline.consumers[index].name


def active(policy: Policy, history: str, scope: Scope = TOPIC) -> str | None:
    """Who gets everything after ``history``, for a policy with one active consumer."""
    return owner(fold(policy, history, scope), 0)
