"""Make text safe to show: names from the data must not control a terminal or hide in a page.

Control characters (escape sequences, newlines, NUL), direction marks and lone surrogates become visible escapes. All
other text is unchanged. The templates escape HTML.
"""

from __future__ import annotations

import dataclasses
import operator
import re
from functools import cache, lru_cache
from typing import Any, Final, TypeVar, cast

from pydantic_core import to_json

UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff\ud800-\udfff]")

T = TypeVar("T")
_PLAIN: Final = frozenset({int, float, bool, type(None)})


def _escape_match(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


@lru_cache(maxsize=4096)
def escape_unsafe(text: str) -> str:
    r"""Replace every unsafe character by a visible escape.

    >>> print(escape_unsafe("c1\x1b[31m\n"))
    c1\x1b[31m\x0a
    """
    return UNSAFE.sub(_escape_match, text)


def clean_strings(value: T) -> T:
    """Clean every string in a frozen value (dataclass, tuple, string, number).

    Parts without an unsafe string are returned as the same object.
    """
    return value if _is_plain(value) else _clean_value(value)


def _is_plain(value: object) -> bool:
    """Return whether all strings are printable ASCII. Checking their JSON for escapes is ten times faster."""
    text = to_json(value, inf_nan_mode="constants")
    return text.isascii() and b"\\" not in text and b"\x7f" not in text


def _clean_value(value: T) -> T:
    out: Any = value
    if isinstance(value, str):
        out = value if value.isascii() and value.isprintable() else escape_unsafe(value)
    elif isinstance(value, tuple):
        items = [_clean_value(item) for item in value]
        out = value if all(map(operator.is_, items, value)) else tuple(items)
    elif names := _list_fields(cast(Any, type(value))):
        before = [getattr(value, name) for name in names]
        parts = [part if type(part) in _PLAIN else _clean_value(part) for part in before]
        if not all(map(operator.is_, parts, before)):
            out = type(value)(**dict(zip(names, parts, strict=True)))
    return out  # type: ignore[no-any-return]


@cache
def _list_fields(kind: type[Any]) -> tuple[str, ...]:
    """List the fields of a dataclass; other types have none."""
    return tuple([field.name for field in dataclasses.fields(kind)]) if dataclasses.is_dataclass(kind) else ()
