"""What a module says of its kernels, without importing numba.

A kernel is made when it is first called: many a command defines all and calls none, and numba takes a third of a second
to import.
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
    """``function``, compiled by the dispatcher that ``make`` makes of it."""
    kernel = LazyKernel(function, make)
    _kernels.append(kernel)
    return cast(F, kernel)


def prepare_all_kernels() -> None:
    """Make the dispatchers of all modules that were imported: processes that are forked from this one have them."""
    for kernel in _kernels:
        kernel.get_dispatcher()


class LazyKernel:
    """A function and how numba's dispatcher of it is ``made``, when it is first called or asked for.

    Other kernels may call it: numba asks an object that it does not know for its ``_numba_type_``.
    """

    def __init__(self, function: Callable[..., object], make: DispatcherFactory) -> None:
        update_wrapper(self, function)
        self._function, self._create_dispatcher, self._dispatcher = function, make, cast(Any, None)

    def get_dispatcher(self) -> Any:
        """The dispatcher of numba; the function itself, to be run line by line, where numba is asked to compile nothing
        (NUMBA_DISABLE_JIT=1), as who looks for a fault may do."""
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
    """What every class that was marked ``pass_by_reference`` counts as a subclass of."""


def pass_by_reference(cls: T) -> T:
    """Have kernels take instances of ``cls``, a named tuple of arrays without gaps, as one pointer. They cannot return
    one, nor put another array into it."""
    PassedByReference.register(cls)
    return cls


_kernels: Final[list[LazyKernel]] = []
_creation_lock: Final = RLock()
