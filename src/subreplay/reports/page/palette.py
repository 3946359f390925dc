"""Assign one colour per consumer, equal in all charts and tables of a page.

Colour-blind readers can distinguish the ten solid colours, and each stands out from the page; a test computes both.
Consumers 11 to 20 have stripes and 21 to 30 have dots; then the colours repeat. Charts and tables use tokens such as
``k3``. The style sheet defines them for light and dark pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from subreplay.reports.data import ReportData
from subreplay.reports.formatting import natural_sort_key

NOBODY = "nobody"
SOLID = 10
TOKENS = 3 * SOLID
LIGHT = ("#1860d2", "#e47200", "#4ea26c", "#ba72ae", "#0c5a78", "#904230", "#906c06", "#542aa8", "#603624", "#6c7272")
DARK = ("#308aba", "#fc8406", "#24c072", "#f0a2c0", "#0cd2fc", "#d84e00", "#fcde00", "#b484fc", "#967e72", "#cceaea")


@dataclass(frozen=True, slots=True)
class Palette:
    """The colour tokens of consumers."""

    names: tuple[str, ...]
    tokens: Mapping[str, str]

    def find_token(self, name: str | None) -> str:
        """Find the token of a consumer; None has the token ``nobody``."""
        return self.tokens.get(name or NOBODY, NOBODY)


def build_palette(data: ReportData) -> Palette:
    """Assign tokens to all consumers of a report: those of the data first, then those of scenarios."""
    real = _sort_names(_list_observed(data))
    known = set(real)
    extra = _sort_names(name for name in _list_simulated(data) if name not in known)
    names = tuple(real + extra)
    return Palette(names, {name: f"k{i % TOKENS}" for i, name in enumerate(names)})


def _sort_names(names: Iterable[str]) -> list[str]:
    return sorted({name for name in names if name and name != NOBODY}, key=natural_sort_key)


def _list_observed(data: ReportData) -> Iterator[str]:
    for mapped in data.range_maps:
        for epoch in mapped.epochs:
            yield from epoch.members
            yield from {band.consumer or NOBODY for band in epoch.bands}
    yield from (row.consumer for row in data.totals)
    yield from {point.consumer for point in data.load}
    yield from {point.consumer for point in data.findings_over_time}
    for move in data.moves:
        yield from (move.before, move.after)


def _list_simulated(data: ReportData) -> Iterator[str]:
    for scenario in data.scenarios:
        yield from (row.consumer for row in scenario.per_consumer)
    for view in data.dispatch:
        for row in (*view.blocked_consumers, *view.blocked_hashes):
            yield from (row.consumer, row.holder)
        for code in view.codes:
            yield from {finding.consumer for finding in code.worst}


def format_theme(values: tuple[str, ...]) -> str:
    """Build the custom properties ``--c0``, ``--c1``, … of one theme."""
    return "".join([f"--c{i}:{value};" for i, value in enumerate(values)])


def format_token_rules() -> str:
    """Build the style rules of all tokens: ``fill`` in charts, ``background`` in swatches."""
    out = []
    for i in range(TOKENS):
        colour, look = f"var(--c{i % SOLID})", i // SOLID
        fill = colour if look == 0 else f"url(#k{i})"
        ground = (
            colour,
            f"repeating-linear-gradient(45deg,{colour} 0 2px,var(--page) 2px 4px)",
            f"radial-gradient({colour} 55%,var(--page) 60%) 0 0/4px 4px",
        )[look]
        out.append(f".k{i}{{fill:{fill}}}i.k{i}{{background:{ground}}}")
    return "\n".join(out)


def draw_patterns(count: int) -> str:
    """Build the SVG patterns: the hatch of ``nobody``, and stripes and dots for consumers after the tenth."""
    out = ['<pattern id="nobody" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
           '<path d="M0,0h6v6h-6Z" class="t-none"/><path d="M0,0h1.5v6h-1.5Z" class="t-line"/></pattern>']  # fmt: skip
    for i in range(SOLID, min(count, TOKENS)):
        mark = "M0,0h2.5v5h-2.5Z" if i < 2 * SOLID else "M1,1h2.6v2.6h-2.6Z"
        turn = ' patternTransform="rotate(45)"' if i < 2 * SOLID else ""
        out.append(
            f'<pattern id="k{i}" width="5" height="5" patternUnits="userSpaceOnUse"{turn}>'
            f'<path d="M0,0h5v5h-5Z" class="t-page"/><path d="{mark}" class="k{i % SOLID}"/></pattern>'
        )
    return "".join(out)
