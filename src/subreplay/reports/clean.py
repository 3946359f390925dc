"""Text that is safe to show: what a producer put into a name must not steer a terminal or hide in a page.

Control characters (escape sequences, newlines, NUL), the marks that turn the direction of text around and lone
surrogates become visible escapes; everything else is left as it is. HTML escaping is the template's work.
"""

from __future__ import annotations

import dataclasses
import re
from functools import lru_cache
from typing import Any, TypeVar

UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff\ud800-\udfff]")

T = TypeVar("T")


def _visible(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


@lru_cache(maxsize=4096)
def clean(text: str) -> str:
    r"""The text with every unsafe character spelled out.

    >>> print(clean("c1\x1b[31m\n"))
    c1\x1b[31m\x0a
    """
    return UNSAFE.sub(_visible, text)


def cleaned(value: T) -> T:
    """A frozen value (dataclass, tuple, string, number) with every string in it cleaned."""
    out: Any = value
    if isinstance(value, str):
        out = clean(value)
    elif isinstance(value, tuple):
        out = tuple([cleaned(item) for item in value])
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        out = type(value)(**{f.name: cleaned(getattr(value, f.name)) for f in dataclasses.fields(value)})
    return out  # type: ignore[no-any-return]
