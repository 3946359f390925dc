"""How parts get into the operations that are made of them: linked once, optimised once.

numba links each function with all that it calls, optimises the lot and makes machine code of it. Of hundreds of parts,
one on top of the other, that is most of the time to compile them, and for nothing, as nobody calls a part but an
operation. So a part is only translated here, and its operation is linked with all parts below it.

Private classes of numba do that: a code library has the code of one function, and a pass of the compiler fills it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from numba._dynfunc import make_function
from numba.core.codegen import CodeLibrary, JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering

from subreplay.kernels.quick import NOT_OF_PARTS, QuickFlags


class PartCompiler(Compiler):
    """Compiles parts: ``numba.njit(pipeline_class=PartCompiler)``."""

    def compile_extra(self, function: Callable[..., object]) -> Any:
        self.state.flags = QuickFlags(self.state.flags)
        self.state.library = _PartLibrary(self.state.targetctx.codegen(), function.__qualname__)
        return super().compile_extra(function)

    def define_pipelines(self) -> list[Any]:
        pipelines: list[Any] = super().define_pipelines()
        for pipeline in pipelines:
            passes = [(of, why) for of, why in pipeline.passes if of not in NOT_OF_PARTS]
            pipeline.passes = [(_PartLowering if of is NativeLowering else of, why) for of, why in passes]
        return pipelines


class OperationCompiler(Compiler):
    """Compiles what Python calls: ``numba.njit(pipeline_class=OperationCompiler)``."""

    def compile_extra(self, function: Callable[..., object]) -> Any:
        self.state.flags = QuickFlags(self.state.flags)
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
