"""What an adapter reads, as frames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame

from subreplay.adapters.base import Told


@dataclass(frozen=True)
class Read:
    """``tables`` are canonical rows by name, of those that the source tells something of; ``rejected`` the rows in
    quarantine (``QUARANTINE``), whatever table they are of; ``told`` what the driver knows of both."""

    tables: Mapping[str, DataFrame]
    rejected: DataFrame
    told: Told
