"""Functions of Arrow arrays as functions of columns: by Spark's ``arrow_udf``, and before 4.1 by way of pandas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import PySparkNotImplementedError
from pyspark.sql import Column
from pyspark.sql.pandas import functions

_ARROW_UDF: Final[Any] = getattr(functions, "arrow_udf", None)  # None: Spark 4.0
_SCALAR: Final = 200  # PandasUDFType.SCALAR, of arguments without types


def of_arrays(function: Callable[..., pa.Array], kind: str, *, of_times: bool = False) -> Callable[..., Column]:
    """A function of columns that returns values of type ``kind``.

    Raises ``PySparkNotImplementedError`` for one ``of_times`` where Spark has no functions of Arrow arrays: in pandas
    times are those of the session's zone, which the function does not know.
    """
    if _ARROW_UDF is not None:
        made: Callable[..., Column] = _ARROW_UDF(function, kind)
        return made
    if of_times:
        raise PySparkNotImplementedError(f"{function.__name__} needs Spark 4.1 or later: it is a function of times")

    def of_series(*columns: Any) -> Any:
        return function(*map(_array, columns)).to_pandas()

    of_series.__name__ = function.__name__
    of_pandas: Any = functions.pandas_udf
    slow: Callable[..., Column] = of_pandas(of_series, kind, _SCALAR)
    return slow


def _array(column: Any) -> pa.Array:
    """A series as it was before pandas had it: whole numbers with gaps have become fractions."""
    found = pa.Array.from_pandas(column)
    if pa.types.is_floating(found.type):
        return found.cast(pa.int64())
    return found.cast(pa.binary()) if pa.types.is_null(found.type) else found
