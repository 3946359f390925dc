"""Build the moves of slots and traffic between consumers at each membership change."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subreplay.reports.data import MoveView
from subreplay.reports.figures import Figures
from subreplay.rows.model.columns import Ints
from subreplay.rows.model.text_format import format_instant
from subreplay.semantics.timelines.event_text import describe_changes
from subreplay.semantics.timelines.timeline import Timeline, compute_once_per_index
from subreplay.whatif.handovers import Handovers, find_handovers, group_changes

MAX_MOVES = 60


def select_shown_moves(figures: Figures) -> tuple[tuple[MoveView, ...], int]:
    """Select the moves with the most messages, then slots, in dispatcher order; also count the others."""
    moves = OwnershipMoves.from_figures(figures)
    selection = np.sort(np.lexsort((-moves.slots, -moves.messages))[:MAX_MOVES])
    columns = moves.build_columns(selection)
    views = tuple([MoveView(*row) for row in zip(*columns.values(), strict=True)])
    return views, len(moves.slots) - len(views)


@dataclass(frozen=True, eq=False)
class OwnershipMoves:
    """All moves between consumers as columns, in dispatcher order.

    ``number`` counts the handovers of one dispatcher. ``messages`` counts messages to the moved slots between the
    change and the next one.
    """

    scopes: tuple[str, ...]
    handovers: tuple[_DescribedHandovers, ...]  # of each dispatcher
    space: int
    dispatcher: Ints
    number: Ints
    slots: Ints
    keys: Ints
    messages: Ints
    share: NDArray[np.float64]

    @classmethod
    def from_figures(cls, figures: Figures) -> OwnershipMoves:
        low, high = figures.plan.policy.space
        timelines = figures.plan.timelines
        described = tuple(compute_once_per_index(timelines.values(), _DescribedHandovers))
        counts = [len(each.handovers.slots) for each in described]
        begins = np.cumsum([0, *counts]).tolist()
        of = {
            (scope.topic, scope.partition): (begin, each.numbers)
            for scope, begin, each in zip(timelines, begins, described, strict=False)
        }
        keys, messages = np.zeros((2, sum(counts)), np.int64)
        published: dict[tuple[str, int, int], int] = defaultdict(int)
        change_by_row: dict[int, tuple[str, int, int]] = {}
        for row in figures.traffic:
            if row["level"] == "move" and row["scenario"] == figures.plan.name:
                topic, partition, epoch = row["topic"], row["partition"], row["epoch"]
                published[topic, partition, epoch] += row["messages"]
                begin, numbers = of[topic, partition]
                number = numbers.get((epoch, row["before"], row["consumer"]))
                if number is not None:
                    at = begin + number
                    keys[at], messages[at], change_by_row[at] = row["keys"], row["messages"], (topic, partition, epoch)
        share = np.zeros(len(messages))
        for at, change in change_by_row.items():
            share[at] = int(messages[at]) / published[change] if messages[at] else 0.0
        return cls(
            tuple([scope.full_name for scope in timelines]),
            described,
            high - low + 1,
            np.repeat(np.arange(len(counts)), counts),
            np.concatenate([np.zeros(0, np.int64), *map(np.arange, counts)]),
            np.concatenate([np.zeros(0, np.int64), *(each.handovers.slots for each in described)]),
            keys,
            messages,
            share,
        )

    def build_columns(self, which: Ints | None = None) -> dict[str, list[Any]]:
        """Build the fields of ``MoveView`` for all moves, or for those at the indexes ``which``."""
        selected = np.arange(len(self.slots)) if which is None else which
        rows = [*zip(self.dispatcher[selected].tolist(), self.number[selected].tolist(), strict=True)]
        of = [(self.handovers[dispatcher], number) for dispatcher, number in rows]
        slots = self.slots[selected].tolist()
        return {
            "scope": [self.scopes[dispatcher] for dispatcher, _ in rows],
            "epoch": [described.epoch[number] for described, number in of],
            "at": [described.at[number] for described, number in of],
            "cause": [described.cause[number] for described, number in of],
            "before": [described.before[number] for described, number in of],
            "after": [described.after[number] for described, number in of],
            "slots": slots,
            "share_of_space": [each / self.space for each in slots],
            "keys": self.keys[selected].tolist(),
            "messages": self.messages[selected].tolist(),
            "share_of_traffic": self.share[selected].tolist(),
        }


class _DescribedHandovers:
    """The handovers of dispatchers with equal epochs; ``numbers`` maps (epoch, before, after) to the number."""

    def __init__(self, timeline: Timeline) -> None:
        self.handovers: Handovers = find_handovers(timeline)
        rows = [*self.handovers.iterate_rows()]
        words = {
            change[-1].index: (format_instant(change[0].start.at), describe_changes(change))
            for change in group_changes(timeline)
        }
        self.epoch = [row.epoch for row in rows]
        self.at, self.cause = ([words[row.epoch][part] for row in rows] for part in range(2))
        self.before, self.after = [row.before for row in rows], [row.after for row in rows]
        self.numbers = {(row.epoch, row.before, row.after): number for number, row in enumerate(rows)}
