"""Everything of numba that numba does not promise, and what it gains (docs/explanation/performance.md).

* ``PartCompiler``, ``OperationCompiler``: parts get into the operations that are made of them, linked and optimised
  once. numba links each function with all that it calls, optimises the lot and makes machine code of it. Of hundreds of
  parts, one on top of the other, that is most of the time to compile them, and for nothing, as nobody calls a part but
  an operation. So a part is only translated here, and its operation is linked with all parts below it. A code library
  has the code of one function, and a pass of the compiler fills it.
* ``NO_REFCOUNT``: no references to arrays are counted. An operation makes no array, and its caller holds all of them,
  so it needs no counts; an atomic addition in each step would cost more than most steps do.
* ``bind_cache_to_digest``: what was compiled is good while no file changes that it was compiled from; numba looks at
  one file.
* ``wrap_compile``, ``call_as_part``: which versions of a function are compiled, and when.
* ``_CompilationListener``: whether numba compiles, and how long.
* ``load_item``, ``fix_integer_index``: an element of an array in five instructions (``by_reference``).

``tests/kernels/test_numba.py`` has a test of each that fails where a release of numba does otherwise.
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
    """Hears of each function that is compiled, and not loaded."""

    def on_start(self, event: Any) -> None:
        compilation.begin()

    def on_end(self, event: Any) -> None:
        compilation.end()


event.register("numba:compile", _CompilationListener())


def bind_cache_to_digest(dispatcher: Any, digest: str) -> str:
    """Make compiled code on disk valid only while ``digest`` stays the same; return the path of its index.

    The digest becomes part of the version of the index. Numba compares that before it unpickles the entries, which may
    name modules of the package that no longer exist.
    """
    cache_file = dispatcher._cache._cache_file
    cache_file._version = f"{cache_file._version} {digest}"
    return str(cache_file._index_path)


def wrap_compile(dispatcher: Any, compile_for: Callable[[Callable[[Any], Any], Any], Any]) -> Any:
    """The same dispatcher, which compiles a version of its function, or loads what was kept of it, by
    ``compile_for(compile, signature)``."""
    compile_signature = dispatcher.compile
    dispatcher.compile = lambda signature: compile_for(compile_signature, signature)
    return dispatcher


def call_as_part(operation: Any, part: Any) -> Any:
    """The dispatcher of an operation, for which compiled code that calls it takes ``part``."""
    operation.get_call_template, operation.get_overload = part.get_call_template, part.get_overload
    return operation


class PartCompiler(Compiler):
    """Compiles parts: ``numba.njit(pipeline_class=PartCompiler)``."""

    def compile_extra(self, function: Callable[..., object]) -> Any:
        self.state.library = _PartLibrary(self.state.targetctx.codegen(), function.__qualname__)
        return super().compile_extra(function)

    def define_pipelines(self) -> list[Any]:
        pipelines: list[Any] = super().define_pipelines()
        for pipeline in pipelines:
            pipeline.passes = [(_PartLowering if of is NativeLowering else of, why) for of, why in pipeline.passes]
        return pipelines


class OperationCompiler(Compiler):
    """Compiles what Python calls: ``numba.njit(pipeline_class=OperationCompiler)``."""

    def compile_extra(self, function: Callable[..., object]) -> Any:
        self.state.library = _OperationLibrary(self.state.targetctx.codegen(), function.__qualname__)
        self.state.library.enable_object_caching()
        return super().compile_extra(function)


class _PartLibrary(JITCodeLibrary):
    """Code that is neither optimised nor made machine code, and knows what it calls."""

    def _optimize_functions(self, ll_module: Any) -> None:
        """numba's, which goes over the functions that are called here, too, of which there is only a declaration."""
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
    """Libraries and all below them that are not linked yet. What LLVM links, it drops where nothing that was linked
    before calls it."""
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
    """numba's, but for what makes machine code: callers know a part by a function that cannot be called."""

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
