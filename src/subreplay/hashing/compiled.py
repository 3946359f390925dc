"""Compiled kernels that also work where nothing may be written, as in a read-only container."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """``numba.njit``, kept on disk between processes where a cache directory is writable."""
    try:
        return cast(F, numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:  # numba found no place for its cache: compile once per process
        return cast(F, numba.njit(nogil=True)(function))
