"""Draw charts as inline SVG: marks in pixels; the style sheet defines colours and fonts.

A colour is a token (``k3``, ``grid``) that becomes a class. The text of a mark becomes its tool tip. The layout does
not measure text or depend on fonts, so equal data give equal bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from markupsafe import escape

LEFT, PLOT, RIGHT = 92, 758, 50
"""Width and left margin of all charts in pixels; they are equal so that charts align on the page."""
_BASELINES = {"top": 9.0, "middle": 3.3, "bottom": -2.3}
"""Distance from the anchor of a text to its baseline, at 11 pixels."""
MAX_BYTES_WITH_TIPS = 450_000


class Drawing:
    """Collects the marks of a plot that is ``height`` pixels high; its upper left corner is (0, 0).

    ``label`` is the text for screen readers. ``top``, ``bottom``, ``left`` and ``right`` are the margins of the plot.
    """

    def __init__(
        self,
        height: float,
        label: str,
        *,
        top: float = 8,
        bottom: float = 26,
        width: float = PLOT,
        left: float = LEFT,
        right: float = RIGHT,
    ) -> None:
        self.height, self.width = height, width
        self._left, self._right = left, right
        self._label, self._top, self._bottom = label, top, bottom
        self._marks: list[str] = []
        self.frame: tuple[int, int] | None = None  # first and last instant (µs) of a time axis

    def box(self, x: float, x2: float, y: float, y2: float, colour: str, tip: str = "") -> None:
        """Draw a filled rectangle between two corners, with its tool tip."""
        size = f'width="{_px(abs(x2 - x))}" height="{_px(abs(y2 - y))}"'
        title = f"<title>{escape(tip)}</title>" if tip else ""
        self._marks.append(f'<rect class="{colour}" x="{_px(min(x, x2))}" y="{_px(min(y, y2))}" {size}>{title}</rect>')

    def area(self, points: Sequence[tuple[float, float]], colour: str) -> None:
        """Draw a filled polygon."""
        path = "L".join(f"{_px(x)},{_px(y)}" for x, y in points)
        self._marks.append(f'<path class="{colour}" d="M{path}Z"/>')

    def band(self, x: float, x2: float, y: float, y2: float, high: float, colour: str, tip: str) -> None:
        """Draw a curved band of constant height from ``y`` at the left to ``y2`` at the right."""
        left, right, middle = _px(x), _px(x2), _px((x + x2) / 2)
        there = f"M{left},{_px(y)}C{middle},{_px(y)} {middle},{_px(y2)} {right},{_px(y2)}"
        back = f"V{_px(y2 + high)}C{middle},{_px(y2 + high)} {middle},{_px(y + high)} {left},{_px(y + high)}Z"
        self._marks.append(f'<path class="flow {colour}" d="{there}{back}"><title>{escape(tip)}</title></path>')

    def dot(self, x: float, y: float, radius: float, colour: str, tip: str) -> None:
        """Draw a point with its tool tip."""
        where = f'cx="{_px(x)}" cy="{_px(y)}" r="{_px(radius)}"'
        self._marks.append(f'<circle class="{colour}" {where}><title>{escape(tip)}</title></circle>')

    def line(self, x: float, x2: float, y: float, y2: float, colour: str, dashes: str = "") -> None:
        """Draw a line one pixel wide; ``dashes`` are the lengths of dash and gap."""
        ends = f'x1="{_px(x)}" x2="{_px(x2)}" y1="{_px(y)}" y2="{_px(y2)}"'
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self._marks.append(f'<line class="s-{colour}" {ends}{dashed}/>')

    def sign(self, x: float, y: float, path: str, colour: str, tip: str) -> None:
        """Draw a small shape, whose path is around (0, 0), with its tool tip."""
        where = f'transform="translate({_px(x)},{_px(y)})"'
        self._marks.append(f'<path class="{colour}" d="{path}" {where}><title>{escape(tip)}</title></path>')

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        anchor: Literal["start", "middle", "end"] = "start",
        stands: Literal["top", "middle", "bottom"] = "middle",
        ink: bool = False,
        bold: bool = False,
        halo: bool = False,
        angle: int = 0,
    ) -> None:
        """Draw a line of text that starts, ends or is centred at ``x``, rotated by ``angle`` degrees.

        ``ink`` uses the dark colour of the page's text. With a ``halo``, it is readable on marks, too.
        """
        if not words:
            return
        turned = f" rotate({angle})" if angle else ""
        style = (' class="halo"' if halo else ' class="ink"' if ink else "") + (' font-weight="600"' if bold else "")
        anchored = "" if anchor == "start" else f' text-anchor="{anchor}"'
        where = f'transform="translate({_px(x)},{_px(y)}){turned}" dy="{_BASELINES[stands]}"'
        self._marks.append(f"<text {where}{anchored}{style}>{escape(words)}</text>")

    def svg(self) -> str:
        """Return the chart as an inline ``<svg>``; one with very many marks has no tool tips."""
        marks = "".join(self._marks)
        if len(marks) > MAX_BYTES_WITH_TIPS:
            marks = re.sub("<title>.*?</title>", "", marks)
        width, height = self._left + self.width + self._right, self._top + self.height + self._bottom
        head = f'<svg viewBox="0 0 {_px(width)} {_px(height)}" role="img" aria-label="{escape(self._label)}">'
        marks += self._draw_outside()
        return f'{head}<g transform="translate({_px(self._left)},{_px(self._top)})">{marks}</g></svg>'

    def _draw_outside(self) -> str:
        """Draw what covers the time before and after a selected span; the page's script sets the widths."""
        if self.frame is None:
            return ""
        start, end = self.frame
        cover = f'<rect width="0" height="{_px(self.height)}"/>' * 2
        return f'<g class="outside" data-frame="{start} {end} {_px(self.width)}">{cover}</g>'


def _px(pixels: float) -> str:
    """Format a coordinate to a hundredth of a pixel."""
    return f"{pixels:.2f}".rstrip("0").rstrip(".")
