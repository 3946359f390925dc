"""Compiled kernels: kept on disk, made anew when anything changes that a kernel can see, and working where nothing may
be written."""

from __future__ import annotations

import fcntl
import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, TypeVar

from subreplay.kernels.kernel import made_later

F = TypeVar("F", bound=Callable[..., object])
_PACKAGE: Final = Path(__file__).parents[1]
_IMPORT: Final = re.compile(rf"^\s*from ({_PACKAGE.name}[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)


def compiled(function: F) -> F:
    """``numba.njit``, kept on disk between processes where a cache directory is writable.

    A kernel is compiled together with the kernels it calls and the constants it names, but numba looks only at the file
    of the kernel itself to tell whether what it kept is still good. So what is kept is stamped with every file that its
    module imports, and what these import.
    """
    return made_later(function, dispatcher)


def dispatcher(function: Callable[..., object], **options: Any) -> Any:
    """The dispatcher of numba that ``compiled`` makes, with more ``options`` of ``numba.njit``."""
    import numba

    from subreplay.kernels import by_reference  # noqa: F401 - numba learns of such tuples as it is imported
    from subreplay.kernels.numba_internals import OperationCompiler, compile_by, keep_while

    given: dict[str, Any] = {"nogil": True, "pipeline_class": OperationCompiler} | options
    try:
        made: Any = numba.njit(cache=True, **given)(function)
    except RuntimeError:  # numba found no place for its cache: compile once per process
        return compile_by(numba.njit(**given)(function), partial(_one_at_a_time, None))
    path = keep_while(made, digest_of_what_is_seen(function.__module__))
    return compile_by(made, partial(_one_at_a_time, f"{path}.lock"))


def _one_at_a_time(path: str | None, compile_kernel: Callable[[Any], Any], signature: Any) -> Any:
    """Compile a kernel or load it, one process at a time: workers that start together, one on each core, would all
    compile the same for half a minute; so one does, and the others load what it kept (None: nothing is kept).

    The lock of numba, of which there is one in a process, is taken before the one of the kernel, which other processes
    take, too; a kernel's lock is taken while those of its callers are held, and no kernel calls its caller.
    """
    from subreplay.kernels.numba_internals import global_compiler_lock

    with global_compiler_lock, _locked(path):
        return compile_kernel(signature)


_held: Final[set[str]] = set()


@contextmanager
def _locked(path: str | None) -> Iterator[None]:
    """Hold a lock file, where there is one, unless this process does."""
    with ExitStack() as ends:
        if path is not None and path not in _held:
            with suppress(OSError):  # another user's, or on a disk that knows no locks: then each compiles for itself
                fcntl.flock(ends.enter_context(open(path, "ab")), fcntl.LOCK_EX)
            _held.add(path)
            ends.callback(_held.discard, path)
        yield


@cache
def digest_of_what_is_seen(module: str) -> str:
    """A digest of the package's files that a module can see by its imports, its own included."""
    seen: set[str] = set()
    ahead = [module]
    while ahead:
        if (name := ahead.pop()) not in seen:
            seen.add(name)
            ahead += _imported(name)
    return hashlib.sha256("".join(_source(name) for name in sorted(seen)).encode()).hexdigest()


@cache
def _imported(module: str) -> tuple[str, ...]:
    return tuple(_names(module))


def _names(module: str) -> Iterator[str]:
    """The modules that a module may import: what stands behind ``import`` may be a module or a part of one."""
    for parent, parts in _IMPORT.findall(_source(module)):
        yield parent
        yield from (f"{parent}.{part}" for part in re.findall(r"\w+", parts))


@cache
def _source(module: str) -> str:
    """The source of a module of the package; nothing of any other, and of what is no module."""
    path = _PACKAGE.parent.joinpath(*module.split("."))
    found = next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)
    return "" if found is None or module.split(".")[0] != _PACKAGE.name else found.read_text(encoding="utf-8")
