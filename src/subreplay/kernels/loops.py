"""Compiled loops over arrays that their callers hold, and their steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

from subreplay.kernels.compiled import UNCOUNTED, compiled

F = TypeVar("F", bound=Callable[..., object])


def loop(function: F) -> F:
    """A compiled loop over arrays that makes none itself."""
    return compiled(function, **UNCOUNTED)


def step(function: F) -> F:
    """A compiled function that is put into each loop that calls it: handing over a dozen arrays for every row would
    cost more than most steps do."""
    return cast(F, numba.njit(nogil=True, inline="always")(function))
