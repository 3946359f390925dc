"""Judge the rows of a log: both passes of one task, and the outputs of the judged rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.audit import audited
from subreplay.audit.checkpoint import STATE_OF_RUN, make_state_rows
from subreplay.audit.judge import Judge
from subreplay.audit.passes.loads import LOADS_OF_RUN, LoadCollector
from subreplay.rows.model.columns import BatchGatherer
from subreplay.rows.model.tables import AUDITED, JUDGED
from subreplay.rows.sorted_blocks import BY_TIME, sorted_rows

MOST_SUMS: Final = 1 << 20
"""The largest number of sums that a task keeps."""
OUTPUTS: Final = {"audited": AUDITED, "findings": JUDGED, "sums": LOADS_OF_RUN, "state": STATE_OF_RUN}
"""The outputs of ``JudgeRows``."""


def run_both_passes(
    judge: Judge, log: Iterable[pa.RecordBatch], folder: str | None = None, given: LoadCollector | None = None
) -> Iterator[pa.RecordBatch]:
    """Judge ``LOG`` rows in order ``BY_POSITION``: by position and then by time.

    In between, the facts of a large topic partition are spilled to a file in ``folder``. ``given`` collects loads.
    """
    yield from judge.by_time(sorted_rows(judge.by_position(log), BY_TIME, folder), given)


@dataclass(frozen=True)
class JudgeRows:
    """Splits ``LOG`` rows in order ``BY_POSITION`` into ``OUTPUTS``.

    ``audited``: rows of that table in ``columns``. ``findings``: judged rows with a finding. ``sums``: ``LOADS_OF_RUN``
    of the task. ``state``: ``STATE_OF_RUN``. ``folder`` is for temporary files.
    """

    judge: Judge
    subscription: str
    folder: str | None = None
    columns: tuple[str, ...] = tuple(OUTPUTS["audited"].names)

    def __call__(self, log: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        given, judged = self.judge.make_load_collector(), BatchGatherer()
        for batch in run_both_passes(self.judge, log, self.folder, given):
            for rows in judged.add(batch):
                yield from self._split_outputs(rows)
            if given is not None:
                yield from _name_batches("sums", given.take_sums(MOST_SUMS))
        for rows in judged.take_rest():
            yield from self._split_outputs(rows)
        if given is not None:
            yield from _name_batches("sums", [given.compute_sum()])

    def _split_outputs(self, judged: pa.Table) -> Iterator[tuple[str, pa.RecordBatch]]:
        is_state = judged["checkpoint"].is_valid()
        if pc.any(is_state).as_py():
            yield from _name_batches("state", [make_state_rows(judged.filter(is_state))])
            judged = judged.filter(pc.invert(is_state))
        if judged.num_rows:
            rows = audited.make_audited_rows(judged, self.subscription, self.judge)
            yield from _name_batches("audited", [rows.select(self.columns)])
            yield from _name_batches("findings", [judged.filter(pc.not_equal(judged["codes"], 0))])


@dataclass(frozen=True)
class AuditedRows:
    """A step: ``LOG`` rows in order ``BY_POSITION`` -> rows of table ``audited`` alone."""

    judge_rows: JudgeRows

    def __call__(self, log: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (batch for name, batch in self.judge_rows(log) if name == "audited")


def _name_batches(name: str, tables: Iterable[pa.Table]) -> Iterator[tuple[str, pa.RecordBatch]]:
    for table in tables:
        yield from ((name, batch) for batch in table.combine_chunks().to_batches() if batch.num_rows)
