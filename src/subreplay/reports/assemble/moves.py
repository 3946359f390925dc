"""What changed hands at each change of the members, and how much of the traffic went with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from subreplay.reports.data import MoveView
from subreplay.reports.figures import Figures, Row
from subreplay.rows.model.columns import Ints
from subreplay.rows.model.rows import Scope
from subreplay.rows.model.words import instant
from subreplay.semantics.timelines.event_text import change_words
from subreplay.semantics.timelines.timeline import Timeline
from subreplay.whatif.handovers import Handover, Handovers, changes, handovers

MOVES = 60


def shown_moves(figures: Figures) -> tuple[tuple[MoveView, ...], int]:
    """The moves with the most messages, and then slots, dispatcher by dispatcher; and how many others there are.

    Of each dispatcher only those are looked at that can be among them.
    """
    traffic = _Traffic(figures)
    of_all = 0
    likely: list[MoveView] = []
    for scope, timeline in figures.plan.timelines.items():
        passed = handovers(timeline)
        of_all += len(passed.slots)
        likely += traffic.views(scope, timeline, passed.rows(traffic.largest(scope, passed)))
    order = sorted(range(len(likely)), key=lambda i: (-likely[i].messages, -likely[i].slots, i))[:MOVES]
    return tuple([likely[i] for i in sorted(order)]), of_all - len(order)


def every_move(figures: Figures) -> Iterator[MoveView]:
    """All that changed hands, dispatcher by dispatcher."""
    traffic = _Traffic(figures)
    for scope, timeline in figures.plan.timelines.items():
        yield from traffic.views(scope, timeline, handovers(timeline).rows())


class _Traffic:
    """Of the messages published between a change and the next one, those that came to a slot that had changed hands."""

    def __init__(self, figures: Figures) -> None:
        low, high = figures.plan.policy.space
        self.space = high - low + 1
        self.rows: dict[Scope, dict[tuple[Any, ...], Row]] = defaultdict(dict)
        self.published: dict[tuple[Scope, int], int] = defaultdict(int)
        for row in figures.traffic:
            if row["level"] == "move" and row["scenario"] == figures.plan.name:
                scope = Scope(row["topic"], row["partition"])
                self.rows[scope][row["epoch"], row["before"], row["consumer"]] = row
                self.published[scope, row["epoch"]] += row["messages"]

    def largest(self, scope: Scope, passed: Handovers) -> Ints:
        """The indexes of those with traffic, and of those with the most slots."""
        most = np.argsort(-passed.slots, kind="stable")[:MOVES]
        with_traffic = np.flatnonzero(np.isin(passed.epoch, [epoch for epoch, _, _ in self.rows.get(scope, ())]))
        return np.union1d(most, with_traffic)

    def views(self, scope: Scope, timeline: Timeline, passed: Iterator[Handover]) -> Iterator[MoveView]:
        """The same in words, with their traffic."""
        told = {change[-1].index: change for change in changes(timeline)}
        mine, name = self.rows.get(scope, {}), scope.full_name
        for epoch, before, after, slots in passed:
            row = mine.get((epoch, before, after), {})
            messages = row.get("messages", 0)
            yield MoveView(
                scope=name,
                epoch=epoch,
                at=instant(told[epoch][0].start.at),
                cause=change_words(told[epoch]),
                before=before,
                after=after,
                slots=slots,
                share_of_space=slots / self.space,
                keys=row.get("keys", 0),
                messages=messages,
                share_of_traffic=messages / self.published[scope, epoch] if messages else 0.0,
            )
