"""Kernels that are compiled once, cached on disk, and compiled again when a source file that they can see changes.

They also work if the cache directory is not writable.
"""

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
    """Compile with ``numba.njit``, cached between processes if a cache directory is writable.

    A kernel is compiled together with the kernels that it calls and the constants that it uses. numba only checks the
    file of the kernel itself. So the cache entry has a digest of every file that its module imports, directly or
    indirectly.
    """
    return compile_lazily(function, make_dispatcher)


def make_dispatcher(function: Callable[..., object], **options: Any) -> Any:
    """Create the numba dispatcher of ``compiled``, with more ``options`` of ``numba.njit``."""
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
    """Compile or load a kernel in one process at a time.

    Otherwise, workers that start together would all compile the same kernel for half a minute. One compiles it, and the
    others load the result (path None: there is no cache). numba's lock within the process is taken before the kernel's
    lock between processes. A kernel's lock is taken while those of its callers are held, and no kernel calls its
    caller.
    """
    from subreplay.kernels.numba_internals import global_compiler_lock

    with global_compiler_lock, _lock_file(path):
        return compile_kernel(signature)


_locked_paths: Final[set[str]] = set()


@contextmanager
def _lock_file(path: str | None) -> Iterator[None]:
    """Hold a lock file, if there is one, unless this process already holds it."""
    with ExitStack() as exit_stack:
        if path is not None and path not in _locked_paths:
            with suppress(OSError):  # another user's, or on a disk that knows no locks: then each compiles for itself
                fcntl.flock(exit_stack.enter_context(open(path, "ab")), fcntl.LOCK_EX)
            _locked_paths.add(path)
            exit_stack.callback(_locked_paths.discard, path)
        yield


@cache
def digest_visible_sources(module: str) -> str:
    """Compute a digest of the package's files that a module can see through its imports, including itself."""
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
    """Yield the modules that a module may import; a name after ``import`` may be a module or part of one."""
    for parent, parts in _IMPORT.findall(_read_source(module)):
        yield parent
        yield from (f"{parent}.{part}" for part in re.findall(r"\w+", parts))


@cache
def _read_source(module: str) -> str:
    """Read the source of a module of this package; return "" for other names."""
    path = _PACKAGE.parent.joinpath(*module.split("."))
    source_file = next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)
    return (
        "" if source_file is None or module.split(".")[0] != _PACKAGE.name else source_file.read_text(encoding="utf-8")
    )
