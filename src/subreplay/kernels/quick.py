"""What lets numba compile in three fifths of the time. None of it changes what is compiled.

These are private classes of numba, like those of ``linking``. What is replaced is so only while a kernel is compiled,
under the lock of numba, of which there is one in a process.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from numba.core import event, typed_passes, untyped_passes
from numba.core.compiler import Flags
from numba.core.targetconfig import ConfigStack
from numba.core.types.functions import BaseFunction


@contextmanager
def quickly() -> Iterator[None]:
    """Compile a kernel: what calls were once found to call is kept; Python does not look for garbage, of which there is
    little, among the millions of objects that are made; and nobody is told of each lock and pass, for which every
    function that waits for the one it calls has two timers."""
    collecting, call_type, broadcast = gc.isenabled(), BaseFunction.get_call_type, event.broadcast
    gc.disable()
    BaseFunction.get_call_type = _remembering(call_type)  # type: ignore[method-assign]
    event.broadcast = _untold
    try:
        yield
    finally:
        event.broadcast = broadcast
        BaseFunction.get_call_type = call_type  # type: ignore[method-assign]
        if collecting:
            gc.enable()


def _untold(happened: object) -> None:
    """``event.broadcast`` without listeners."""


def _remembering(call_type: Any) -> Any:
    """``BaseFunction.get_call_type``, which tries all versions of a function (a dozen for ``==``) to find the one for
    the types it is given: at each call in the code, when it is typed and again when it is lowered. Which one it finds
    hangs on the flags under which it compiles, too."""
    known: dict[tuple[Any, ...], Any] = {}

    def remembered(self: Any, context: Any, arguments: Any, named: Any) -> Any:
        if named:
            return call_type(self, context, arguments, named)
        flags: Any = ConfigStack.top_or_none()  # type: ignore[no-untyped-call]
        key = self, context, tuple(arguments)
        if (found := known.get((*key, flags))) is None:
            found = call_type(self, context, arguments, named)
            known[(*key, flags and flags.copy())] = found
        return found

    return remembered


class QuickFlags(Flags):
    """What numba was asked for. It looks up each call of a function under these flags, and its own compare every one of
    two dozen, most of which nobody has set: that is a tenth of the time."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Flags):
            return False
        mine, others = self._values, other._values
        return mine == others or all(getattr(self, name) == getattr(other, name) for name in mine.keys() | others)

    def __hash__(self) -> int:
        return _HASH


_HASH: Final = hash(Flags())  # type: ignore[no-untyped-call]  # of all flags


NOT_OF_PARTS: Final = frozenset(
    {
        untyped_passes.WithLifting,
        untyped_passes.InlineClosureLikes,
        untyped_passes.MakeFunctionToJitFunction,
        untyped_passes.InlineInlinables,
        untyped_passes.FindLiterallyCalls,
        untyped_passes.LiteralUnroll,
        untyped_passes.LiteralPropagationSubPipelinePass,
        untyped_passes.RewriteDynamicRaises,
        untyped_passes.RewriteSemanticConstants,
        untyped_passes.DeadBranchPrune,
        typed_passes.IRLegalization,
        typed_passes.InlineOverloads,
        typed_passes.NopythonRewrites,
        typed_passes.AnnotateTypes,
        typed_passes.DumpParforDiagnostics,
    }
)
"""Passes of numba over what no part of an operation has: ``with``, functions within functions, ``literally`` and loops
over tuples of several types, exceptions with values, arguments that may be left out, whole arrays as operands; numba
refuses what it meets of them. And those that leave out branches, which LLVM does, and that tell where references end,
of which a part has none."""
