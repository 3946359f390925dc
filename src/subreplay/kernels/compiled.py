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

from subreplay.kernels.lazy_kernel import compile_lazily

F = TypeVar("F", bound=Callable[..., object])
_PACKAGE: Final = Path(__file__).parents[1]
_IMPORT: Final = re.compile(rf"^\s*from ({_PACKAGE.name}[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)


def compiled(function: F) -> F:
    """``numba.njit``, kept on disk between processes where a cache directory is writable.

    A kernel is compiled together with the kernels it calls and the constants it names, but numba looks only at the file
    of the kernel itself to tell whether what it kept is still good. So what is kept is stamped with every file that its
    module imports, and what these import.
    """
    return compile_lazily(function, make_dispatcher)


def make_dispatcher(function: Callable[..., object], **options: Any) -> Any:
    """The dispatcher of numba that ``compiled`` makes, with more ``options`` of ``numba.njit``."""
    import numba

    from subreplay.kernels import reference_types  # noqa: F401 - numba learns of such tuples as it is imported
    from subreplay.kernels.numba_internals import OperationCompiler, bind_cache_to_digest, wrap_compile

    njit_options: dict[str, Any] = {"nogil": True, "pipeline_class": OperationCompiler} | options
    try:
        numba_dispatcher: Any = numba.njit(cache=True, **njit_options)(function)
    except RuntimeError:  # numba found no place for its cache: compile once per process
        return wrap_compile(numba.njit(**njit_options)(function), partial(_compile_exclusively, None))
    path = bind_cache_to_digest(numba_dispatcher, digest_visible_sources(function.__module__))
    return wrap_compile(numba_dispatcher, partial(_compile_exclusively, f"{path}.lock"))


def _compile_exclusively(path: str | None, compile_kernel: Callable[[Any], Any], signature: Any) -> Any:
    """Compile a kernel or load it, one process at a time: workers that start together, one on each core, would all
    compile the same for half a minute; so one does, and the others load what it kept (None: nothing is kept).

    The lock of numba, of which there is one in a process, is taken before the one of the kernel, which other processes
    take, too; a kernel's lock is taken while those of its callers are held, and no kernel calls its caller.
    """
    from subreplay.kernels.numba_internals import global_compiler_lock

    with global_compiler_lock, _lock_file(path):
        return compile_kernel(signature)


_locked_paths: Final[set[str]] = set()


@contextmanager
def _lock_file(path: str | None) -> Iterator[None]:
    """Hold a lock file, where there is one, unless this process does."""
    with ExitStack() as exit_stack:
        if path is not None and path not in _locked_paths:
            with suppress(OSError):  # another user's, or on a disk that knows no locks: then each compiles for itself
                fcntl.flock(exit_stack.enter_context(open(path, "ab")), fcntl.LOCK_EX)
            _locked_paths.add(path)
            exit_stack.callback(_locked_paths.discard, path)
        yield


@cache
def digest_visible_sources(module: str) -> str:
    """A digest of the package's files that a module can see by its imports, its own included."""
    visited: set[str] = set()
    pending = [module]
    while pending:
        if (name := pending.pop()) not in visited:
            visited.add(name)
            pending += _list_imports(name)
    return hashlib.sha256("".join(_read_source(name) for name in sorted(visited)).encode()).hexdigest()


@cache
def _list_imports(module: str) -> tuple[str, ...]:
    return tuple(_iterate_imports(module))


def _iterate_imports(module: str) -> Iterator[str]:
    """The modules that a module may import: what stands behind ``import`` may be a module or a part of one."""
    for parent, parts in _IMPORT.findall(_read_source(module)):
        yield parent
        yield from (f"{parent}.{part}" for part in re.findall(r"\w+", parts))


@cache
def _read_source(module: str) -> str:
    """The source of a module of the package; nothing of any other, and of what is no module."""
    path = _PACKAGE.parent.joinpath(*module.split("."))
    source_file = next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)
    return (
        "" if source_file is None or module.split(".")[0] != _PACKAGE.name else source_file.read_text(encoding="utf-8")
    )
