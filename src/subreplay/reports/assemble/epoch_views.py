"""Build the range maps of a report, with a limited number of dispatchers, epochs and bands.

A picture of 4,000 epochs, or of a ring with 20,000 ranges, is unreadable. So only drawn maps are built. If there are
too many epochs, those of one column of the picture are merged into their final state. If there are too many ranges,
a view contains the consumers' shares of the slots and counts its bands.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, islice

from subreplay.reports.data import Band, EpochView, RangeMap, SlotShare
from subreplay.reports.figures import Figures
from subreplay.rows.model.range_table import RangeTable
from subreplay.rows.model.rows import Scope
from subreplay.rows.model.text_format import format_instant
from subreplay.semantics.timelines.event_text import describe_changes
from subreplay.semantics.timelines.timeline import Epoch, Timeline, compute_once_per_index
from subreplay.whatif.handovers import group_changes

MAX_SLOT_MAPS, MAX_PARTITION_MAPS = 6, 40
MAX_EPOCHS = 240  # of one map
MAX_BANDS = 120  # of an epoch; more are too thin to see
MAX_SHARES = 24  # consumers with a share of their own; the others are merged

EpochColumn = tuple[Epoch, ...]


def build_range_maps(figures: Figures) -> tuple[tuple[RangeMap, ...], int]:
    """Build the maps to show, and count the dispatchers without a map."""
    policy, timelines = figures.plan.policy, figures.plan.timelines
    if not any(timeline.consumers for timeline in timelines.values()):
        return (), 0
    axis = "partition" if policy.routing == "partition" else "slot"
    most = MAX_PARTITION_MAPS if axis == "partition" else MAX_SLOT_MAPS
    begin, end = find_extent(figures)
    low, high = policy.space
    several = len({scope.topic for scope in timelines}) > 1
    drawn = dict(islice(timelines.items(), most))
    views = compute_once_per_index(drawn.values(), lambda timeline: _build_views(timeline, begin, end))
    maps = tuple(
        RangeMap(
            _name_scope(scope, several),
            axis,  # type: ignore[arg-type]
            low,
            high,
            *of_scope,
        )
        for scope, of_scope in zip(drawn, views, strict=True)
    )
    return maps, max(0, len(timelines) - most)


def _name_scope(scope: Scope, several: bool) -> str:
    """Name a dispatcher for a map; ``several`` topics require the topic in the name."""
    if scope.partition < 0:
        return scope.topic
    return f"{scope.topic}, partition {scope.partition}" if several else f"partition {scope.partition}"


def find_extent(figures: Figures) -> tuple[int, int]:
    """Find the first and last instant (ns) of the data and the membership."""
    epochs = [t.epochs for t in figures.plan.timelines.values() if len(t.epochs) > 1]
    begin = min([figures.extent["first"], *(timeline_epochs[1].start.at for timeline_epochs in epochs)])
    end = (
        max(
            [
                figures.extent["last"],
                figures.totals.get("last", 0),
                *(timeline_epochs[-1].start.at for timeline_epochs in epochs),
            ]
        )
        + 1
    )
    return begin, end


def _build_views(timeline: Timeline, begin: int, end: int) -> tuple[tuple[EpochView, ...], int]:
    """Build the views of one dispatcher, and count the epochs that were merged."""
    columns = list(_group_columns(timeline, begin, end))
    views = [_build_view(timeline, column, begin, end) for column in columns]
    if any(view.bands_left_out for view in views):
        views = [replace(view, bands=(), bands_left_out=len(view.bands) + view.bands_left_out) for view in views]
    return tuple(_limit_shares(views)), sum(len(column) for column in columns) - len(columns)


def _group_columns(timeline: Timeline, begin: int, end: int) -> Iterator[EpochColumn]:
    """Group the epochs of one view: those of one instant, or of one column of the picture if there are too many."""
    if timeline.epochs[0].end is None or timeline.epochs[0].end.at > begin:
        yield timeline.epochs[:1]
    changed = list(group_changes(timeline))
    if len(changed) <= MAX_EPOCHS:
        yield from changed
        return
    for _, together in groupby(changed, lambda change: (change[0].start.at - begin) * MAX_EPOCHS // (end - begin)):
        yield tuple([epoch for change in together for epoch in change])


def _build_view(timeline: Timeline, column: EpochColumn, begin: int, end: int) -> EpochView:
    first, last = column[0], column[-1]
    start, stop = max(first.start.at, begin), last.end.at if last.end is not None else end
    table = timeline.table(last.index)
    low, high = timeline.policy.space
    shares: dict[str, float] = {}
    if timeline.policy.routing != "partition":
        for owner, slots in table.slots_per_owner().items():
            name = timeline.consumers[owner].label
            shares[name] = shares.get(name, 0.0) + slots / (high - low + 1)
    return EpochView(
        last.index,
        format_instant(start),
        format_instant(stop),
        start // 1_000,
        stop // 1_000,
        describe_changes(column),
        tuple([consumer.label for consumer in timeline.list_connected(last.index)]),
        tuple(_list_bands(timeline, table)) if len(table) <= MAX_BANDS else (),
        len(table) if len(table) > MAX_BANDS else 0,
        tuple([SlotShare(name, share) for name, share in sorted(shares.items())]),
    )


def _list_bands(timeline: Timeline, table: RangeTable) -> Iterator[Band]:
    for start, end, owner in table.rows():
        owners = (owner,) if owner >= 0 else table.groups[-2 - owner]
        yield Band(start, end, " + ".join(timeline.consumers[i].label for i in owners))


def _limit_shares(views: Sequence[EpochView]) -> Iterator[EpochView]:
    """Limit all views to the consumers that owned the most; the others share one entry."""
    owned: dict[str | None, float] = defaultdict(float)
    for view in views:
        for one in view.shares:
            owned[one.consumer] += one.share * (view.end_us - view.start_us)
    named = set(sorted(owned, key=lambda name: (-owned[name], name))[:MAX_SHARES])
    for view in views:
        rest = sum(one.share for one in view.shares if one.consumer not in named)
        kept = tuple([one for one in view.shares if one.consumer in named])
        yield replace(view, shares=(*kept, SlotShare(None, rest)) if rest else kept)
