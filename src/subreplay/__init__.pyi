from types import ModuleType
from typing import Any

from subreplay.api import audit as audit
from subreplay.api import explain as explain
from subreplay.api import functions as functions
from subreplay.api import history as history
from subreplay.api import whatif as whatif

__version__: str

class CallablePackage(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> Any: ...
