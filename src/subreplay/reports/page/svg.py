"""Charts as SVG that belongs to the page: marks in pixels, whose colours and type are the style sheet's.

A colour is a token (``k3``, ``grid``), which becomes a class; a mark's sentence becomes its tool tip. No text is
measured and nothing depends on the machine's fonts, so the same data give the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from markupsafe import escape

LEFT, PLOT, RIGHT = 92, 758, 50
"""Pixels: one width and one left margin for all charts, so that they can be read under each other."""
_BASELINES = {"top": 9.0, "middle": 3.3, "bottom": -2.3}
"""From where a text stands to its baseline, at 11 pixels."""


class Drawing:
    """Marks on a plot of the shared width, or of another one, ``height`` pixels high; its upper left corner is (0, 0).

    ``label`` is what a screen reader says of it; ``top``, ``bottom``, ``left`` and ``right`` are the room around the
    plot.
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

    def box(self, x: float, x2: float, y: float, y2: float, colour: str, tip: str = "") -> None:
        """A filled rectangle between two corners, with its tool tip."""
        size = f'width="{_px(abs(x2 - x))}" height="{_px(abs(y2 - y))}"'
        title = f"<title>{escape(tip)}</title>" if tip else ""
        self._marks.append(f'<rect class="{colour}" x="{_px(min(x, x2))}" y="{_px(min(y, y2))}" {size}>{title}</rect>')

    def area(self, points: Sequence[tuple[float, float]], colour: str) -> None:
        """A filled area between corners."""
        path = "L".join(f"{_px(x)},{_px(y)}" for x, y in points)
        self._marks.append(f'<path class="{colour}" d="M{path}Z"/>')

    def band(self, x: float, x2: float, y: float, y2: float, high: float, colour: str, tip: str) -> None:
        """A band of one height from the left at ``y`` to the right at ``y2``, where it lies flat."""
        left, right, middle = _px(x), _px(x2), _px((x + x2) / 2)
        there = f"M{left},{_px(y)}C{middle},{_px(y)} {middle},{_px(y2)} {right},{_px(y2)}"
        back = f"V{_px(y2 + high)}C{middle},{_px(y2 + high)} {middle},{_px(y + high)} {left},{_px(y + high)}Z"
        self._marks.append(f'<path class="flow {colour}" d="{there}{back}"><title>{escape(tip)}</title></path>')

    def dot(self, x: float, y: float, radius: float, colour: str, tip: str) -> None:
        """A point, with its tool tip."""
        where = f'cx="{_px(x)}" cy="{_px(y)}" r="{_px(radius)}"'
        self._marks.append(f'<circle class="{colour}" {where}><title>{escape(tip)}</title></circle>')

    def line(self, x: float, x2: float, y: float, y2: float, colour: str, dashes: str = "") -> None:
        """A line one pixel wide; ``dashes`` are lengths of dash and gap."""
        ends = f'x1="{_px(x)}" x2="{_px(x2)}" y1="{_px(y)}" y2="{_px(y2)}"'
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self._marks.append(f'<line class="s-{colour}" {ends}{dashed}/>')

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
        angle: int = 0,
    ) -> None:
        """A line of text that ends, begins or is centred at ``x``, turned by ``angle`` degrees around where it stands;
        ``ink``: as dark as the page's own."""
        if not words:
            return
        turned = f" rotate({angle})" if angle else ""
        looks = (' class="ink"' if ink else "") + (' font-weight="600"' if bold else "")
        anchored = "" if anchor == "start" else f' text-anchor="{anchor}"'
        where = f'transform="translate({_px(x)},{_px(y)}){turned}" dy="{_BASELINES[stands]}"'
        self._marks.append(f"<text {where}{anchored}{looks}>{escape(words)}</text>")

    def svg(self) -> str:
        """The chart as an inline ``<svg>``."""
        width, height = self._left + self.width + self._right, self._top + self.height + self._bottom
        head = f'<svg viewBox="0 0 {_px(width)} {_px(height)}" role="img" aria-label="{escape(self._label)}">'
        return f'{head}<g transform="translate({_px(self._left)},{_px(self._top)})">{"".join(self._marks)}</g></svg>'


def _px(pixels: float) -> str:
    """A coordinate to a hundredth of a pixel."""
    return f"{pixels:.2f}".rstrip("0").rstrip(".")
