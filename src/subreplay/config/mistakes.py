"""Describe each error of a run file in one sentence: file and line, key, legal values, and the value found."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

from subreplay.config.yaml_text import Lines

OPTIONS: Final = {
    "date": "--date", "engine": "--engine", "traffic.path": "--tables", "output.tables": "--out",
    "output.report": "--out", "output.metrics": "--metrics",
}  # fmt: skip
"""The command line option that overrides a key. An error of such a value names the option."""

_REQUIREMENTS: Final = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    "string_type": "must be a text",
    "tuple_type": "must be a list: lines that begin with -",
    "list_type": "must be a list: lines that begin with -",
    "literal_error": "must be {expected}",
    "greater_than_equal": "must be at least {ge:g}",
    "greater_than": "must be more than {gt:g}",
    "less_than_equal": "must be at most {le:g}",
    "less_than": "must be less than {lt:g}",
    "string_too_short": "must not be empty",
    "too_short": "must not be empty",
    "too_long": "must have at most {max_length} entries",
    "invalid_key": "a key must be a word",
}
_SECTION: Final = ("model_type", "model_attributes_type", "dict_type")


def find_location(source: str, lines: Lines, path: tuple[str | int, ...]) -> str:
    """Return the file and the line of a key, or of the section that lacks it."""
    for length in range(len(path), 0, -1):
        if path[:length] in lines:
            return f"{source}:{lines[path[:length]]}"
    return source


def describe_error(
    source: str, lines: Lines, error: Any, options: Mapping[str, Any], model: Any, kinds: Mapping[str, Any]
) -> str:
    """Describe a validation error of ``model``; ``options`` are overridden keys, ``kinds`` the models of scenarios."""
    path = tuple(part for part in error["loc"] if not str(part).startswith("("))
    key = ".".join(map(str, path))
    where = find_location(source, lines, path)
    if error["type"] == "extra_forbidden":
        return f"{where}: unknown key {key}; {_suggest_key(error['loc'][:-1], str(path[-1]), model, kinds)}"
    if error["type"] == "missing":
        return f"{where}: {key} is required"
    requirement, value = _describe_requirement(error, model, kinds), error["input"]
    if key in options and key in OPTIONS:
        return f"{OPTIONS[key]} {str(value)[:100]!r}: {requirement}"
    secret = path[:1] == ("keys",) and path[1:] != ("show",)
    secret |= path[:1] == ("traffic",) and ("options" in path or isinstance(value, dict))
    secret |= path[:1] == ("alerts",) and path[-1] in ("url", "token", "password")
    silent = secret or (error["type"] == "value_error" and isinstance(value, dict))
    found = "" if silent else f" (found: {_format_value(value)})"
    return f"{where}: {key}: {requirement}{found}" if key else f"{where}: {requirement}"


def _describe_requirement(error: Any, model: Any, kinds: Mapping[str, Any]) -> str:
    """Say what a value has to be."""
    if error["type"] in _SECTION:
        known = ", ".join(list_legal_keys(error["loc"], model, kinds))
        return "must be a section of keys" + (f": {known}" if known else "")
    requirement = _REQUIREMENTS.get(error["type"])
    if requirement is None:
        return str(error["msg"]).removeprefix("Value error, ")
    plain = error["type"] == "string_type" and not isinstance(error["input"], (list, dict, type(None)))
    return requirement.format(**error.get("ctx", {})) + ("; put it into quotes" if plain else "")


def _format_value(value: Any) -> str:
    """Format a value as a run file writes it."""
    if value is None or isinstance(value, bool):
        return {None: "nothing", True: "true", False: "false"}[value]
    return (repr(value[:100]) if isinstance(value, str) else str(value))[:102]


def _suggest_key(section: tuple[Any, ...], key: str, model: Any, kinds: Mapping[str, Any]) -> str:
    """Suggest a key instead of one that the section does not have."""
    if (field := _list_fields(section, model, kinds).get(key)) is not None and field.alias:
        return f"its name is {field.alias!r}" + (", in ms or with a unit" if field.alias.endswith(".ms") else "")
    legal = list_legal_keys(section, model, kinds)
    near = difflib.get_close_matches(key, legal, n=1)
    for kind in set(kinds) & set(section):
        other = next(name for name in kinds if name != kind)
        if key in list_legal_keys(tuple(other if part == kind else part for part in section), model, kinds):
            return f"only scenarios of {other[1:-1]}.* policies have it; legal keys: {', '.join(legal)}"
    return f"did you mean {near[0]!r}?" if near else f"legal keys: {', '.join(legal)}"


def list_legal_keys(section: tuple[Any, ...], model: Any, kinds: Mapping[str, Any]) -> list[str]:
    """Return the legal keys of a section of ``model``, which its path names; the path includes kinds of scenarios."""
    return [field.alias or name for name, field in _list_fields(section, model, kinds).items()]


def _list_fields(section: tuple[Any, ...], model: Any, kinds: Mapping[str, Any]) -> Mapping[str, Any]:
    for part in section:
        if part in kinds:
            model = kinds[part]
        elif isinstance(part, str) and part in model.model_fields:
            model = next(iter(_list_models(model.model_fields[part].annotation)), None)
            if model is None:
                return {}
    fields: Mapping[str, Any] = model.model_fields
    return fields


def _list_models(annotation: Any) -> list[Any]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [m for inner in getattr(annotation, "__args__", ()) for m in _list_models(inner)]
