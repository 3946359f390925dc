"""The JSON Schema of a run file: types of the models, explanations of ``default.yaml``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema

from subreplay.config.fields import DURATION_FORMAT, format_duration
from subreplay.config.run import RunConfig
from subreplay.config.run_file_keys import RunFileKey, read_default_file, read_entry_keys, read_keys
from subreplay.config.scenario import SCENARIOS

RUN_FILE_SCHEMA_VERSION: Final = "1.0"
"""The version of the schema, which follows semantic versioning: a key that is removed changes the major version."""
RUN_FILE_SCHEMA_ID: Final = "https://subreplay.github.io/subreplay/assets/run-file.schema.json"
_REPEATED: Final = "As above"


def build_run_file_schema() -> dict[str, Any]:
    """Build the JSON Schema of a run file. A file that it accepts may still contradict itself, such as a scenario whose
    consumer leaves before it joins."""
    schema = RunConfig.model_json_schema(schema_generator=_RunFileSchema)
    for key in read_keys(read_default_file().splitlines()):
        if isinstance(key, RunFileKey):
            _describe_key(schema, key, schema)
            continue
        for number, of_entry in read_entry_keys(key):
            name = [*SCENARIOS.values()][number].__name__
            _describe_key(schema, of_entry, schema["$defs"][name])
    head = {
        "$schema": GenerateJsonSchema.schema_dialect,
        "$id": RUN_FILE_SCHEMA_ID,
        "version": RUN_FILE_SCHEMA_VERSION,
        "title": "subreplay run file",
    }
    return head | {name: part for name, part in schema.items() if name not in head}


def format_run_file_schema() -> str:
    """Format the schema as indented ASCII JSON that ends in a newline."""
    return json.dumps(build_run_file_schema(), indent=1, ensure_ascii=True) + "\n"


class _RunFileSchema(GenerateJsonSchema):
    """A schema as a run file is written: durations with units, and no titles that only repeat names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: Any) -> Any:
        """Write a default that is one value; those of sections are defaults of their keys."""
        found = super().default_schema(schema)
        default = found.get("default")
        if isinstance(default, dict) or default == "(not shown)":
            return {name: part for name, part in found.items() if name != "default"}
        if _is_duration(found):
            if isinstance(default, list):
                return found | {"default": [format_duration(each) for each in default]}
            return found if default is None else found | {"default": format_duration(default)}
        return found

    def function_before_schema(self, schema: Any) -> Any:
        """Leave out the bounds in µs of a duration, which are not those of its text."""
        found = super().function_before_schema(schema)
        return {name: part for name, part in found.items() if name != "ge"}

    def tagged_union_schema(self, schema: Any) -> Any:
        """Describe scenarios by their policy, because one without ``dispatch`` fits both models."""
        if schema["choices"].keys() != SCENARIOS.keys():
            return super().tagged_union_schema(schema)
        pulsar, kafka, share = (self.generate_inner(schema["choices"][tag]) for tag in SCENARIOS)
        of_kafka = {"if": _has_policy("^kafka[.]"), "then": kafka, "else": pulsar}
        return {"if": _has_policy("^kafka[.]share$"), "then": share, "else": of_kafka}


def _has_policy(pattern: str) -> dict[str, Any]:
    return {"properties": {"policy": {"type": "string", "pattern": pattern}}, "required": ["policy"]}


def _is_duration(schema: Any) -> bool:
    parts = [schema, *schema.get("anyOf", ()), schema.get("items", {})]
    return any(part.get("format") == DURATION_FORMAT for part in parts)


def _describe_key(root: dict[str, Any], key: RunFileKey, section: dict[str, Any]) -> None:
    """Add the explanation of a key to its schema, unless another key with the same schema has added one."""
    node = section
    for part in key.path[:-1]:
        node = _find_section(root, node["properties"][part])
    described = node["properties"][key.path[-1]]
    text = re.sub(r"\n(?! )", " ", "\n".join(key.remarks))  # lines of a list stay lines
    if text and not text.startswith(_REPEATED):
        described.setdefault("description", text)


def _find_section(root: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a section that a key has, or that entries of a list have."""
    return next(_list_sections(root, [schema]))


def _list_sections(root: dict[str, Any], schemas: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for schema in schemas:
        if "$ref" in schema:
            yield from _list_sections(root, [root["$defs"][schema["$ref"].rsplit("/", 1)[1]]])
        elif "properties" in schema:
            yield schema
        else:
            inner = [
                *schema.get("anyOf", ()),
                *schema.get("oneOf", ()),
                *([schema["items"]] if "items" in schema else ()),
            ]
            yield from _list_sections(root, inner)
