"""The pages as pictures, at three widths in both themes; and nothing on them is cut or wider than the window.

``SUBREPLAY_SNAPSHOTS=write`` in the environment rewrites the stored pictures. They have an eighth of the size and few
colours, so that a moved or recoloured part shows and the edges of letters do not.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from subreplay.reports.data import ReportData
from subreplay.reports.json_report import from_json, to_json
from subreplay.reports.page.history import render_history_page
from subreplay.reports.page.html import to_html
from subreplay.reports.page.overview import render_overview_page
from tests.reports.made_reports import daily_history, overview, planned, report
from tests.support.chromium import CHROMIUM, Browser, start_browser

pytestmark = [pytest.mark.long, pytest.mark.skipif(CHROMIUM is None, reason="no browser")]
STORED = Path(__file__).parent / "pictures"
PAGES = ("audit", "valid", "what-if", "plan", "overview", "history")
WIDTHS = (1280, 820, 420)
THEMES = ("light", "dark")
HEIGHT = 3_200  # of the page's upper part that is compared
LEVELS = 16  # of a colour channel
TILE = 5  # cells of a picture that are compared together: 40 pixels of the page
MAX_DIFFERENCE = 12  # of a tile, of 255; other edges of letters make about 3
TEXT_WIDTH = 1_095  # of the words below in the font that the stored pictures have

# Parts that are cut: their text is wider than the part, and nothing lets a reader see the rest.
FIND_CUT = """(() => {
  const cut = [];
  for (const part of document.querySelectorAll("main *, header *, footer *")) {
    if (part.closest("svg, .scroll, .chart, .toc, details:not([open]), select") || part.clientWidth === 0) continue;
    const name = part.tagName + "." + part.className + ": " + part.textContent.trim().slice(0, 40);
    if (part.scrollWidth > part.clientWidth + 1) cut.push("cut: " + name);
    if (part.getBoundingClientRect().right > innerWidth + 1) cut.push("outside: " + name);
  }
  return cut;
})()"""
MEASURE = """(() => {
  const context = document.createElement("canvas").getContext("2d");
  context.font = "100px " + getComputedStyle(document.body).fontFamily;
  return Math.round(context.measureText("Messages per consumer").width);
})()"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with start_browser() as started:
        yield started


@pytest.fixture(scope="module")
def pages(dispatched: ReportData, small: ReportData, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    texts = {
        "audit": to_html(small),
        "valid": to_html(report(3, 5, 4, 12, 60, valid=True)),
        "what-if": to_html(dispatched),
        "plan": to_html(planned(small)),
        "overview": render_overview_page(overview()),
        "history": render_history_page(daily_history()),
    }
    texts["long names"] = to_html(lengthen_names(small))
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in texts}


def lengthen_names(data: ReportData) -> ReportData:
    """The report with names of 90 letters for its consumers, its subscription and its topic."""
    names = {f'"{name}"': f'"{name}-{"reader" * 15}"' for name in ("c1", "c2", "c3")}
    names |= {'"billing"': f'"{"billing" * 13}"', "shop/prod/orders": "shop/" + "production" * 9 + "/orders"}
    text = to_json(data)
    for short, long in names.items():
        text = text.replace(short, long)
    return from_json(text)


def take_picture(browser: Browser) -> np.ndarray:
    """The upper part of the open page at an eighth of its size, as rows, columns and red, green, blue."""
    width, height, values = browser.decode_picture(browser.take_picture(HEIGHT, scale=0.25))
    pixels = np.frombuffer(values, np.uint8).reshape(height, width, 4)[: height // 2 * 2, : width // 2 * 2, :3]
    cells = pixels.reshape(height // 2, 2, width // 2, 2, 3).mean(axis=(1, 3))
    step = 255 / (LEVELS - 1)
    return (np.round(cells / step) * step).astype(np.uint8)


def write_png(path: Path, picture: np.ndarray) -> None:
    height, width, _ = picture.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), picture.reshape(height, width * 3)], axis=1)
    parts = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0),
        b"IDAT": zlib.compress(rows.tobytes(), 9),
        b"IEND": b"",
    }
    chunks = [struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in parts.items()]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))


def read_png(path: Path) -> np.ndarray:
    """Read a picture that ``write_png`` wrote."""
    stored = path.read_bytes()
    width, height = struct.unpack(">II", stored[16:24])
    (length,) = struct.unpack(">I", stored[33:37])
    rows = np.frombuffer(zlib.decompress(stored[41 : 41 + length]), np.uint8).reshape(height, 1 + width * 3)
    return rows[:, 1:].reshape(height, width, 3)


def looks_alike(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two pictures have about the same length, and each tile about the same mean colour in both."""
    if abs(len(one) - len(other)) > 1:
        return False
    height, width = (min(a, b) // TILE * TILE for a, b in zip(one.shape[:2], other.shape[:2], strict=True))
    parts = one[:height, :width].astype(int) - other[:height, :width].astype(int)
    tiles = parts.reshape(height // TILE, TILE, width // TILE, TILE, 3).mean(axis=(1, 3))
    return float(np.abs(tiles).max()) <= MAX_DIFFERENCE


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("theme", THEMES)
def test_a_page_looks_as_before(browser: Browser, pages: dict[str, Path], name: str, width: int, theme: str) -> None:
    browser.open(pages[name], width, theme=theme)
    if browser.evaluate(MEASURE) != TEXT_WIDTH:
        pytest.skip("this machine has other fonts")
    picture, path = take_picture(browser), STORED / f"{name}-{width}-{theme}.png"
    same = path.exists() and looks_alike(picture, read_png(path))
    if not same and os.environ.get("SUBREPLAY_SNAPSHOTS") == "write":
        STORED.mkdir(exist_ok=True)
        write_png(path, picture)
        same = looks_alike(picture, read_png(path))
    assert same, f"the page differs from {path.name}; look at it, and rewrite the picture"


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        ("", False),
        ("body { font-kerning: none; }", False),
        ("main > section:first-child { margin-top: calc(var(--s6) + 8px); }", True),
        ("#timeline { display: none; }", True),
        (".verdict { background: var(--good-soft) !important; }", True),
    ],
)
def test_a_moved_or_recoloured_part_shows_and_other_letters_do_not(
    browser: Browser, pages: dict[str, Path], tmp_path: Path, change: str, seen: bool
) -> None:
    changed = tmp_path / "page.html"
    changed.write_text(pages["audit"].read_text(encoding="utf-8").replace("</style>", change + "</style>", 1))
    browser.open(pages["audit"], 820)
    before = take_picture(browser)
    browser.open(changed, 820)
    assert looks_alike(before, take_picture(browser)) != seen


@pytest.mark.parametrize("name", [*PAGES, "long names"])
@pytest.mark.parametrize("width", [*WIDTHS, 360])
@pytest.mark.parametrize("opened", [False, True])
def test_no_page_is_wider_than_its_window_and_nothing_is_cut(
    browser: Browser, pages: dict[str, Path], name: str, width: int, opened: bool
) -> None:
    browser.open(pages[name], width)
    if opened:
        browser.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    assert browser.evaluate("document.scrollingElement.scrollWidth") == width
    assert browser.evaluate(FIND_CUT) == []


def test_a_region_that_scrolls_says_so(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["audit"], 420)
    count = "document.querySelectorAll('.chart.cut:not(.at-end)').length"
    assert browser.evaluate(count) >= 4
    browser.evaluate("document.querySelectorAll('.chart').forEach(part => { part.scrollLeft = 9999; })")
    assert browser.evaluate(f"new Promise(done => setTimeout(() => done({count}), 200))") == 0
    browser.open(pages["audit"], 1280)
    assert browser.evaluate("[...document.querySelectorAll('.cut')].filter(part => part.checkVisibility()).length") == 0


def test_the_pictures_are_small() -> None:
    assert sum(path.stat().st_size for path in STORED.glob("*.png")) < 600_000
    assert {path.stem for path in STORED.glob("*.png")} == {
        f"{n}-{w}-{t}" for n in PAGES for w in WIDTHS for t in THEMES
    }
