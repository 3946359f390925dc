"""The parts of numba that it does not guarantee, and their benefit (docs/explanation/performance.md has the times).

* ``PartCompiler``, ``OperationCompiler``: parts are linked into their operations and optimised once. numba links each
  function with all functions that it calls, optimises them and generates machine code. For hundreds of nested parts
  that is most of the compile time, although only operations call them. So a part is only translated, and its operation
  is linked with all parts below it. A code library has the code of one function, and a compiler pass fills it.
* ``NO_REFCOUNT``: references to arrays are not counted. An operation creates no array, and its caller keeps all of them
  alive. An atomic addition in each step would cost more than most steps.
* ``bind_cache_to_digest``: a cache entry is valid while none of its source files changes; numba checks one file.
* ``wrap_compile``, ``call_as_part``: which versions of a function are compiled, and when.
* ``_CompilationListener``: whether numba compiles, and for how long.
* ``load_item``, ``fix_integer_index``: access to an array element in five instructions (``reference_types``).

``tests/kernels/test_numba.py`` has a test of each, which fails if a release of numba behaves differently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from numba._dynfunc import make_function
from numba.core import event
from numba.core.codegen import CodeLibrary, JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering
from numba.np.arrayobj import fix_integer_index, load_item

from subreplay.kernels.compilation_monitor import compilation

__all__ = [
    "NO_REFCOUNT",
    "OperationCompiler",
    "PartCompiler",
    "bind_cache_to_digest",
    "call_as_part",
    "fix_integer_index",
    "global_compiler_lock",
    "load_item",
    "wrap_compile",
]
NO_REFCOUNT: Final[dict[str, Any]] = {"_nrt": False}
"""An option of ``numba.njit``."""


class _CompilationListener(event.Listener):
    """Receives an event for each function that numba compiles (not for one that it loads)."""

    def on_start(self, event: Any) -> None:
        compilation.begin()

    def on_end(self, event: Any) -> None:
        compilation.end()


event.register("numba:compile", _CompilationListener())


def bind_cache_to_digest(dispatcher: Any, digest: str) -> str:
    """Make the cached code valid only while ``digest`` stays the same; return the path of its index file.

    The digest becomes part of the version of the index. numba compares it before it unpickles the entries, which may
    name modules of the package that no longer exist.
    """
    cache_file = dispatcher._cache._cache_file
    cache_file._version = f"{cache_file._version} {digest}"
    return str(cache_file._index_path)


def wrap_compile(dispatcher: Any, compile_for: Callable[[Callable[[Any], Any], Any], Any]) -> Any:
    """Make a dispatcher compile or load each version of its function by ``compile_for(compile, signature)``."""
    compile_signature = dispatcher.compile
    dispatcher.compile = lambda signature: compile_for(compile_signature, signature)
    return dispatcher


def call_as_part(operation: Any, part: Any) -> Any:
    """Make compiled code that calls an operation use ``part`` instead."""
    operation.get_call_template, operation.get_overload = part.get_call_template, part.get_overload
    return operation


class PartCompiler(Compiler):
    """The compiler of parts: ``numba.njit(pipeline_class=PartCompiler)``."""

    def compile_extra(self, function: Callable[..., object]) -> Any:
        self.state.library = _PartLibrary(self.state.targetctx.codegen(), function.__qualname__)
        return super().compile_extra(function)

    def define_pipelines(self) -> list[Any]:
        pipelines: list[Any] = super().define_pipelines()
        for pipeline in pipelines:
            pipeline.passes = [(_PartLowering if of is NativeLowering else of, why) for of, why in pipeline.passes]
        return pipelines


class OperationCompiler(Compiler):
    """The compiler of functions that Python calls: ``numba.njit(pipeline_class=OperationCompiler)``."""

    def compile_extra(self, function: Callable[..., object]) -> Any:
        self.state.library = _OperationLibrary(self.state.targetctx.codegen(), function.__qualname__)
        self.state.library.enable_object_caching()
        return super().compile_extra(function)


class _PartLibrary(JITCodeLibrary):
    """Code that is neither optimised nor compiled to machine code, with links to the code that it calls."""

    def _optimize_functions(self, ll_module: Any) -> None:
        """Run numba's passes, except on functions that are only declared because another library defines them."""
        ll_module.data_layout = self._codegen._data_layout
        passes, builder = self._codegen._function_pass_manager()
        for function in ll_module.functions:
            if not function.is_declaration:
                passes.run(function, builder)

    def finalize(self) -> None:
        self._raise_if_finalized()
        self._finalized = True


class _OperationLibrary(JITCodeLibrary):
    """Code that is linked with all parts below it."""

    def finalize(self) -> None:
        self._linking_libraries = _order_callers_first(self._linking_libraries)
        super().finalize()


def _order_callers_first(libraries: Iterable[CodeLibrary]) -> list[CodeLibrary]:
    """Return libraries and all unlinked ones below them, callers first. LLVM drops linked code that no earlier library
    calls."""
    callees_first: dict[CodeLibrary, None] = {}

    def visit(library: CodeLibrary) -> None:
        if library not in callees_first:
            if isinstance(library, _PartLibrary):
                for below in library._linking_libraries:
                    visit(below)
            callees_first[library] = None

    for library in libraries:
        visit(library)
    return list(reversed(callees_first))


@register_pass(mutates_CFG=True, analysis_only=False)
class _PartLowering(NativeLowering):
    """numba's lowering without machine code; callers refer to a part by a placeholder function."""

    _name = "part_lowering"

    def run_pass(self, state: Any) -> bool:
        state.flags.no_compile = True
        super().run_pass(state)
        lowered = state["cr"]
        descriptor, env = lowered.fndesc, lowered.env
        placeholder = make_function(descriptor.lookup_module(), descriptor.qualname, "", 0, env, ())
        state.targetctx.insert_user_function(placeholder, descriptor, [state.library])
        state["cr"] = lowered._replace(cfunc=placeholder)
        return True
