"""Render the report as one page with style, charts and script inside, so that it opens without a network.

The page is complete without its script, which filters findings and opens folded parts for printing. The page's content
security policy allows this script by its digest, and no network address.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any

from jinja2 import BytecodeCache, Environment, FunctionLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup

from subreplay.reports.data import ReportData, ScenarioConsumer
from subreplay.reports.formatting import (
    format_bytes,
    format_clock,
    format_count,
    format_early,
    format_names,
    format_nanos,
    format_nanos_or_never,
    format_optional_percent,
    format_percent,
    format_plural,
    format_ratio,
    format_rule_url,
    format_worst,
    shorten_cause,
    shorten_scope,
)
from subreplay.reports.metrics import METRICS
from subreplay.reports.page import palette
from subreplay.reports.page.finding_filter import MAX_ROWS_BYTES, build_findings
from subreplay.reports.page.page_view import MAX_OPEN_INCIDENTS, STATUS_ORDER, PageView, build_page_view
from subreplay.reports.text_cleaning import clean_strings

MAX_PAGE_BYTES = 1_450_000  # a larger page lists fewer findings
MIN_ROWS_BYTES = 100_000
LONG_WORD = 20  # letters
PAGE = "report.html.j2"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{}'; base-uri 'none'; form-action 'none'"


def to_html(data: ReportData) -> str:
    """Render the report's page of at most 1.5 MB; equal data give equal bytes."""
    data = clean_strings(data)
    shown = build_page_view(data)
    page = _render_report(data, shown)
    size = MAX_ROWS_BYTES
    while (excess := len(page.encode()) - MAX_PAGE_BYTES) > 0 and size > MIN_ROWS_BYTES:
        size = max(size - excess, MIN_ROWS_BYTES)
        page = _render_report(data, replace(shown, findings=build_findings(data, STATUS_ORDER, size)))
    return page


def _render_report(data: ReportData, shown: PageView) -> str:
    environment = page_environment(_build_filters(shown, data.run.topic))
    return render_page(
        environment,
        PAGE,
        ["scroll_cue.js", "table_sort.js", "report.js", "span_selection.js"],
        data=data,
        run=data.run,
        view=shown,
        metrics=METRICS,
        max_open=MAX_OPEN_INCIDENTS,
        patterns=palette.draw_patterns(len(shown.colours.names)),
    )


def render_page(
    environment: Environment, template: str, scripts: Sequence[str], *, own_style: str = "", **values: Any
) -> str:
    """Render a page with the common style, its own style and its scripts as one, which its policy allows by digest."""
    script = "".join(map(_read_asset, scripts)).strip()
    policy = POLICY.format(base64.b64encode(hashlib.sha256(script.encode()).digest()).decode())
    style = build_style() + (_read_asset(own_style) if own_style else "")
    page: str = environment.get_template(template).render(style=style, script=script, policy=policy, **values)
    return page.strip() + "\n"


def _read_asset(name: str) -> str:
    """Read a file of the templates folder."""
    return files("subreplay.reports.page").joinpath("templates", name).read_text(encoding="utf-8")


def build_style() -> str:
    """Build the style sheet with the consumers' colours for both themes."""
    style = _read_asset("report.css").replace("/*light*/", palette.format_theme(palette.LIGHT))
    return style.replace("/*dark*/", palette.format_theme(palette.DARK)) + palette.format_token_rules()


class _TemplateCache(BytecodeCache):
    """Keep the compiled templates of this process, because compiling takes longer than rendering."""

    def __init__(self) -> None:
        self.templates: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        if bucket.key in self.templates:
            bucket.bytecode_from_string(self.templates[bucket.key])

    def dump_bytecode(self, bucket: Bucket) -> None:
        self.templates[bucket.key] = bucket.bytecode_to_string()


_compiled = _TemplateCache()


def page_environment(filters: Mapping[str, Any]) -> Environment:
    """Create the template environment. Unknown names are errors.

    All values are escaped except those that templates mark as safe: charts, colours, style and script.
    """
    environment = Environment(
        loader=FunctionLoader(_read_asset),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        bytecode_cache=_compiled,
    )
    environment.filters.update(filters)
    return environment


def _build_filters(shown: PageView, topic: str) -> dict[str, Any]:
    return {
        "count": format_count,
        "percent": format_percent,
        "percent_or_none": format_optional_percent,
        "times": format_ratio,
        "best": format_names,
        "idle": list_idle,
        "size": format_bytes,
        "nanos": format_nanos,
        "others": format_worst,
        "nanos_or_never": format_nanos_or_never,
        "early": lambda early: format_early(early.count, early.delayed, early.least_ns, early.most_ns),
        "plural": format_plural,
        "clock": lambda text: format_clock(text, shown.day),
        "cause": shorten_cause,
        "partition": lambda scope: shorten_scope(scope, topic),
        "whole_clock": format_clock,
        "token": shown.colours.find_token,
        "slug": format_slug,
        "rule_url": format_rule_url,
        "width": format_width,
        "breakable": make_breakable,
        "marked": mark_code,
    }


def list_idle(consumers: Sequence[ScenarioConsumer]) -> list[tuple[str, str]]:
    """Group the idle consumers by reason."""
    names: dict[str, list[str]] = {}
    for one in consumers:
        if one.note:
            names.setdefault(one.note, []).append(one.consumer)
    return [(why, format_names(mine, 0)) for why, mine in names.items()]


def format_slug(text: str) -> str:
    """Build a CSS class name for a status: ``not applicable`` becomes ``not-applicable``."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def format_width(share: float, full: float) -> str:
    """Compute how much of a cell a bar fills, as a CSS length."""
    return f"{max(0.0, min(share / full, 1.0)) * 100:.1f}%" if full > 0 and share == share else "0%"


def mark_code(text: str) -> Markup:
    """Mark what is in backticks as code, and allow line breaks in the long names of a sentence."""
    parts = [
        Markup().join(make_breakable(word) if len(word) > LONG_WORD else word for word in re.split(r"(\s+)", part))
        for part in re.split("`([^`]+)`", text)
    ]
    return Markup().join(Markup("<code>{}</code>").format(part) if i % 2 else part for i, part in enumerate(parts))


def make_breakable(name: str) -> Markup:
    """Allow line breaks in a name after a dot, an underscore or a slash, but not within a number."""
    return Markup("<wbr>").join(re.split(r"(?<=[._])(?=\D)|(?<=[^/]/)(?=[^/])", name))
