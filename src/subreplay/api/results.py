"""What the questions of ``subreplay.api`` are answered with, as a notebook shows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from subreplay.engine.interface import Dataset, Engine, Tables
from subreplay.reports.data import ReportData
from subreplay.rows.model.rows import Verdict

if TYPE_CHECKING:
    from subreplay.engine.spark.session import DataFrame

_HEIGHT: Final = "80vh"  # of a page in a notebook


@dataclass(frozen=True, repr=False)
class Explanation:
    """What happened to a key or a message, line by line; a notebook shows it as it is."""

    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


@dataclass(frozen=True, repr=False)
class Result:
    """What an audit or a what-if found; a notebook shows it as the report's page.

    Each result table is a frame: ``result.violations``, ``result.epochs`` and so on, all of them in ``tables``; of a
    run without Spark, over files of this machine, each is a ``pyarrow.Table``. Their columns are those of the tables
    that the command writes. The session keeps them until ``close``, which ``with`` calls, where the platform lets it;
    elsewhere they are computed whenever they are looked at, so give ``out``.
    """

    verdict: Verdict
    report: ReportData
    _datasets: Mapping[str, Dataset] = field(compare=False)
    _engine: Engine = field(compare=False)
    _kept: Tables | None = field(compare=False)  # None: they are written
    _explain: Callable[[Engine, Tables | None, str | bytes | None, str | None, int], Explanation] = field(compare=False)

    @cached_property
    def tables(self) -> Mapping[str, DataFrame | pa.Table]:
        """The result tables by name."""
        return {name: rows.frame for name, rows in self._datasets.items()}

    def __getattr__(self, name: str) -> Any:
        datasets = self.__dict__.get("_datasets", {})
        if name in datasets:
            return self.tables[name]
        raise AttributeError(f"no result table {name!r}; there are: {', '.join(datasets)}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._datasets})

    def __repr__(self) -> str:
        return f"{self.verdict}: {self.report.headline}"

    @property
    def page(self) -> str:
        """The report as one HTML page that works offline."""
        from subreplay.reports.page.html import to_html  # templates load only for a page

        return to_html(self.report)

    def _repr_html_(self) -> str:
        """The page in a frame of its own: its style and its script touch nothing of the notebook."""
        style = f"width: 100%; height: {_HEIGHT}; border: 0"
        title = escape(self.report.run.title)
        return f'<iframe sandbox="allow-scripts" title="{title}" style="{style}" srcdoc="{escape(self.page)}"></iframe>'

    def explain(self, *, key: str | bytes | None = None, message: str | None = None, last: int = 50) -> Explanation:
        """The life of a key or a message, as ``subreplay.explain`` tells it, with the findings of this result."""
        return self._explain(self._engine, self._kept, key, message, last)

    def close(self) -> None:
        """Free what is kept of this result. Frames can be looked at all the same."""
        self._engine.close()

    def __enter__(self) -> Result:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
