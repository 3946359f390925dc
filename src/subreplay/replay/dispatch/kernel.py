"""How the dispatcher is compiled: in four kinds of functions, all of them handing on a ``Broker``.

numba passes a tuple of arrays as more than a hundred arguments and counts references to every array at every call. Both
cost many times the work itself. So nothing is counted (the caller in Python holds the arrays; a kernel allocates
nothing), and all but the large functions are inlined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from subreplay.hashing.compiled import compiled

F = TypeVar("F", bound=Callable[..., object])


def operation(function: F) -> F:
    """A function to be called from Python or from a compiled event loop."""
    return _compiled(function)


def small_operation(function: F) -> F:
    """An operation that is compiled into the event loop that calls it."""
    return _compiled(function, forceinline=True)


def step(function: F) -> F:
    """A large part of operations, compiled once."""
    return _compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def inlined(function: F) -> F:
    """A small part, compiled into each of its callers."""
    return _compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True)


def _compiled(function: F, **options: Any) -> F:
    return compiled(function, error_model="numpy", _nrt=False, **options)
