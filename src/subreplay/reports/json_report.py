"""The report as JSON: every field of ``ReportData``, in the order it is declared, and the schema that says so.

The fields are those of ``ReportData``, so the JSON is stable as long as ``SCHEMA_VERSION`` is. A number that is not
finite (a ceiling without traffic) is ``null``, because JSON has no other way to say it.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from subreplay.reports.data import ReportData

DIALECT = "https://json-schema.org/draft/2020-12/schema"
PLAIN: dict[type, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    float: {"type": ["number", "null"]},  # null = not finite
}


def to_json(data: ReportData) -> str:
    """The report as indented JSON ending in a newline; the same data gives the same bytes."""
    return json.dumps(_finite(dataclasses.asdict(data)), indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    """The value with NaN and infinities as None."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the report, derived from the declared types; unknown fields are not allowed."""
    return {"$schema": DIALECT, "title": "subreplay report", **_object(ReportData)}


def _object(row: type) -> dict[str, Any]:
    """One frozen row: every field required, none besides."""
    fields = _fields(row)
    return {
        "type": "object",
        "description": (row.__doc__ or "").strip().split("\n")[0],
        "properties": {name: _schema(kind) for name, kind in fields.items()},
        "required": list(fields),
        "additionalProperties": False,
    }


@cache
def _fields(row: type) -> dict[str, Any]:
    """Field name to type, in declared order."""
    hints = get_type_hints(row)
    return {field.name: hints[field.name] for field in dataclasses.fields(row)}


def _schema(kind: Any) -> dict[str, Any]:
    """The schema of one declared type."""
    if kind in PLAIN:
        return dict(PLAIN[kind])
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _object(kind)
    origin, args = get_origin(kind), get_args(kind)
    if origin is Literal:
        return {"enum": list(args)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [{"type": "null"} if arg is type(None) else _schema(arg) for arg in args]}
    if origin is tuple and args[-1] is Ellipsis:
        return {"type": "array", "items": _schema(args[0])}
    if origin is tuple:
        return {"type": "array", "prefixItems": [_schema(arg) for arg in args], "minItems": len(args), "items": False}
    raise TypeError(f"no JSON schema for {kind!r}")
