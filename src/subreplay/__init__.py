"""Find out from your logs whether Kafka or Pulsar delivered every message as promised, and what another setup changes.

``subreplay.audit``, ``subreplay.whatif``, ``subreplay.plan`` and the other functions do in Python what the commands of
the same names do (see ``subreplay.api``). ``subreplay.TrafficProfile`` keeps traffic in memory and evaluates scenarios
over it. ``subreplay.functions`` are Spark column functions. Each is imported when it is first used.
"""

from __future__ import annotations

import importlib
from inspect import Signature, signature
from types import ModuleType
from typing import Any

__version__ = "0.1.0"


class CallablePackage(ModuleType):
    """A package with the name of a function of ``subreplay.api``: calling the package calls that function.

    ``help`` shows the function, because it is the only public member of the package.
    """

    @property
    def __all__(self) -> list[str]:
        return [self.__name__.rpartition(".")[2]]

    def __getattr__(self, name: str) -> Any:
        if name == self.__all__[0]:
            return self._function
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__all__})

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._function(*arguments, **options)

    @property
    def __signature__(self) -> Signature:
        return signature(self._function)

    @property
    def _function(self) -> Any:
        return getattr(importlib.import_module("subreplay.api"), self.__name__.rpartition(".")[2])


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"subreplay.{name}")
    if name == "functions":
        return importlib.import_module("subreplay.api.functions")
    if name in _NAMES:
        return getattr(importlib.import_module("subreplay.api"), name)
    raise AttributeError(f"module 'subreplay' has no attribute {name!r}")


_PACKAGES = ("audit", "whatif")
_NAMES = ("TrafficProfile", "explain", "history", "inspect", "plan", "profile")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PACKAGES, *_NAMES, "functions"})
