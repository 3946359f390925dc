"""Binary search in compiled loops over part of an array, without slicing it as numpy would."""

from __future__ import annotations

from typing import Any

from subreplay.kernels.inlining import hot


@hot
def count_up_to(values: Any, value: int, low: int, high: int) -> int:  # pragma: no cover - compiled
    """Count the sorted ``values`` that are at most ``value``; the result is between ``low`` and ``high``."""
    while low < high:
        middle = (low + high) >> 1
        if values[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low
