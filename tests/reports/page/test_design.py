"""Text and marks stand out, colour-blind readers can tell consumers apart, and no style of the pages is unused."""

from __future__ import annotations

import re
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest

from subreplay.reports.page import html
from subreplay.reports.page.palette import DARK, LIGHT

FOLDER = Path(html.__file__).parent
STYLE = (FOLDER / "templates/report.css").read_text()
COLOURS = {
    "light": dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", STYLE.split("@media")[0])),
    "dark": dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", STYLE.split("@media (prefers-color-scheme: dark)")[1])),
}
TEXTS = [
    *((ink, ground) for ink in ("ink", "muted", "link") for ground in ("page", "soft")),
    *((ink, f"{kind}-soft") for kind in ("good", "warn", "bad") for ink in ("ink", kind)),
    *((kind, "page") for kind in ("good", "warn", "bad", "calm")), ("calm", "calm-soft"),
]  # fmt: skip
MARKS = ("cool", "hot", "rest", "axis", "mark", "hatch")
# What readers without red, green or blue cones see of linear RGB (Machado, Oliveira and Fernandes 2009, severity 1).
BLINDNESS = {
    "none": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}


def to_linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def compute_contrast(one: str, other: str) -> float:
    """The contrast of WCAG 2."""
    light, dark = sorted((float(to_linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (one, other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def to_oklab(linear: np.ndarray) -> np.ndarray:
    cones = np.array(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
    )
    axes = np.array(
        [
            [0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660],
        ]
    )
    return axes @ np.cbrt(cones @ np.clip(linear, 0, 1))


def compute_distance(one: str, other: str, blindness: str) -> float:
    """How far apart two colours look, in OKLab; about 0.02 is just noticeable."""
    seen = BLINDNESS[blindness]
    return float(np.linalg.norm(to_oklab(seen @ to_linear(one)) - to_oklab(seen @ to_linear(other))))


@pytest.mark.parametrize("theme", COLOURS)
@pytest.mark.parametrize(("ink", "ground"), TEXTS)
def test_text_has_enough_contrast(theme: str, ink: str, ground: str) -> None:
    assert compute_contrast(COLOURS[theme][ink], COLOURS[theme][ground]) >= 4.5


@pytest.mark.parametrize(("theme", "consumers"), [("light", LIGHT), ("dark", DARK)])
def test_marks_stand_out_from_the_page(theme: str, consumers: tuple[str, ...]) -> None:
    colours = COLOURS[theme]
    marks = {name: colours[name] for name in MARKS} | {f"c{i}": colour for i, colour in enumerate(consumers)}
    contrasts = {name: compute_contrast(colour, colours["page"]) for name, colour in marks.items()}
    assert {name: contrast for name, contrast in contrasts.items() if contrast < 3} == {}


@pytest.mark.parametrize("blindness", BLINDNESS)
@pytest.mark.parametrize("consumers", [LIGHT, DARK])
def test_colour_blind_readers_can_distinguish_consumers(consumers: tuple[str, ...], blindness: str) -> None:
    assert min(compute_distance(one, other, blindness) for one, other in pairwise(consumers)) >= 0.08
    assert min(compute_distance(one, other, blindness) for one, other in combinations(consumers, 2)) >= 0.07


def test_every_style_is_used() -> None:
    """A class in a style sheet is in a template, in a script, or in a module that draws."""
    sources = [*FOLDER.glob("*.py"), *FOLDER.glob("templates/*.j2"), *FOLDER.glob("templates/*.js")]
    words = set(re.findall(r"[a-z][a-z0-9-]*", " ".join(path.read_text() for path in sources)))
    built = {"b", "v", "tag", "s"}  # such as `b-{{ status|slug }}`, and the class of a line in svg.py
    for path in FOLDER.glob("templates/*.css"):
        selectors = re.sub(r"\{[^{}]*\}|/\*.*?\*/", " ", path.read_text(), flags=re.DOTALL)
        classes = set(re.findall(r"\.([a-z][a-z0-9-]*)", selectors))
        assert {name for name in classes - words if name.split("-")[0] not in built} == set(), path.name


def test_distances_and_sizes_come_from_one_scale() -> None:
    rules = STYLE.split("/* Page */")[1]
    assert not re.findall(r"(?:margin|gap): [^;]*\d{2,}px", rules)
    assert not re.search(r"#[0-9a-f]{3,6}\b(?!\))", rules.replace("#000", "")), "a literal colour is right on one theme"
