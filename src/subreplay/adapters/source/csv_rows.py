"""Find where rows of CSV text end; quoted values may contain line breaks."""

from __future__ import annotations

from typing import Any, Final

from subreplay.kernels.compiled import compiled

_BREAK: Final = 10
_RETURN: Final = 13
_AT_START, _PLAIN, _QUOTED, _CLOSED = range(4)
"""The states within a value: at its start; without quotes; inside quotes; after a quote that may have closed it."""


@compiled
def find_end_of_rows(text: Any, separator: int, quote: int, escape: int) -> int:
    """Return how many bytes of a text belong to complete rows. The text begins with a row, and each row ends with a
    line break. ``quote`` and ``escape`` may be absent (-1). If ``escape`` is the quote, two quotes in a quoted value
    mean one."""
    end, state, skips = 0, _AT_START, False
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
            state = _AT_START
        elif byte == _BREAK:
            end, state = at + 1, _AT_START
        elif byte == quote and state == _AT_START:
            state = _QUOTED
        else:
            state = _PLAIN
    return end
