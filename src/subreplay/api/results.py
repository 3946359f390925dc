"""The results of ``subreplay.api`` and how a notebook shows them."""

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
    """The history of a key or a message, line by line."""

    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def _render_page(report: ReportData) -> str:
    from subreplay.reports.page.html import to_html  # templates load only for a page

    return to_html(report)


def _frame_page(report: ReportData) -> str:
    """Return the page in an iframe, so that its style and script do not affect the notebook."""
    style = f"width: 100%; height: {_HEIGHT}; border: 0"
    title, page = escape(report.run.title), escape(_render_page(report))
    return f'<iframe sandbox="allow-scripts" title="{title}" style="{style}" srcdoc="{page}"></iframe>'


@dataclass(frozen=True)
class Inspected:
    """What ``subreplay.inspect`` found out about a source of messages.

    ``run`` has the sections of a run file: ``subreplay.whatif(**run["traffic"], subscription=run["subscription"],
    scenarios=run["scenarios"])`` replays the messages. ``source`` names the recognised
    format. ``assumed`` are sentences about what could not be seen in the data. ``open`` are the canonical columns that
    must be mapped by hand.
    """

    run: Mapping[str, Any]
    source: str
    assumed: tuple[str, ...]
    open: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class Comparison:
    """The report of a comparison of scenarios; a notebook shows it as the report's page.

    ``report.scenarios`` has the figures of each scenario.
    """

    report: ReportData

    def __repr__(self) -> str:
        return self.report.headline

    @property
    def page(self) -> str:
        """The report as one HTML page that works offline."""
        return _render_page(self.report)

    def _repr_html_(self) -> str:
        return _frame_page(self.report)


@dataclass(frozen=True, repr=False)
class Result:
    """The result of an audit or a what-if; a notebook shows it as the report's page.

    Each result table is a frame: ``result.violations``, ``result.epochs`` and so on; ``tables`` has all of them. A run
    on the local engine returns each as a ``pyarrow.Table``. The columns are those of the tables that the command
    writes. The session keeps the frames until ``close``, which ``with`` calls. A platform that cannot keep them
    computes them at each use, so pass ``out`` there.
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
        raise AttributeError(f"there is no result table {name!r}; choose one of {', '.join(datasets)}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._datasets})

    def __repr__(self) -> str:
        return f"{self.verdict}: {self.report.headline}"

    @property
    def page(self) -> str:
        """The report as one HTML page that works offline."""
        return _render_page(self.report)

    def _repr_html_(self) -> str:
        return _frame_page(self.report)

    def explain(self, *, key: str | bytes | None = None, message: str | None = None, last: int = 50) -> Explanation:
        """Explain a key or a message as ``subreplay.explain`` does, with the findings of this result."""
        return self._explain(self._engine, self._kept, key, message, last)

    def close(self) -> None:
        """Free the memory and the disks that this result uses. Its frames can still be read."""
        self._engine.close()

    def __enter__(self) -> Result:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
