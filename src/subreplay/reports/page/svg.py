"""From a chart to a piece of SVG that belongs to the page: its colours, its type, no address, no script.

vl-convert writes literal colours, fonts and running ids. Here only the drawing is kept: what a chart calls a colour is
a token (``k3``, ``grid``) that becomes a class, text takes the page's type, a mark's description becomes its tool tip.
Nothing depends on the machine's fonts or on what was drawn before, so the same chart gives the same bytes.
"""

from __future__ import annotations

import json
import re
from typing import Any
from xml.etree import ElementTree

import vl_convert
from markupsafe import escape

KEPT = ("d", "transform", "x", "y", "x2", "y2", "width", "height", "stroke-width", "stroke-dasharray", "text-anchor",
        "font-size", "font-weight", "opacity", "fill-opacity")  # fmt: skip
USELESS = {("opacity", "1"), ("stroke-width", "1"), ("font-weight", "normal"), ("font-size", "11px"),
           ("transform", "translate(0,0)")}  # fmt: skip
DROPPED_CLASSES = {"background", "foreground"}
TOKEN = re.compile(r"[a-z][a-z0-9-]*")
DECIMALS = re.compile(r"-?\d+\.\d{3,}(?:e-?\d+)?")
SCRIPTS = re.compile(r"\{http[^}]*\}")


def draw(spec: dict[str, Any], label: str) -> str:
    """The chart as an inline ``<svg>``; ``label`` is what a screen reader says of it."""
    root = ElementTree.fromstring(vl_convert.vegalite_to_svg(json.dumps(spec)))
    width, height = root.attrib["width"], root.attrib["height"]
    body = "".join([_element(child) for child in root])
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">{body}</svg>'


def _element(node: ElementTree.Element) -> str:
    """One element and what is in it; empty where nothing of it is seen."""
    tag = SCRIPTS.sub("", node.tag)
    if tag not in ("g", "path", "line", "text") or _unseen(node):
        return ""
    inner = "".join([_element(child) for child in node])
    if tag == "g":
        return _group(node, inner)
    title = node.get("aria-label")
    inner += f"<title>{escape(title)}</title>" if title else ""
    inner += str(escape(node.text)) if node.text and tag == "text" else ""
    attributes = _attributes(node, tag)
    return f"<{tag}{attributes}>{inner}</{tag}>" if inner else f"<{tag}{attributes}/>"


def _group(node: ElementTree.Element, inner: str) -> str:
    """A group only where it moves what is in it."""
    shift = node.get("transform", "")
    if not inner or not shift or shift == "translate(0,0)":
        return inner
    return f'<g transform="{escape(_short(shift))}">{inner}</g>'


def _unseen(node: ElementTree.Element) -> bool:
    return node.get("opacity") == "0" or node.get("d") == "" or node.get("class") in DROPPED_CLASSES


def _attributes(node: ElementTree.Element, tag: str) -> str:
    """The kept attributes, numbers shortened, colours as classes."""
    classes = _classes(node, tag)
    out = [f' class="{classes}"'] if classes else []
    for name in KEPT:
        value = node.get(name)
        if value is not None and (name, value) not in USELESS:
            out.append(f' {name}="{escape(_short(value))}"')
    return "".join(out)


def _classes(node: ElementTree.Element, tag: str) -> str:
    """Tokens of fill and stroke; plain text needs none."""
    fill, stroke = node.get("fill", ""), node.get("stroke", "")
    names = [fill] if TOKEN.fullmatch(fill) and fill != "none" else []
    names += [f"s-{stroke}"] if TOKEN.fullmatch(stroke) and stroke != "none" else []
    return " ".join([name for name in names if not (tag == "text" and name == "muted")])


def _short(value: str) -> str:
    """Coordinates to a hundredth of a pixel."""
    return DECIMALS.sub(lambda match: f"{float(match.group()):.2f}".rstrip("0").rstrip("."), value)
