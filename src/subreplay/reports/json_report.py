"""The report as JSON, in both directions, and the schema that says what is in it.

The fields are those of ``ReportData``, in the order they are declared, so the JSON is stable as long as
``SCHEMA_VERSION`` is.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema

from subreplay.errors import InputError
from subreplay.reports.data import SCHEMA_VERSION, ReportData
from subreplay.reports.overview_data import Overview

REPORT_ADAPTER: Final = TypeAdapter(ReportData)
_OVERVIEW_ADAPTER: Final = TypeAdapter(Overview)
_NOT_FINITE: Final = re.compile(r'^ *(?:"\w+": )?(?:NaN|-?Infinity),?$', re.MULTILINE)  # a value has a line of its own


def to_json(data: ReportData) -> str:
    """The report as indented ASCII JSON ending in a newline; the same data gives the same bytes. Raises ``ValueError``
    where a figure is not finite."""
    text = REPORT_ADAPTER.dump_json(data, indent=1, ensure_ascii=True).decode()
    if ("NaN" in text or "Infinity" in text) and (found := _NOT_FINITE.search(text)):
        raise ValueError(f"not JSON compliant, as a figure is not finite: {found[0].strip()}")
    return text + "\n"


def overview_json(data: Overview) -> str:
    """The overview of several subscriptions as indented ASCII JSON ending in a newline."""
    return _OVERVIEW_ADAPTER.dump_json(data, indent=1, ensure_ascii=True).decode() + "\n"


def from_json(text: str) -> ReportData:
    """Report data from JSON. Raises ``InputError`` where it is not a report of this schema's major version.

    A field that an earlier minor version did not have takes its default; one that a later version added is left out.
    """
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise InputError(f"not a report: {error}") from error
    version = str(raw.get("schema_version")) if isinstance(raw, dict) else "none"
    if version.split(".")[0] != SCHEMA_VERSION.split(".")[0]:
        raise InputError(f"a report of schema version {version} cannot be read; this program knows {SCHEMA_VERSION}")
    try:
        return REPORT_ADAPTER.validate_json(text, extra="ignore")
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(str(part) for part in first["loc"])
        raise InputError(f"not a complete report: {at}: {first['msg']}") from error


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the report, derived from the declared types; unknown fields are not allowed."""
    schema = REPORT_ADAPTER.json_schema(mode="serialization", schema_generator=_UntitledSchema)
    return {"$schema": _UntitledSchema.schema_dialect, **schema, "title": "subreplay report"}


class _UntitledSchema(GenerateJsonSchema):
    """A schema in which only rows have titles: that of a field would be its name once more."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False
