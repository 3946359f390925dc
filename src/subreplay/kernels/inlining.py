"""How the dispatcher is compiled: operations are called from Python, all else is compiled into those that call it.

Nothing is counted: the caller in Python holds the arrays, and a kernel allocates nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba.core import types

from subreplay.kernels.compiled import compiled

F = TypeVar("F", bound=Callable[..., object])


def operation(function: F) -> F:
    """A function to be called from Python or from a compiled event loop."""
    return _once(compiled(function, **_OPTIONS))


def small_operation(function: F) -> F:
    """An operation that is compiled into the event loop that calls it."""
    return _once(compiled(function, **_OPTIONS))


def step(function: F) -> F:
    """A large part of operations, compiled once."""
    return _part(function)


def inlined(function: F) -> F:
    """A small part, compiled into each of its callers."""
    return _part(function)


_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}


def hot(function: F) -> F:
    """A part that every message goes through: there it is compiled into its callers, whatever its size."""
    return _part(function, forceinline=True)


def _part(function: F, **more: Any) -> F:
    options: dict[str, Any] = _OPTIONS | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True} | more
    return _once(cast(F, numba.njit(**options)(function)))


def _once(kernel: F) -> F:
    """``kernel``, compiled once for whole numbers of any width."""
    dispatcher: Any = kernel
    compile_as_given = dispatcher.compile
    dispatcher.compile = lambda signature: compile_as_given(tuple(_widest(kind) for kind in signature))
    return kernel


def _widest(kind: types.Type) -> types.Type:
    return types.int64 if isinstance(kind, types.IntEnumMember) or kind in types.signed_domain else kind
