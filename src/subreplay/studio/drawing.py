"""Draw the charts of a set-up with the components of the report, and format its figures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from subreplay.pipeline.scenario_evaluation import EvaluatedScenario
from subreplay.reports.data import ScenarioView
from subreplay.reports.formatting import (
    format_count,
    format_percent,
    format_ratio,
    format_short_count,
    natural_sort_key,
)
from subreplay.reports.page.chart_canvas import TimeFrame, choose_round_ticks, draw_grid, draw_time_axis
from subreplay.reports.page.chart_scenarios import draw_flow_chart, draw_members_panel
from subreplay.reports.page.chart_time import MAX_WINDOWS, LoadCell, LoadOverTime, draw_load_chart, draw_skew_chart
from subreplay.reports.page.palette import TOKENS, Palette
from subreplay.reports.page.svg import PLOT, Drawing
from subreplay.rows.model.text_format import format_instant
from subreplay.whatif.fair_share import compute_fair_shares, find_connected_intervals

TALL: Final = 130  # height of the utilisation chart
MANY: Final = 48  # consumers in the chart of shares


@dataclass(frozen=True)
class Service:
    """The time of an application for a message: ``ns``, and ``ns_per_byte`` of its size. ``limit`` is a utilisation."""

    ns: float
    ns_per_byte: float
    limit: float

    def measure(self, messages: int, size: int) -> float:
        """Return the work (ns) of messages of a total size in bytes."""
        return messages * self.ns + size * self.ns_per_byte


@dataclass(frozen=True)
class Utilisation:
    """The busiest consumer of each window (``busiest``: window start in ns, share of the window, consumer)."""

    busiest: tuple[tuple[int, float, str], ...]
    limit: float

    @property
    def most(self) -> float:
        """The utilisation of the busiest consumer in its busiest window."""
        return max((share for _, share, _ in self.busiest), default=0.0)


def measure_utilisation(found: EvaluatedScenario, service: Service) -> Utilisation:
    """Measure how busy the busiest consumer is in each window: its work divided by the width of the window.

    Each window counts only its own work, as in ``subreplay plan consumers``.
    """
    busiest: dict[int, tuple[int, float, str]] = {}
    for row in found.rows:
        if row["level"] == "window" and row["consumer"] is not None:
            share = service.measure(row["messages"], row["bytes"]) / found.width
            if row["window"] not in busiest or share > busiest[row["window"]][1]:
                busiest[row["window"]] = row["window"], share, row["consumer"]
    return Utilisation(tuple(busiest[start] for start in sorted(busiest)), service.limit)


def build_palette(views: Iterable[ScenarioView]) -> Palette:
    """Assign colours to the consumers of all set-ups."""
    names = sorted({one.consumer for view in views for one in view.per_consumer}, key=natural_sort_key)
    return Palette(tuple(names), {name: f"k{i % TOKENS}" for i, name in enumerate(names)})


def draw_card(view: ScenarioView, colours: Palette) -> str:
    """Draw the share of each consumer of a set-up."""
    return draw_members_panel(view, colours) if view.per_consumer else ""


def draw_detail(
    found: EvaluatedScenario, utilisation: Utilisation | None, extent: Mapping[str, int], colours: Palette
) -> dict[str, str]:
    """Draw the charts of the selected set-up, by name: ``load``, ``skew``, ``utilisation`` and ``moves``.

    A chart without data is left out.
    """
    load = _build_load(found, extent)
    end = max((cell.end for cell in load.cells), default=0)
    at = TimeFrame(extent["first"] // 1000 // (found.width // 1000) * (found.width // 1000), max(end, 1))
    charts = {"load": draw_load_chart(load, at, colours)}
    totals = {one.consumer: one.skew for one in found.view.per_consumer}
    charts["skew"] = draw_skew_chart(load, totals, at, colours)
    if utilisation is not None:
        charts["utilisation"] = draw_utilisation_chart(utilisation, found.width, at)
    if found.view.flows:
        charts["moves"] = draw_flow_chart(found.view, colours)
    return charts


def _build_load(found: EvaluatedScenario, extent: Mapping[str, int]) -> LoadOverTime:
    """Sum the load of consumers by period: one window, or several if there are more than a chart shows."""
    rows = [row for row in found.rows if row["level"] == "window" and row["consumer"] is not None]
    sums: dict[int, int] = defaultdict(int)
    for row in rows:
        sums[row["window"]] += row["messages"]
    intervals = find_connected_intervals(found.plan.timelines.values(), extent["last"] + 1)
    shares = compute_fair_shares(intervals, sums, found.width)
    first = extent["first"] - extent["first"] % found.width
    windows = (extent["last"] - first) // found.width + 1
    step = -(-windows // MAX_WINDOWS)
    wide = found.width * step
    cells: dict[tuple[int, str], list[float]] = defaultdict(lambda: [0, 0.0])
    for row in rows:
        start, many = row["window"], row["messages"]
        cell = cells[(first + (start - first) // wide * wide), row["consumer"]]
        cell[0] += many
        cell[1] += many * (many / sums[start] / shares[start])
    made = (
        LoadCell(start // 1000, (start + wide) // 1000, name, int(many), total / many if many else 0.0)
        for (start, name), (many, total) in cells.items()
    )
    return LoadOverTime(tuple(sorted(made, key=lambda c: (c.start, natural_sort_key(c.consumer)))), step, wide // 1000)


def draw_utilisation_chart(found: Utilisation, width: int, at: TimeFrame) -> str:
    """Draw the utilisation of the busiest consumer over time, and its limit as a dashed line."""
    drawing = Drawing(TALL, "Utilisation of the busiest consumer over time, with its limit")
    top = choose_round_ticks(max(found.most, found.limit, 0.01))[-1]
    unit = TALL / top
    draw_grid(drawing, [(TALL - tick * unit, f"{tick * 100:.3g}%") for tick in choose_round_ticks(top)])
    draw_time_axis(drawing, at)
    for start, share, consumer in found.busiest:
        tip = f"{consumer}: {format_percent(share)} of its time, from {format_instant(start)}"
        colour = "o3" if share > found.limit else "u1"
        x, x2 = (at.to_pixel(instant // 1000) for instant in (start, start + width))
        drawing.box(x, x2, TALL, TALL - share * unit, colour, tip)
    limit = TALL - found.limit * unit
    drawing.line(0, PLOT, limit, limit, "ink", "4,3")
    drawing.text(PLOT + 6, limit, format_percent(found.limit), ink=True)
    return drawing.svg()


_Measure: TypeAlias = "Callable[[ScenarioView, Utilisation | None], float | None]"
_KINDS: Final[tuple[tuple[str, str, _Measure, Callable[[float], str]], ...]] = (
    ("Consumers", "consumers", lambda view, _: view.consumers, format_count),
    ("Busiest consumer's share", "share", lambda view, _: view.max_share, format_percent),
    ("Skew", "skew", lambda view, _: view.skew, format_ratio),
    ("Skew in its worst window", "worst window", lambda view, _: view.worst_window_skew, format_ratio),
    (
        "Busiest consumer's utilisation",
        "utilisation",
        lambda _, busy: busy.most if busy else None,
        format_percent,
    ),
    ("Keys moved by changes", "keys moved", lambda view, _: _count_moved_keys(view), format_count),
    ("Traffic moved by changes", "traffic moved", lambda view, _: view.traffic_moved, format_percent),
    ("Keys to another partition", "keys rerouted", lambda view, _: view.keys_rerouted or None, format_count),
    ("Traffic to another partition", "traffic rerouted", lambda view, _: view.traffic_rerouted or None, format_percent),
    ("Share of the hottest key", "hottest key", lambda view, _: view.hottest_key_share, format_percent),
    ("Ceiling: more consumers do not help", "ceiling", lambda view, _: view.ceiling or None, "{:,.1f}".format),
    ("Messages without an owner", "unowned", lambda view, _: view.unowned, format_count),
)
"""The rows of the table in order: label, definition, figure and format. One without any figure is left out."""


def _count_moved_keys(view: ScenarioView) -> int | None:
    return None if view.traffic_moved is None else view.keys_moved


@dataclass(frozen=True)
class FigureRow:
    """A figure of all set-ups: what it is, its definition (``metric``), and a text for each set-up.

    ``values`` are the numbers behind the texts, for differences; None: there is no such figure.
    """

    label: str
    metric: str
    texts: tuple[str, ...]
    values: tuple[float | None, ...]
    changes: tuple[str, ...]
    limited: tuple[bool, ...]


def build_figure_rows(
    views: Sequence[ScenarioView | None], busy: Sequence[Utilisation | None], baseline: int
) -> list[FigureRow]:
    """Build the table of figures of the set-ups. A set-up with an error has no view."""
    rows = []
    for label, metric, measure, write in _KINDS:
        values = tuple(None if v is None else measure(v, u) for v, u in zip(views, busy, strict=True))
        if all(value is None for value in values):
            continue
        base = values[baseline] if baseline < len(values) else None
        texts = tuple("–" if value is None else write(value) for value in values)
        changes = tuple(_format_change(value, base) if i != baseline else "" for i, value in enumerate(values))
        limits = tuple(
            metric == "utilisation" and u is not None and value is not None and value > u.limit
            for value, u in zip(values, busy, strict=True)
        )
        rows.append(FigureRow(label, metric, texts, values, changes, limits))
    return rows


def _format_change(value: float | None, base: float | None) -> str:
    """Format the difference to the baseline, as a part of it."""
    if value is None or base is None or value == base:
        return ""
    if not base:
        return f"+{format_short_count(value)}" if value > 1 else "new"
    part = value / base - 1
    return f"{'+' if part > 0 else '−'}{format_percent(abs(part))}"
