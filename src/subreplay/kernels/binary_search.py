"""Binary search inside compiled loops, over a stretch of an array, which a call of numpy would have to cut out."""

from __future__ import annotations

from typing import Any

from subreplay.kernels.inlining import hot


@hot
def count_up_to(values: Any, value: int, low: int, high: int) -> int:  # pragma: no cover - compiled
    """How many of sorted ``values`` are at most ``value``, where that is known to be from ``low`` to ``high``."""
    while low < high:
        middle = (low + high) >> 1
        if values[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low
