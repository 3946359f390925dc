"""Replay topic logs through subscription semantics, on one machine or on Spark.

``subreplay.audit``, ``subreplay.whatif`` and ``subreplay.explain`` ask of frames what the commands ask of tables (see
``subreplay.api``); ``subreplay.api.functions`` are column functions. None of them is imported before it is used.
"""

from __future__ import annotations

import importlib
import inspect
from types import ModuleType
from typing import Any

__version__ = "0.1.0"


class CallablePackage(ModuleType):
    """A package that bears the name of a function of ``subreplay.api``: to call it is to call that function."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._function(*arguments, **options)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._function)

    @property
    def _function(self) -> Any:
        return getattr(importlib.import_module("subreplay.api"), self.__name__.rpartition(".")[2])


def __getattr__(name: str) -> Any:
    if name in ("audit", "whatif"):
        return importlib.import_module(f"subreplay.{name}")
    if name == "functions":
        return importlib.import_module("subreplay.api.functions")
    if name == "explain":
        return importlib.import_module("subreplay.api").explain
    raise AttributeError(f"module 'subreplay' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), "audit", "explain", "functions", "whatif"})
