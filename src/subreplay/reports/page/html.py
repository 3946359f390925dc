"""The report as one page that opens without a network: style, charts and a little script are inside.

The page is complete without its script, which only filters findings and opens folded parts for printing. A content
security policy in the page allows that one script by its digest and no address at all.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from jinja2 import BytecodeCache, Environment, FunctionLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup

from subreplay.reports import words
from subreplay.reports.clean import cleaned
from subreplay.reports.data import ReportData, ScenarioConsumer
from subreplay.reports.metrics import METRICS
from subreplay.reports.page import palette
from subreplay.reports.page.view import View, view

PAGE = "report.html.j2"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{}'; base-uri 'none'; form-action 'none'"


def to_html(data: ReportData) -> str:
    """The report's page; the same data gives the same bytes."""
    data = cleaned(data)
    shown = view(data)
    environment = page_environment(_filters(shown, data.run.topic))
    return filled(
        environment,
        PAGE,
        "report.js",
        data=data,
        run=data.run,
        view=shown,
        metrics=METRICS,
        patterns=palette.patterns(len(shown.colours.names)),
    )


def filled(environment: Environment, template: str, script_name: str, *, own_style: str = "", **values: Any) -> str:
    """A page with one script, which its policy allows by its digest, and with the style of all pages and its own."""
    script = _asset(script_name).strip()
    policy = POLICY.format(base64.b64encode(hashlib.sha256(script.encode()).digest()).decode())
    style = _style() + (_asset(own_style) if own_style else "")
    page: str = environment.get_template(template).render(style=style, script=script, policy=policy, **values)
    return page.strip() + "\n"


def _asset(name: str) -> str:
    """A file of the package's templates."""
    return files("subreplay.reports.page").joinpath("templates", name).read_text(encoding="utf-8")


def _style() -> str:
    """The style sheet with the consumers' colours for both themes."""
    style = _asset("report.css").replace("/*light*/", palette.colours(palette.LIGHT))
    return style.replace("/*dark*/", palette.colours(palette.DARK)) + palette.rules()


class _Compiled(BytecodeCache):
    """Templates as a process has compiled them: that takes longer than to fill them in."""

    def __init__(self) -> None:
        self.templates: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        if bucket.key in self.templates:
            bucket.bytecode_from_string(self.templates[bucket.key])

    def dump_bytecode(self, bucket: Bucket) -> None:
        self.templates[bucket.key] = bucket.bytecode_to_string()


_compiled = _Compiled()


def page_environment(filters: Mapping[str, Any]) -> Environment:
    """Templates of the package, an unknown name an error, everything escaped but what they call safe: drawn charts,
    the colours and the packaged style and script."""
    environment = Environment(
        loader=FunctionLoader(_asset), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        bytecode_cache=_compiled,
    )  # fmt: skip
    environment.filters.update(filters)
    return environment


def _filters(shown: View, topic: str) -> dict[str, Any]:
    return {
        "count": words.count,
        "percent": words.percent,
        "percent_or_none": words.percent_or_none,
        "times": words.times,
        "best": words.best,
        "idle": idle,
        "size": words.size,
        "nanos": words.nanos,
        "others": words.others,
        "nanos_or_never": words.nanos_or_never,
        "early": lambda early: words.early(early.count, early.delayed, early.least_ns, early.most_ns),
        "plural": words.plural,
        "clock": lambda text: words.clock(text, shown.day),
        "cause": words.short_cause,
        "partition": lambda scope: words.partition(scope, topic),
        "whole_clock": words.clock,
        "token": shown.colours.token,
        "slug": slug,
        "width": width,
        "breakable": breakable,
    }


def idle(consumers: Sequence[ScenarioConsumer]) -> list[tuple[str, str]]:
    """Why consumers were given nothing, each reason with who they are."""
    names: dict[str, list[str]] = {}
    for one in consumers:
        if one.note:
            names.setdefault(one.note, []).append(one.consumer)
    return [(why, words.best(mine, 0)) for why, mine in names.items()]


def slug(text: str) -> str:
    """A class name for a status: ``not applicable`` becomes ``not-applicable``."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def width(share: float, full: float) -> str:
    """How much of a cell a bar fills, as a CSS length."""
    return f"{max(0.0, min(share / full, 1.0)) * 100:.1f}%" if full > 0 and share == share else "0%"


def breakable(name: str) -> Markup:
    """A dotted name that may break after a dot or an underscore, but not within a number."""
    return Markup("<wbr>").join(re.split(r"(?<=[._])(?=\D)", name))
