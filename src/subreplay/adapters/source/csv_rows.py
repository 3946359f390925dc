"""Where rows of CSV text end, of which quoted values may have lines of their own."""

from __future__ import annotations

from typing import Any, Final

from subreplay.kernels.compiled import compiled

_BREAK: Final = 10
_RETURN: Final = 13
_BEGINNING, _PLAIN, _QUOTED, _CLOSED = range(4)
"""Within a value: nothing of it yet; no quotes around it; quotes around it; behind a quote that may have closed it."""


@compiled
def end_of_rows(text: Any, separator: int, quote: int, escape: int) -> int:
    """How many bytes of a text, which begins with a row, belong to rows that end in it with a line break. There may be
    no ``quote`` or ``escape`` (-1); where it is the quote, two quotes in a quoted value are one of it."""
    end, state, skips = 0, _BEGINNING, False
    for at in range(len(text)):
        byte = text[at]
        if skips:
            skips = False
        elif state == _QUOTED:
            if byte == quote:
                state = _CLOSED if escape in (-1, quote) else _PLAIN
            elif byte == escape:
                skips = True
        elif state == _CLOSED and byte == quote:
            state = _QUOTED
        elif byte == escape and escape != quote:
            state, skips = _PLAIN, True
        elif byte in (separator, _RETURN):
            state = _BEGINNING
        elif byte == _BREAK:
            end, state = at + 1, _BEGINNING
        elif byte == quote and state == _BEGINNING:
            state = _QUOTED
        else:
            state = _PLAIN
    return end
