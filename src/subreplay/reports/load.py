"""Reading a ``report.json`` back into report data, so that it can be rendered again."""

from __future__ import annotations

import json
import types
import typing
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from subreplay.errors import InputError
from subreplay.reports.data import SCHEMA_VERSION, ReportData


def from_json(text: str) -> ReportData:
    """Report data from JSON. Raises ``InputError`` where it is not a report of this schema's major version."""
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise InputError(f"not a report: {error}") from error
    version = str(raw.get("schema_version")) if isinstance(raw, dict) else "none"
    if version.split(".")[0] != SCHEMA_VERSION.split(".")[0]:
        raise InputError(f"a report of schema version {version} cannot be read; this program knows {SCHEMA_VERSION}")
    try:
        report: ReportData = _value(ReportData, raw)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"not a complete report: {error}") from error
    return report


def _value(kind: Any, raw: Any) -> Any:
    """``raw`` as a value of type ``kind``: dataclasses and tuples are rebuilt, everything else is as JSON has it.

    A field that an earlier minor version did not have takes its default.
    """
    if is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        there = [f for f in fields(kind) if f.name in raw or f.default is MISSING]
        return kind(**{f.name: _value(hints[f.name], raw[f.name]) for f in there})
    arguments = typing.get_args(kind)
    origin = typing.get_origin(kind)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return tuple(_value(arguments[0], item) for item in raw)
    if origin is tuple:
        return tuple(_value(k, item) for k, item in zip(arguments, raw, strict=True))
    if origin in (typing.Union, types.UnionType) and raw is not None:
        return _value(next(a for a in arguments if a is not type(None)), raw)
    return raw
