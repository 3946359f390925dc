"""What an adapter is: it reads somebody's files into the canonical tables and leaves nothing out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa


class Reason(NamedTuple):
    """Why a row does not fit the contract: the column, its value, the rule and what to do."""

    column: str
    value: str
    rule: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.column} = {self.value}: {self.rule} ({self.remedy})"


class Rejected(NamedTuple):
    """An input row in quarantine, with every reason."""

    table: str
    file: str
    row: int
    raw: str
    reasons: tuple[Reason, ...]

    def __str__(self) -> str:
        return f"{self.file}, row {self.row}: " + "; ".join(map(str, self.reasons))


class FileCount(NamedTuple):
    """Rows of one input file: ``rows_in = valid + quarantined``."""

    file: str
    rows_in: int
    quarantined: int

    @property
    def valid(self) -> int:
        return self.rows_in - self.quarantined


@dataclass(frozen=True)
class Ingested:
    """What an adapter read: canonical Arrow tables by name, rejected rows, counts, and a run to start from."""

    tables: dict[str, pa.Table]
    rejected: tuple[Rejected, ...]
    counts: tuple[FileCount, ...]
    run: dict[str, Any]
    others: tuple[tuple[str, str], ...] = ()  # further subscriptions with their topics, which `run` does not name


Adapter = Callable[[Path], Ingested]
