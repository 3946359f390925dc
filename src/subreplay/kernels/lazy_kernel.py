"""Declare kernels without importing numba.

A kernel is compiled when it is first called. Many commands define all kernels but call none, and importing numba takes
a third of a second.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from functools import update_wrapper
from threading import RLock
from typing import Any, Final, TypeVar, cast

F = TypeVar("F", bound=Callable[..., object])
T = TypeVar("T", bound=type[Any])
DispatcherFactory = Callable[[Callable[..., object]], Any]


def compile_lazily(function: F, make: DispatcherFactory) -> F:
    """Return ``function``, which is compiled at its first call by the dispatcher that ``make`` creates."""
    kernel = LazyKernel(function, make)
    _kernels.append(kernel)
    return cast(F, kernel)


def prepare_all_kernels() -> None:
    """Create the dispatchers of all imported modules, so that forked processes have them."""
    for kernel in _kernels:
        kernel.get_dispatcher()


class LazyKernel:
    """A function whose numba dispatcher is created at its first call or access.

    Other kernels may call it: numba reads the ``_numba_type_`` of an unknown object.
    """

    def __init__(self, function: Callable[..., object], make: DispatcherFactory) -> None:
        update_wrapper(self, function)
        self._function, self._create_dispatcher, self._dispatcher = function, make, cast(Any, None)

    def get_dispatcher(self) -> Any:
        """Return the numba dispatcher, or the plain function if compilation is disabled for debugging
        (NUMBA_DISABLE_JIT=1)."""
        if self._dispatcher is None:
            with _creation_lock:  # threads share it
                if self._dispatcher is None:
                    import numba

                    compiles = not cast(Any, numba.config).DISABLE_JIT
                    self._dispatcher = self._create_dispatcher(self._function) if compiles else self._function
        return self._dispatcher

    def __call__(self, *arguments: object, **named: object) -> Any:
        return self.get_dispatcher()(*arguments, **named)

    def __reduce__(self) -> str:
        return self._function.__qualname__  # pickled as a function is: by its name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what looks for a function's wrapper, or how to copy one, makes none
            raise AttributeError(name)
        return getattr(self.get_dispatcher(), name)


class PassedByReference(ABC):  # noqa: B024 - classes are registered with it
    """The base class of every class that is marked ``pass_by_reference``."""


def pass_by_reference(cls: T) -> T:
    """Let kernels take instances of ``cls``, a named tuple of contiguous arrays, as one pointer.

    Kernels cannot return such a tuple, nor replace an array in it.
    """
    PassedByReference.register(cls)
    return cls


_kernels: Final[list[LazyKernel]] = []
_creation_lock: Final = RLock()
