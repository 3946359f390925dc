"""The JSON has every field, says so in a schema, and is the same for the same data."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import jsonschema
import pytest

from subreplay.errors import InputError
from subreplay.reports.data import ReportData
from subreplay.reports.json_report import build_json_schema, from_json, to_json


def test_the_report_reads_back_as_it_was_written(small: ReportData) -> None:
    text = to_json(small)
    assert json.loads(text) == json.loads(json.dumps(dataclasses.asdict(small)))
    assert text.endswith("}\n")
    assert next(iter(json.loads(text))) == "schema_version"


def test_the_report_fits_its_schema(
    small: ReportData, failover: ReportData, bare: ReportData, dispatched: ReportData
) -> None:
    for data in (small, failover, bare, dispatched):
        jsonschema.validate(json.loads(to_json(data)), build_json_schema())


def test_a_report_is_read_back_whole(small: ReportData, dispatched: ReportData) -> None:
    for data in (small, dispatched):
        assert from_json(to_json(data)) == data


def test_a_report_of_an_earlier_minor_version_lacks_what_came_later(small: ReportData) -> None:
    old = json.loads(to_json(small))
    del old["run"]["engine"], old["answers"], old["dispatch"]
    del old["codes"][0]["source"], old["codes"][0]["worst"][0]["window"]
    read = from_json(json.dumps(old))
    assert (read.run.engine, read.dispatch) == (None, ())
    assert (read.codes[0].source, read.codes[0].worst[0].window) == ("observed", "")
    assert from_json(json.dumps(old | {"mood": 1})) == read, "a later minor version has more"
    with pytest.raises(InputError, match=r"cannot read a report of schema version 3\.0"):
        from_json(json.dumps(old | {"schema_version": "3.0"}))


@pytest.mark.long
def test_a_missing_field_and_an_unknown_one_do_not_fit_the_schema(small: ReportData) -> None:
    report = json.loads(to_json(small))
    del report["codes"][0]["meaning"]
    with pytest.raises(jsonschema.ValidationError, match="'meaning' is a required property"):
        jsonschema.validate(report, build_json_schema())
    with pytest.raises(jsonschema.ValidationError, match="'mood' was unexpected"):
        jsonschema.validate(json.loads(to_json(small)) | {"mood": 1}, build_json_schema())


def test_the_schema_has_every_field_of_every_row(snapshot: Callable[[str, str], None]) -> None:
    """The stored schema is the promise: a change of the report's fields has to change it, and the version."""
    assert _rows(ReportData) == _described(build_json_schema())
    snapshot("report.schema.json", _lines(build_json_schema()) + "\n")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_every_figure_is_finite(small: ReportData, value: float) -> None:
    """JSON has no way to say that a number is not; no figure of a report divides by zero."""
    scenario = dataclasses.replace(small.scenarios[0], ceiling=value)
    with pytest.raises(ValueError, match="JSON cannot express"):
        to_json(dataclasses.replace(small, scenarios=(scenario,)))


def test_what_does_not_fit_is_named(small: ReportData) -> None:
    report = json.loads(to_json(small))
    report["codes"][1]["count"] = "many"
    with pytest.raises(
        InputError, match=r"not a complete report: field codes\.1\.count: Input should be a valid integer"
    ):
        from_json(json.dumps(report))


def _rows(row: type) -> set[str]:
    """Every field of a dataclass and of those below it."""
    names = {f"{row.__name__}.{field.name}" for field in dataclasses.fields(row)}
    for kind in get_type_hints(row).values():
        for part in (kind, *get_args(kind)):
            if dataclasses.is_dataclass(part) and isinstance(part, type):
                names |= _rows(part)
    return names


def _described(schema: dict[str, Any]) -> set[str]:
    """The same names, as the schema has them."""
    rows = schema["$defs"] | {"ReportData": schema}
    return {f"{name}.{field}" for name, row in rows.items() for field in row["properties"]}


def _lines(value: Any, indent: str = "") -> str:
    """JSON in which all that fits into a line stands in one."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent + line) < 100 or not isinstance(value, dict):
        return line
    inner = indent + "  "
    items = ",\n".join(f"{inner}{json.dumps(key)}: {_lines(below, inner)}" for key, below in value.items())
    return f"{{\n{items}\n{indent}}}"
