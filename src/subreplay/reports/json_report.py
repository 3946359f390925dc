"""Write a report as JSON, read it back, and describe it by a JSON Schema.

The fields are those of ``ReportData`` in declaration order. The JSON stays stable while ``SCHEMA_VERSION`` does.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema

from subreplay.errors import InputError
from subreplay.reports.data import SCHEMA_VERSION, ReportData, ScenarioView
from subreplay.reports.overview_data import Overview

REPORT_ADAPTER: Final = TypeAdapter(ReportData)
_OVERVIEW_ADAPTER: Final = TypeAdapter(Overview)
_CHARTS: Final = ("load", "flows", "flows_left_out")  # of a scenario
_DISPATCH_FIGURES: Final = (
    "service", "seed", "to_delivered", "to_acked", "backlog_max", "backlog_max_at", "drain", "blocked_ns",
    "blocked_consumers_count", "blocked_hashes_count", "outcomes", "redeliveries", "retries", "early",
)  # fmt: skip
_NOT_FINITE: Final = re.compile(r'^ *(?:"\w+": )?(?:NaN|-?Infinity),?$', re.MULTILINE)  # each value is on its own line


def to_json(data: ReportData) -> str:
    """Format a report as indented ASCII JSON that ends in a newline; equal data give equal bytes.

    Raises ``ValueError`` if a figure is not finite.
    """
    text = REPORT_ADAPTER.dump_json(data, indent=1, ensure_ascii=True).decode()
    if ("NaN" in text or "Infinity" in text) and (found := _NOT_FINITE.search(text)):
        raise ValueError(f"the report contains a figure that JSON cannot express: {found[0].strip()}")
    return text + "\n"


def format_overview_json(data: Overview) -> str:
    """Format the overview of several subscriptions as indented ASCII JSON that ends in a newline."""
    return _OVERVIEW_ADAPTER.dump_json(data, indent=1, ensure_ascii=True).decode() + "\n"


def list_scenario_figures(data: ReportData) -> list[dict[str, Any]]:
    """List the figures of each scenario for a script: those of its view, and of its replay as ``dispatch`` or None.

    Charts and tables of a report (load over time, moves, backlog over time, blocked consumers, findings) are left out.
    """
    replays = {view.name: view for view in data.dispatch}
    rows = []
    for view in data.scenarios:
        replay = replays.get(view.name)
        row = list_view_figures(view)
        dispatch = None if replay is None else asdict(replay)
        rows.append(row | {"dispatch": dispatch and {name: dispatch[name] for name in _DISPATCH_FIGURES}})
    return rows


def list_view_figures(view: ScenarioView) -> dict[str, Any]:
    """List the figures of a scenario without those of its charts."""
    return {name: value for name, value in asdict(view).items() if name not in _CHARTS}


def from_json(text: str) -> ReportData:
    """Read report data from JSON. Raises ``InputError`` if the text is not a report of this schema's major version.

    A field that an earlier minor version lacks takes its default. A field that a later version added is ignored.
    """
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise InputError(f"not a report: the text is not valid JSON ({error})") from error
    version = str(raw.get("schema_version")) if isinstance(raw, dict) else "none"
    if version.split(".")[0] != SCHEMA_VERSION.split(".")[0]:
        raise InputError(f"cannot read a report of schema version {version}; this program reads {SCHEMA_VERSION}")
    try:
        return REPORT_ADAPTER.validate_json(text, extra="ignore")
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(str(part) for part in first["loc"])
        raise InputError(f"not a complete report: field {at}: {first['msg']}") from error


def build_json_schema() -> dict[str, Any]:
    """Derive the report's JSON Schema from the declared types; unknown fields are not allowed."""
    schema = REPORT_ADAPTER.json_schema(mode="serialization", schema_generator=_UntitledSchema)
    return {"$schema": _UntitledSchema.schema_dialect, **schema, "title": "subreplay report"}


class _UntitledSchema(GenerateJsonSchema):
    """A schema without field titles, because they would only repeat the field names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False
