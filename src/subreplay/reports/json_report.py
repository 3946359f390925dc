"""The report as JSON, in both directions, and the schema that says what is in it.

The fields are those of ``ReportData``, in the order they are declared, so the JSON is stable as long as
``SCHEMA_VERSION`` is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema

from subreplay.errors import InputError
from subreplay.reports.data import SCHEMA_VERSION, ReportData

REPORT: Final = TypeAdapter(ReportData)


def to_json(data: ReportData) -> str:
    """The report as indented ASCII JSON ending in a newline; the same data gives the same bytes."""
    return "".join(_indented(REPORT.dump_python(data, mode="json"), "\n")) + "\n"


def _indented(value: Any, line: str) -> Iterator[str]:
    """What ``json.dumps(value, indent=1)`` gives, in parts; ``line`` begins a line at this depth. With an indent,
    ``json`` would encode each value in Python; so what holds no other values is encoded without one."""
    inner = f"{line} "
    if not isinstance(value, dict | list) or not value:
        yield json.dumps(value, allow_nan=False)
    elif not any(isinstance(part, dict | list) for part in (value.values() if isinstance(value, dict) else value)):
        text = _encoder(inner).encode(value)
        yield f"{text[0]}{inner}{text[1:-1]}{line}{text[-1]}"
    else:
        named = isinstance(value, dict)
        begin = "{" if named else "["
        for key in value if named else range(len(value)):
            yield f"{begin}{inner}{json.dumps(key)}: " if named else f"{begin}{inner}"
            yield from _indented(value[key], inner)
            begin = ","
        yield f"{line}}}" if named else f"{line}]"


@cache
def _encoder(line: str) -> json.JSONEncoder:
    return json.JSONEncoder(separators=(f",{line}", ": "), allow_nan=False)


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
        return REPORT.validate_json(text, extra="ignore")
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(str(part) for part in first["loc"])
        raise InputError(f"not a complete report: {at}: {first['msg']}") from error


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the report, derived from the declared types; unknown fields are not allowed."""
    schema = REPORT.json_schema(mode="serialization", schema_generator=_Untitled)
    return {"$schema": _Untitled.schema_dialect, **schema, "title": "subreplay report"}


class _Untitled(GenerateJsonSchema):
    """A schema in which only rows have titles: that of a field would be its name once more."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False
