"""Settings of a Spark session for tables of some rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partialmethod
from typing import Any, Final

from py4j.java_gateway import JavaClass, JavaMember, JVMView

QUICK: Final = {
    # to compile queries costs more than to interpret them
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # so does to plan them anew after each of their stages; programs that tests start do both, test_local.py this
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.ui.explainMode": "simple",
    "spark.databricks.delta.stats.collect": "false",
    "spark.databricks.delta.stats.skipping": "false",
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
}


def remember_names() -> None:
    """Of each name in Java pyspark asks again and again whether it is a class, or a method of one: in these tests a
    hundred and fifty thousand times, for which Java looks into all its jars. The answers stay."""
    for place in JVMView, JavaClass:
        place.__getattr__ = partialmethod(_found, place.__getattr__)  # type: ignore[method-assign]


def _found(place: JVMView | JavaClass, ask: Callable[[Any, str], object], name: str) -> object:
    found = ask(place, name)
    if isinstance(found, (JavaClass, JavaMember)):
        place.__dict__[name] = found
    return found
