"""Compiled kernels: kept on disk, made anew when any kernel changes, and working where nothing may be written."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])
_OF_KERNELS: Final = (b"import compiled", b"kernel import", b"steps import")  # in files that define kernels, or parts


def compiled(function: F, **options: Any) -> F:
    """``numba.njit`` with ``options``, kept on disk between processes where a cache directory is writable.

    A kernel is compiled together with the kernels it calls, but numba looks only at the file of the kernel itself to
    tell whether what it kept is still good. So the stamp of what is kept covers every file with kernels.
    """
    options = {"nogil": True} | options
    try:
        kernel = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # numba found no place for its cache: compile once per process
        return cast(F, numba.njit(**options)(function))
    kept = cast(Any, kernel)._cache._cache_file
    kept._source_stamp = (kept._source_stamp, _digest_of_kernels())
    return cast(F, kernel)


@cache
def _digest_of_kernels() -> str:
    """A digest of the package's files that define kernels."""
    sources = (path.read_bytes() for path in sorted(Path(__file__).parents[1].rglob("*.py")))
    kernels = (source for source in sources if any(word in source for word in _OF_KERNELS))
    return hashlib.sha256(b"".join(kernels)).hexdigest()
