"""What lets numba compile in little more than three fifths of the time. None of it changes what is compiled.

These are private classes of numba, like those of ``linking``. What is replaced is so only while a kernel is compiled,
under the lock of numba, of which there is one in a process.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, Final

from numba.core import event, ir, typed_passes, untyped_passes
from numba.core.compiler import Flags
from numba.core.targetconfig import ConfigStack
from numba.core.types.abstract import _TypeMetaclass
from numba.core.types.functions import BaseFunction


@contextmanager
def quickly() -> Iterator[None]:
    """Compile a kernel: what calls were once found to call is kept; Python does not look for garbage, of which there is
    little, among the millions of objects that are made; nobody is told of each lock and pass; and what is asked a
    million times, whether a type is of some class and which variables a statement has, is answered shortly."""
    with ExitStack() as ends:
        if gc.isenabled():
            gc.disable()
            ends.callback(gc.enable)
        for owner, name, quick in (
            (BaseFunction, "get_call_type", _remembering(BaseFunction.get_call_type)),
            (event, "start_event", _untold),
            (event, "end_event", _untold),
            (event, "trigger_event", _untold),
            (_TypeMetaclass, "__instancecheck__", type.__instancecheck__),  # numba's types know no virtual classes
            (ir.Inst, "_rec_list_vars", _variables),
        ):
            ends.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, quick)
        yield


def _untold(*_: object, **__: object) -> AbstractContextManager[None]:
    """What numba tells of an event, or of a time between two, to nobody."""
    return nullcontext()


_PLAIN: Final = frozenset({ir.Loc, str, int, float, bool, type(None)})


def _variables(statement: ir.Inst, value: Any) -> list[ir.Var]:
    """``Inst._rec_list_vars``: the variables in a part of a statement. Most parts are none, and say where it stands."""
    if isinstance(value, ir.Var):
        return [value]
    if isinstance(value, ir.Inst):
        return list(value.list_vars())  # type: ignore[no-untyped-call]
    if not isinstance(value, (dict, list, tuple)):
        return []
    found: list[ir.Var] = []
    for part in value.values() if isinstance(value, dict) else value:
        kind = type(part)
        if kind is ir.Var:
            found.append(part)
        elif kind not in _PLAIN:
            found += _variables(statement, part)
    return found


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
