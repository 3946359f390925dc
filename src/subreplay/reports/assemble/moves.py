"""What changed hands at each change of the members, and how much of the traffic went with it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subreplay.reports.data import MoveView
from subreplay.reports.figures import Figures
from subreplay.rows.model.columns import Ints
from subreplay.rows.model.words import instant
from subreplay.semantics.timelines.event_text import describe_changes
from subreplay.semantics.timelines.timeline import Timeline, compute_once_per_index
from subreplay.whatif.handovers import Handovers, find_handovers, group_changes

MOVES = 60


def shown_moves(figures: Figures) -> tuple[tuple[MoveView, ...], int]:
    """The moves with the most messages, and then slots, dispatcher by dispatcher; and how many others there are."""
    moves = Moves.of(figures)
    most = np.sort(np.lexsort((-moves.slots, -moves.messages))[:MOVES])
    columns = moves.columns(most)
    views = tuple([MoveView(*row) for row in zip(*columns.values(), strict=True)])
    return views, len(moves.slots) - len(views)


@dataclass(frozen=True, eq=False)
class Moves:
    """All that changed hands, dispatcher by dispatcher, as columns: the number of the dispatcher, the number of the
    handover among those of the dispatcher, its slots; and of the messages published between the change and the next
    one, those that came to its slots."""

    scopes: tuple[str, ...]
    passed: tuple[_InWords, ...]  # of each dispatcher
    space: int
    dispatcher: Ints
    number: Ints
    slots: Ints
    keys: Ints
    messages: Ints
    share: NDArray[np.float64]

    @classmethod
    def of(cls, figures: Figures) -> Moves:
        low, high = figures.plan.policy.space
        timelines = figures.plan.timelines
        passed = tuple(compute_once_per_index(timelines.values(), _InWords))
        counts = [len(each.handovers.slots) for each in passed]
        begins = np.cumsum([0, *counts]).tolist()
        of = {
            (scope.topic, scope.partition): (begin, each.numbers)
            for scope, begin, each in zip(timelines, begins, passed, strict=False)
        }
        keys, messages = np.zeros((2, sum(counts)), np.int64)
        published: dict[tuple[str, int, int], int] = defaultdict(int)
        found: dict[int, tuple[str, int, int]] = {}
        for row in figures.traffic:
            if row["level"] == "move" and row["scenario"] == figures.plan.name:
                topic, partition, epoch = row["topic"], row["partition"], row["epoch"]
                published[topic, partition, epoch] += row["messages"]
                begin, numbers = of[topic, partition]
                number = numbers.get((epoch, row["before"], row["consumer"]))
                if number is not None:
                    at = begin + number
                    keys[at], messages[at], found[at] = row["keys"], row["messages"], (topic, partition, epoch)
        share = np.zeros(len(messages))
        for at, change in found.items():
            share[at] = int(messages[at]) / published[change] if messages[at] else 0.0
        return cls(
            tuple([scope.full_name for scope in timelines]),
            passed,
            high - low + 1,
            np.repeat(np.arange(len(counts)), counts),
            np.concatenate([np.zeros(0, np.int64), *map(np.arange, counts)]),
            np.concatenate([np.zeros(0, np.int64), *(each.handovers.slots for each in passed)]),
            keys,
            messages,
            share,
        )

    def columns(self, which: Ints | None = None) -> dict[str, list[Any]]:
        """The fields of ``MoveView`` of all of them, or of those at some indexes, in words."""
        mine = np.arange(len(self.slots)) if which is None else which
        rows = [*zip(self.dispatcher[mine].tolist(), self.number[mine].tolist(), strict=True)]
        of = [(self.passed[dispatcher], number) for dispatcher, number in rows]
        slots = self.slots[mine].tolist()
        return {
            "scope": [self.scopes[dispatcher] for dispatcher, _ in rows],
            "epoch": [passed.epoch[number] for passed, number in of],
            "at": [passed.at[number] for passed, number in of],
            "cause": [passed.cause[number] for passed, number in of],
            "before": [passed.before[number] for passed, number in of],
            "after": [passed.after[number] for passed, number in of],
            "slots": slots,
            "share_of_space": [each / self.space for each in slots],
            "keys": self.keys[mine].tolist(),
            "messages": self.messages[mine].tolist(),
            "share_of_traffic": self.share[mine].tolist(),
        }


class _InWords:
    """The handovers of a dispatcher, and of others with the same epochs; ``numbers`` by epoch and consumers."""

    def __init__(self, timeline: Timeline) -> None:
        self.handovers: Handovers = find_handovers(timeline)
        rows = [*self.handovers.iterate_rows()]
        words = {
            change[-1].index: (instant(change[0].start.at), describe_changes(change))
            for change in group_changes(timeline)
        }
        self.epoch = [row.epoch for row in rows]
        self.at, self.cause = ([words[row.epoch][part] for row in rows] for part in range(2))
        self.before, self.after = [row.before for row in rows], [row.after for row in rows]
        self.numbers = {(row.epoch, row.before, row.after): number for number, row in enumerate(rows)}
