"""Decorators for the kernels of rules, dispatchers and groups: Python calls operations, and parts are compiled into
them.

No references are counted: the Python caller keeps the arrays alive, and a kernel allocates nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from subreplay.kernels.compiled import make_dispatcher
from subreplay.kernels.lazy_kernel import compile_lazily

F = TypeVar("F", bound=Callable[..., object])

_OPTIONS: Final[dict[str, Any]] = {"nogil": True, "error_model": "numpy"}


def operation(function: F) -> F:
    """Compile a function that Python calls. Compiled code that calls it uses it as a part, so that it is optimised
    once."""
    part: Any = inlined(function)

    def make(function: Callable[..., object]) -> Any:
        from subreplay.kernels.numba_internals import NO_REFCOUNT, call_as_part

        return call_as_part(_compile_once(make_dispatcher(function, **NO_REFCOUNT, **_OPTIONS)), part.get_dispatcher())

    return compile_lazily(function, make)


def inlined(function: F) -> F:
    """Compile a function as part of operations; LLVM decides whether it is inlined into its callers.

    numba passes ``forceinline`` on to all functions that are compiled for a caller, so it is set explicitly. Otherwise
    half of all parts would be inlined like ``hot`` ones, and the code would be three times as long.
    """
    return compile_lazily(function, partial(_make_part, forceinline=False))


def hot(function: F) -> F:
    """Compile a part that every message goes through. It is always inlined, because LLVM does not inline large
    functions with several callers."""
    return compile_lazily(function, partial(_make_part, forceinline=True))


def _make_part(function: Callable[..., object], forceinline: bool) -> Any:
    import numba

    from subreplay.kernels.numba_internals import NO_REFCOUNT, PartCompiler

    part_options: dict[str, Any] = {
        "no_cpython_wrapper": True,
        "no_cfunc_wrapper": True,
        "pipeline_class": PartCompiler,
    }
    return _compile_once(numba.njit(forceinline=forceinline, **NO_REFCOUNT, **_OPTIONS, **part_options)(function))


def _compile_once(made: Any) -> Any:
    """Make a dispatcher compile its function once for whole numbers of any width.

    numba compiles a function for each combination of argument types. Enumeration members, 32-bit indexes, 64-bit
    indexes and constants all have different types. LLVM still knows the constants where a part is inlined.
    """
    from subreplay.kernels.numba_internals import wrap_compile

    return wrap_compile(made, lambda compiles, signature: compiles(tuple(_widen_type(kind) for kind in signature)))


def _widen_type(kind: Any) -> Any:
    from numba.core import types

    kind = types.unliteral(kind)  # type: ignore[no-untyped-call]
    return types.int64 if isinstance(kind, types.IntEnumMember) or kind in types.signed_domain else kind
