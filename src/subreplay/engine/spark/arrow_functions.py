"""Create Spark column functions from functions of Arrow arrays: with ``arrow_udf``, or with pandas before Spark 4.1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import PySparkNotImplementedError
from pyspark.sql import Column
from pyspark.sql.pandas import functions

_ARROW_UDF: Final[Any] = getattr(functions, "arrow_udf", None)  # None: Spark 4.0
_SCALAR: Final = 200  # PandasUDFType.SCALAR, for functions without type hints


def create_column_function(
    function: Callable[..., pa.Array], kind: str, *, uses_times: bool = False
) -> Callable[..., Column]:
    """Create a function of columns that returns values of type ``kind``.

    Raises ``PySparkNotImplementedError`` for a function that ``uses_times`` if Spark has no functions of Arrow arrays.
    In pandas, times are in the session's time zone, which the function does not know.
    """
    if _ARROW_UDF is not None:
        made: Callable[..., Column] = _ARROW_UDF(function, kind)
        return made
    if uses_times:
        raise PySparkNotImplementedError(
            f"{function.__name__} needs Spark 4.1 or later, because it has a parameter of type timestamp."
        )

    def apply_to_series(*columns: Any) -> Any:
        return function(*map(_to_array, columns)).to_pandas()

    apply_to_series.__name__ = function.__name__
    of_pandas: Any = functions.pandas_udf
    slow: Callable[..., Column] = of_pandas(apply_to_series, kind, _SCALAR)
    return slow


def _to_array(column: Any) -> pa.Array:
    """Convert a pandas series back to Arrow. Pandas turns integers with nulls into floats."""
    found = pa.Array.from_pandas(column)
    if pa.types.is_floating(found.type):
        return found.cast(pa.int64())
    return found.cast(pa.binary()) if pa.types.is_null(found.type) else found
