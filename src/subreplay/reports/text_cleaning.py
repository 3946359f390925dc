"""Text that is safe to show: what a producer put into a name must not steer a terminal or hide in a page.

Control characters (escape sequences, newlines, NUL), the marks that turn the direction of text around and lone
surrogates become visible escapes; everything else is left as it is. HTML escaping is the template's work.
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
    r"""The text with every unsafe character spelled out.

    >>> print(escape_unsafe("c1\x1b[31m\n"))
    c1\x1b[31m\x0a
    """
    return UNSAFE.sub(_escape_match, text)


def clean_strings(value: T) -> T:
    """A frozen value (dataclass, tuple, string, number) with every string in it cleaned; a part in which no string
    changes is the same object."""
    return value if _is_plain(value) else _cleaned(value)


def _is_plain(value: object) -> bool:
    """Whether all strings are printable ASCII: their JSON, which takes a tenth of the time, then has no escape."""
    text = to_json(value, inf_nan_mode="constants")
    return text.isascii() and b"\\" not in text and b"\x7f" not in text


def _cleaned(value: T) -> T:
    out: Any = value
    if isinstance(value, str):
        out = value if value.isascii() and value.isprintable() else escape_unsafe(value)
    elif isinstance(value, tuple):
        items = [_cleaned(item) for item in value]
        out = value if all(map(operator.is_, items, value)) else tuple(items)
    elif names := _list_fields(cast(Any, type(value))):
        before = [getattr(value, name) for name in names]
        parts = [part if type(part) in _PLAIN else _cleaned(part) for part in before]
        if not all(map(operator.is_, parts, before)):
            out = type(value)(**dict(zip(names, parts, strict=True)))
    return out  # type: ignore[no-any-return]


@cache
def _list_fields(kind: type[Any]) -> tuple[str, ...]:
    """The fields of a dataclass; none of another type."""
    return tuple([field.name for field in dataclasses.fields(kind)]) if dataclasses.is_dataclass(kind) else ()
