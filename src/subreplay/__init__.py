"""Find out from your logs whether Kafka or Pulsar delivered every message as promised, and what another setup changes.

``subreplay.audit``, ``subreplay.whatif`` and ``subreplay.explain`` do for frames what the commands do for tables (see
``subreplay.api``); ``subreplay.api.functions`` are Spark column functions. Each is imported when it is first used.
"""

from __future__ import annotations

import importlib
import inspect
from types import ModuleType
from typing import Any

__version__ = "0.1.0"


class CallablePackage(ModuleType):
    """A package with the name of a function of ``subreplay.api``: calling the package calls that function."""

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
    if name in ("explain", "history"):
        return getattr(importlib.import_module("subreplay.api"), name)
    raise AttributeError(f"module 'subreplay' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), "audit", "explain", "functions", "history", "whatif"})
