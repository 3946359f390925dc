"""How rules, the dispatcher and groups are compiled: operations are called from Python, all else is compiled into those
that call it.

Nothing is counted: the caller in Python holds the arrays, and a kernel allocates nothing.
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
    """A function to be called from Python. In other compiled code that calls it, it is a part like any other: it would
    be optimised twice else."""
    part: Any = inlined(function)

    def make(function: Callable[..., object]) -> Any:
        from subreplay.kernels.numba_internals import NO_REFCOUNT, call_as_part

        return call_as_part(_compile_once(make_dispatcher(function, **NO_REFCOUNT, **_OPTIONS)), part.get_dispatcher())

    return compile_lazily(function, make)


def inlined(function: F) -> F:
    """A part of operations, compiled with each of them; LLVM decides where it is put into its callers.

    numba hands ``forceinline`` down to all that is compiled while a caller is, so it is said here: half of all parts
    would be put into their callers like those that are ``hot``, and the code be three times as long.
    """
    return compile_lazily(function, partial(_make_part, forceinline=False))


def hot(function: F) -> F:
    """A part that every message goes through. It is put into its callers whatever its size: LLVM leaves out what is
    large and called from several places."""
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
    """``made``, a dispatcher which compiles its function once for whole numbers of any width.

    numba compiles a function anew for each combination of its arguments' types, and a member of an enumeration, an
    index of 32 bits, one of 64 bits and every constant are types of their own. Where a part is put into its callers,
    LLVM knows the constants all the same.
    """
    from subreplay.kernels.numba_internals import wrap_compile

    return wrap_compile(made, lambda compiles, signature: compiles(tuple(_widen_type(kind) for kind in signature)))


def _widen_type(kind: Any) -> Any:
    from numba.core import types

    kind = types.unliteral(kind)  # type: ignore[no-untyped-call]
    return types.int64 if isinstance(kind, types.IntEnumMember) or kind in types.signed_domain else kind
