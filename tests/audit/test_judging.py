"""What tasks make of a log and of its findings is, together, what comes of all rows at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from subreplay.audit import audited, explaining, judging, sums
from subreplay.audit.checkpoint import make_checkpoints
from subreplay.audit.explain.findings import Explainer
from subreplay.audit.explaining import FindingCounting, FindingExplainer, OtherFindingCounter
from subreplay.audit.judge import Judge
from subreplay.audit.judging import JudgeRows
from subreplay.audit.passes.loads import Span
from subreplay.rows.model.columns import column
from subreplay.rows.model.tables import AUDITED
from subreplay.rows.sorted_blocks import BY_POSITION, external_merge, shuffle_blocks
from tests.support.faults import Capture
from tests.support.pure import judge_of, judged_log, log_of, sums_of

WIDTH = 5_000_000_000
SPAN = Span(WIDTH, WIDTH)
COUNTING = FindingCounting(SPAN, 4 * WIDTH, 2, 50)


@pytest.fixture(scope="module")
def log() -> pa.Table:
    tables = capture().tables
    return log_of(tables["messages"], tables["deliveries"])


def capture() -> Capture:
    return Capture.load("4.0.8/s4_key_shared_allow_ooo")


def judge(carries: bool = False) -> Judge:
    made = judge_of(capture().policy, capture().tables, capture().terms)
    end = max(row["publish_time"] for row in capture().messages) * 1_000
    return replace(made, spans=(SPAN,), **({"horizon": end} if carries else {}))


def outputs(found: Iterable[tuple[str, pa.RecordBatch]], schemas: dict[str, pa.Schema]) -> dict[str, pa.Table]:
    batches = defaultdict(list)
    for name, batch in found:
        batches[name].append(batch)
    return {name: pa.Table.from_batches(batches[name], schema) for name, schema in schemas.items()}


@pytest.mark.parametrize("carries", [False, True])
def test_a_task_splits_judged_rows_into_findings_sums_and_state(log: pa.Table, tmp_path: Path, carries: bool) -> None:
    mine = judge(carries)
    blocks = sorted(shuffle_blocks(log.to_batches(100), BY_POSITION), key=lambda block: (block.scope, block.first_key))
    found = outputs(JudgeRows(mine, "s", str(tmp_path))(external_merge(blocks, BY_POSITION)), judging.OUTPUTS)
    expected = judged_log(mine, log)
    is_row = expected["checkpoint"].is_null()
    published = audited.drop_state_rows(audited.make_audited_rows(expected.filter(is_row), "s", mine))
    assert found["audited"].equals(published)
    assert published.schema == AUDITED
    assert found["findings"].equals(expected.filter(pc.and_(is_row, pc.not_equal(expected["codes"], 0))))
    assert len(found["findings"])
    assert found["sums"].sort_by([("consumer", "ascending"), ("pane", "ascending")]).num_rows
    assert rows_of(found["sums"]) == rows_of(sums_of(mine, log))
    state = expected.filter(expected["checkpoint"].is_valid()).combine_chunks()
    assert make_checkpoints(found["state"]).equals(column(state, "checkpoint"))
    assert found["state"].select(["topic", "partition"]).equals(state.select(["topic", "partition"]))
    assert bool(len(found["state"])) == carries


def test_a_task_writes_the_requested_columns(log: pa.Table) -> None:
    found = [
        batch
        for name, batch in JudgeRows(judge(), "s", None, ("entry", "codes"))(log.to_batches())
        if name == "audited"
    ]
    assert {tuple(batch.schema.names) for batch in found} == {("entry", "codes")}


def test_explained_findings_of_tasks_have_the_same_counts_as_all_at_once(log: pa.Table) -> None:
    mine = judge()
    rows = judged_log(replace(mine, findings_only=True), log).filter(pc.field("codes") != 0)
    words = FindingExplainer(Explainer(mine, "s"), COUNTING)
    at_once = outputs(words(rows.to_batches()), explaining.OUTPUTS)
    tasks = [outputs(words(rows.slice(begin, 7).to_batches()), explaining.OUTPUTS) for begin in range(0, len(rows), 7)]
    together = {name: pa.concat_tables(task[name] for task in tasks) for name in explaining.OUTPUTS}
    published = audited.drop_state_rows(audited.make_audited_rows(rows, "s", mine))
    expected = pa.Table.from_batches(
        Explainer(mine, "s").explain_violations(audited.select_explained(published, mine).to_batches())
    )
    assert rows_of(at_once["violations"]) == rows_of(together["violations"]) == rows_of(expected)
    assert at_once["counts"].equals(sums.count_by_window(published, mine.applicable, WIDTH))
    for name, adding in (("counts", sums.make_count_adder()), ("panes", sums.make_pane_adder())):
        adding.add(together[name])
        assert rows_of(adding.compute_sum()) == rows_of(at_once[name])
    worst: Callable[[pa.Table], sums.Rows] = partial(sums.select_worst, per_window=2, width=4 * WIDTH, most=50)
    assert worst(together["first"]) == worst(at_once["first"]) == worst(expected)


def test_explained_findings_have_the_same_counts() -> None:
    none = outputs(OtherFindingCounter(COUNTING)([]), explaining.OUTPUTS)
    assert not any(map(len, none.values()))


def rows_of(rows: pa.Table) -> list[str]:
    return sorted(map(str, rows.to_pylist()))
