"""What a module says of its kernels, without importing numba.

A kernel is made when it is first called: many a command defines all and calls none, and numba takes a third of a second
to import.
"""

from __future__ import annotations

import os
from abc import ABC
from collections.abc import Callable
from functools import cached_property, update_wrapper
from typing import Any, Final, TypeVar, cast

F = TypeVar("F", bound=Callable[..., object])
T = TypeVar("T", bound=type[Any])
Make = Callable[[Callable[..., object]], Any]

INTERPRETED: Final = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")
"""Whether kernels run as plain Python, line by line, as who looks for a fault may ask (NUMBA_DISABLE_JIT=1)."""

_kernels: Final[list[Kernel]] = []


def made_later(function: F, make: Make) -> F:
    """``function``, compiled by the dispatcher that ``make`` makes of it; itself where kernels are interpreted."""
    if INTERPRETED:
        return function
    kernel = Kernel(function, make)
    _kernels.append(kernel)
    return cast(F, kernel)


def make_all() -> None:
    """Make the dispatchers of all modules that were imported: processes that are forked from this one have them."""
    for kernel in _kernels:
        _ = kernel.made


class Kernel:
    """A function and how numba's dispatcher of it is ``made``, when it is first called or asked for.

    Other kernels may call it: numba asks an object that it does not know for its ``_numba_type_``.
    """

    def __init__(self, function: Callable[..., object], make: Make) -> None:
        update_wrapper(self, function)
        self._function, self._make = function, make

    @cached_property
    def made(self) -> Any:
        """The dispatcher of numba."""
        return self._make(self._function)

    def __call__(self, *arguments: object) -> Any:
        return self.made(*arguments)

    def __reduce__(self) -> str:
        return self._function.__qualname__  # pickled as a function is: by its name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what looks for a function's wrapper, or how to copy one, makes none
            raise AttributeError(name)
        return getattr(self.made, name)


class ByReference(ABC):  # noqa: B024 - classes are registered with it
    """What every class that was marked ``by_reference`` counts as a subclass of."""


def by_reference(cls: T) -> T:
    """Have kernels take instances of ``cls``, a named tuple of arrays without gaps, as one pointer. They cannot return
    one, nor put another array into it."""
    ByReference.register(cls)
    return cls
