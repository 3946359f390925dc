"""Everything of numba that numba does not promise, and what it gains (docs/explanation/performance.md).

* ``PartCompiler``, ``OperationCompiler``: parts get into the operations that are made of them, linked and optimised
  once. numba links each function with all that it calls, optimises the lot and makes machine code of it. Of hundreds of
  parts, one on top of the other, that is most of the time to compile them, and for nothing, as nobody calls a part but
  an operation. So a part is only translated here, and its operation is linked with all parts below it. A code library
  has the code of one function, and a pass of the compiler fills it.
* ``UNCOUNTED``: no references to arrays are counted. An operation makes no array, and its caller holds all of them, so
  it needs no counts; an atomic addition in each step would cost more than most steps do.
* ``keep_while``: what was compiled is good while no file changes that it was compiled from; numba looks at one file.
* ``compile_by``, ``part_of_others``: which versions of a function are compiled, and when.
* ``_Listener``: whether numba compiles, and how long.
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

from subreplay.kernels.compiling import compiling

__all__ = [
    "UNCOUNTED",
    "OperationCompiler",
    "PartCompiler",
    "compile_by",
    "fix_integer_index",
    "global_compiler_lock",
    "keep_while",
    "load_item",
    "part_of_others",
]
UNCOUNTED: Final[dict[str, Any]] = {"_nrt": False}
"""An option of ``numba.njit``."""


class _Listener(event.Listener):
    """Hears of each function that is compiled, and not loaded."""

    def on_start(self, event: Any) -> None:
        compiling.begin()

    def on_end(self, event: Any) -> None:
        compiling.end()


event.register("numba:compile", _Listener())


def keep_while(dispatcher: Any, digest: str) -> str:
    """Have what was compiled and kept on disk be good only while ``digest`` is the same. Returns the path of the file
    that tells what is kept."""
    kept = dispatcher._cache._cache_file
    kept._source_stamp = (kept._source_stamp, digest)
    return str(kept._index_path)


def compile_by(dispatcher: Any, compile_for: Callable[[Callable[[Any], Any], Any], Any]) -> Any:
    """The same dispatcher, which compiles a version of its function, or loads what was kept of it, by
    ``compile_for(compile, signature)``."""
    compiles = dispatcher.compile
    dispatcher.compile = lambda signature: compile_for(compiles, signature)
    return dispatcher


def part_of_others(operation: Any, part: Any) -> Any:
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
        self._linking_libraries = _callers_first(self._linking_libraries)
        super().finalize()


def _callers_first(libraries: Iterable[CodeLibrary]) -> list[CodeLibrary]:
    """Libraries and all below them that are not linked yet. What LLVM links, it drops where nothing that was linked
    before calls it."""
    callees_first: dict[CodeLibrary, None] = {}

    def put(library: CodeLibrary) -> None:
        if library not in callees_first:
            if isinstance(library, _PartLibrary):
                for below in library._linking_libraries:
                    put(below)
            callees_first[library] = None

    for library in libraries:
        put(library)
    return list(reversed(callees_first))


@register_pass(mutates_CFG=True, analysis_only=False)
class _PartLowering(NativeLowering):
    """numba's, but for what makes machine code: callers know a part by a function that cannot be called."""

    _name = "part_lowering"

    def run_pass(self, state: Any) -> bool:
        state.flags.no_compile = True
        super().run_pass(state)
        lowered = state["cr"]
        about, env = lowered.fndesc, lowered.env
        known_by = make_function(about.lookup_module(), about.qualname, "", 0, env, ())
        state.targetctx.insert_user_function(known_by, about, [state.library])
        state["cr"] = lowered._replace(cfunc=known_by)
        return True
