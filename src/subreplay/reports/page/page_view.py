"""Prepare charts, summed rows and filter choices for the page's templates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from subreplay.reports.data import EpochView, RangeMap, ReportData, ScenarioView
from subreplay.reports.finding_data import CodeSummary
from subreplay.reports.formatting import find_common_day, format_span, natural_sort_key, parse_us
from subreplay.reports.page.chart_canvas import TimeFrame, find_time_frame
from subreplay.reports.page.chart_map import MapDrawing, draw_partition_map, draw_slot_map
from subreplay.reports.page.chart_plan import assign_letters, draw_plan_charts
from subreplay.reports.page.chart_scenarios import ScenarioPanel, draw_panels
from subreplay.reports.page.chart_share import EpochMoves, draw_moves_chart, draw_scenario_chart, group_by_epoch
from subreplay.reports.page.chart_time import (
    LoadOverTime,
    draw_findings_chart,
    draw_load_chart,
    draw_skew_chart,
    group_windows,
    select_largest_consumers,
    select_named_consumers,
)
from subreplay.reports.page.chart_timeline import TimelineDrawing, draw_timeline
from subreplay.reports.page.dispatch_view import DispatchDrawing, build_dispatch_drawing
from subreplay.reports.page.finding_filter import FilteredFindings, build_findings
from subreplay.reports.page.palette import Palette, build_palette
from subreplay.reports.page.scenario_table import ScenarioTable, build_scenario_table, select_finalists
from subreplay.reports.page.section_sentences import write_sentences
from subreplay.reports.plan_data import FrontPoint

MAX_MAPS = 6
MAX_MAPS_BYTES = 400_000  # no further map is drawn once they have this size
MAX_EPOCH_ROWS = 200
MAX_MOVES = 200
STATUS_ORDER = ("violated", "unknown", "allowed", "counted", "clean", "not applicable")
MAX_OPEN_INCIDENTS = 5
TITLES = {
    "incidents": "What happened",
    "timeline": "Timeline",
    "facts": "What was judged",
    "input": "Input",
    "rules": "Rules",
    "findings": "Findings",
    "load": "Load",
    "skew": "Skew",
    "map": "Range map",
    "moves": "Moves",
    "scenarios": "Scenarios",
    "dispatch": "Latency and backlog",
    "details": "Each scenario",
    "keys": "Hot keys",
    "limits": "Limits of the data",
    "plans": "Plan",
}
AUDIT_SECTIONS = (
    "incidents",
    "timeline",
    "findings",
    "load",
    "skew",
    "map",
    "moves",
    "keys",
    "scenarios",
    "dispatch",
    "details",
    "rules",
    "input",
    "facts",
    "limits",
)
WHATIF_SECTIONS = (
    "plans",
    "scenarios",
    "dispatch",
    "details",
    "rules",
    "findings",
    "keys",
    "load",
    "skew",
    "map",
    "moves",
    "facts",
    "input",
    "limits",
)
"""The order of the sections: what happened, or the best scenario, comes first."""


@dataclass(frozen=True, slots=True)
class EpochRow:
    """One row of the table of epochs; shares are fractions of the slots, and None for partitions."""

    scope: str
    view: EpochView
    lasted: str
    least: float | None
    most: float | None


@dataclass(frozen=True, slots=True)
class SectionLegends:
    """The consumers in the colour legend of each section."""

    map: tuple[str, ...]
    load: tuple[str, ...]
    moves: tuple[str, ...]
    findings: tuple[str, ...]
    scenarios: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PageView:
    """The data of the page, ready for its templates."""

    colours: Palette
    legends: SectionLegends
    sentences: Mapping[str, str]  # what to see in a section, by its name
    day: str | None
    length: str  # length of the data's window
    sections: tuple[tuple[str, str], ...]
    timeline: TimelineDrawing | None
    maps: tuple[MapDrawing, ...]
    maps_left_out: int
    epochs: tuple[EpochRow, ...]
    epochs_left_out: int
    window: str  # time span of a column in the load charts
    windows: int  # report windows per column
    load_chart: str
    skew_chart: str
    not_drawn: int  # consumers that the load charts combine
    moves_chart: str
    moved: tuple[EpochMoves, ...]
    codes: tuple[CodeSummary, ...]
    findings: FilteredFindings
    findings_chart: str
    findings_not_drawn: int  # consumers that the chart combines
    scenario_table: ScenarioTable
    finalists: tuple[ScenarioView, ...]  # the scenarios that are drawn
    scenario_chart: str
    panels: dict[str, ScenarioPanel]  # charts of the finalists by name
    plan_charts: tuple[tuple[str, str], ...]  # bars and front of each plan
    plan_letters: tuple[dict[str, list[FrontPoint]], ...]  # the points of its front by letter
    dispatch: DispatchDrawing | None
    ceiling: float | None  # speed-up over one consumer that the hottest key allows
    scale: float  # share of a full bar in the tables


def build_page_view(data: ReportData) -> PageView:
    """Draw the charts and sum the rows of the page."""
    at, colours = find_time_frame(data), build_palette(data)
    load = group_windows(data.load)
    found = select_named_consumers(data.findings_over_time, at)
    maps = _draw_maps(data.range_maps, at, colours)
    rows = _list_epoch_rows(data.range_maps)
    moved, finalists = group_by_epoch(data.moves), select_finalists(data)
    day = find_common_day(data.run.window_start, data.run.window_end)
    skews = {total.consumer: total.skew for total in data.totals}
    return PageView(
        colours=colours,
        legends=_build_legends(data, colours, load, found),
        sentences=write_sentences(data, load, moved, day),
        day=day,
        length=format_span(max(parse_us(data.run.window_end) - parse_us(data.run.window_start), 0)),
        sections=_list_sections(data),
        timeline=None if data.timeline is None else draw_timeline(data.timeline, data.incidents, at),
        maps=maps,
        maps_left_out=data.range_maps_left_out + _count_undrawn_maps(data.range_maps, maps),
        epochs=rows[:MAX_EPOCH_ROWS],
        epochs_left_out=max(len(rows) - MAX_EPOCH_ROWS, 0) + sum(m.epochs_left_out for m in data.range_maps),
        window=format_span(load.width) if load.width > 0 else "",
        windows=load.windows,
        load_chart=draw_load_chart(load, at, colours) if load.cells else "",
        skew_chart=draw_skew_chart(load, skews, at, colours) if load.cells else "",
        not_drawn=_count_undrawn_consumers(load),
        moves_chart=draw_moves_chart(moved, colours) if moved else "",
        moved=moved[:MAX_MOVES],
        codes=tuple(sorted(data.codes, key=lambda code: STATUS_ORDER.index(code.status))),
        findings=build_findings(data, STATUS_ORDER),
        findings_chart=draw_findings_chart(data.findings_over_time, found, at, colours)
        if data.findings_over_time
        else "",
        findings_not_drawn=len({p.consumer for p in data.findings_over_time} - found),
        scenario_table=build_scenario_table(data),
        finalists=finalists,
        scenario_chart=draw_scenario_chart(finalists, colours) if finalists else "",
        panels=draw_panels(finalists, at, colours),
        plan_charts=tuple(map(draw_plan_charts, data.plans)),
        plan_letters=tuple(assign_letters(plan.front) for plan in data.plans),
        dispatch=build_dispatch_drawing(data.dispatch, [one.name for one in finalists]) if data.dispatch else None,
        ceiling=_find_ceiling(data),
        scale=_find_scale(data),
    )


def _build_legends(data: ReportData, colours: Palette, load: LoadOverTime, found: frozenset[str]) -> SectionLegends:
    """List the consumers of each section in the order of the palette."""

    def known(names: Iterable[str | None]) -> tuple[str, ...]:
        present = set(names)
        return tuple([name for name in colours.names if name in present])

    epochs = [epoch for mapped in data.range_maps for epoch in mapped.epochs]
    return SectionLegends(
        map=known(
            {band.consumer for epoch in epochs for band in epoch.bands}
            | {one.consumer for epoch in epochs for one in epoch.shares}
        ),
        load=known(select_largest_consumers(load)),
        moves=known(move.after for move in data.moves),
        findings=known(found),
        scenarios=known(row.consumer for scenario in select_finalists(data) for row in scenario.per_consumer),
    )


def _list_sections(data: ReportData) -> tuple[tuple[str, str], ...]:
    """List the sections of the page in order. An audit has no scenarios, and a what-if can lack rules or maps."""
    whatif = data.run.kind == "whatif"
    shown = {
        "incidents": bool(data.incidents),
        "timeline": data.timeline is not None,
        "facts": bool(data.facts or data.coverage),
        "map": bool(data.range_maps) or not whatif,
        "load": bool(data.load or data.totals) or not whatif,
        "skew": bool(data.load),
        "moves": bool(data.moves or data.moves_left_out) or not whatif,
        "rules": bool(data.codes) or not whatif,
        "findings": bool(data.findings_over_time) or any(code.worst for code in _list_codes(data)),
        "plans": bool(data.plans),
        "scenarios": bool(data.scenarios) or (whatif and not data.plans),
        "dispatch": bool(data.dispatch),
        "details": bool(data.scenarios),
        "keys": bool(data.hot_keys),
    }
    order: tuple[str, ...] = WHATIF_SECTIONS if whatif else AUDIT_SECTIONS
    if not whatif and not data.incidents:
        order = ("facts", *(name for name in order if name != "facts"))
    titles = TITLES | ({"facts": "Facts"} if whatif else {"scenarios": "What if"})
    return tuple([(name, titles[name]) for name in order if shown.get(name, True)])


def _list_codes(data: ReportData) -> Iterator[CodeSummary]:
    """List the rules over recorded and predicted deliveries."""
    yield from data.codes
    for view in data.dispatch:
        yield from view.codes


def _draw_maps(maps: Sequence[RangeMap], at: TimeFrame, colours: Palette) -> tuple[MapDrawing, ...]:
    """Draw each slot map separately until they are too large, and all partitions in one picture."""
    slots = [m for m in maps if m.axis == "slot" and m.epochs][:MAX_MAPS]
    rows = [m for m in maps if m.axis == "partition" and m.epochs]
    drawn: list[MapDrawing] = []
    for mapped in slots:
        if sum(len(one.svg) + len(one.shares) for one in drawn) < MAX_MAPS_BYTES:
            drawn.append(draw_slot_map(mapped, at, colours, len(slots)))
    return tuple(drawn + ([draw_partition_map(rows, at, colours)] if rows else []))


def _count_undrawn_maps(maps: Sequence[RangeMap], drawn: Sequence[MapDrawing]) -> int:
    slots = sum(m.axis == "slot" and bool(m.epochs) for m in maps)
    return max(slots - len(drawn), 0)


def _list_epoch_rows(maps: Sequence[RangeMap]) -> tuple[EpochRow, ...]:
    """List the epochs of all dispatchers in order of time."""
    rows = [_build_epoch_row(mapped, epoch) for mapped in maps for epoch in mapped.epochs]
    return tuple(sorted(rows, key=lambda row: (row.view.start_us, natural_sort_key(row.scope), row.view.index)))


def _build_epoch_row(mapped: RangeMap, epoch: EpochView) -> EpochRow:
    shares = [one.share for one in epoch.shares if one.consumer is not None]
    lasted = format_span(max(epoch.end_us - epoch.start_us, 0))
    return EpochRow(mapped.scope, epoch, lasted, min(shares, default=None), max(shares, default=None))


def _count_undrawn_consumers(load: LoadOverTime) -> int:
    return len({cell.consumer for cell in load.cells}) - len(select_largest_consumers(load))


def _find_ceiling(data: ReportData) -> float | None:
    """Compute the speed-up that the hottest key allows, if each key goes to one consumer at a time."""
    top = max((key.share for key in data.hot_keys if key.slot is not None), default=0.0)
    return 1 / top if top > 0 else None


def _find_scale(data: ReportData) -> float:
    """Compute the share of a full bar, slightly above the largest share."""
    return max([total.share for total in data.totals], default=1.0) * 1.05 or 1.0
