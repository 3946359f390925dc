"""What a run of a date wants of other days, on every small log, is what joins of its definition say."""

from __future__ import annotations

from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.audit import other_days
from subreplay.audit.other_days import WAS_OPEN, EntryFilter, find_lowest_entries, hash_entries, keep_wanted
from subreplay.rows.model.tables import COMMIT, DELIVERY, LOG, MESSAGE
from subreplay.rows.sorted_blocks import BY_POSITION, GROUP, external_merge, shuffle_blocks
from tests.support.properties import examples

DAY, EARLIER, EARLY, OPEN, WAITING = range(5)


class Line(NamedTuple):
    partition: int
    ledger: int
    entry: int
    batch_index: int
    kind: int
    of: int

    @property
    def at(self) -> tuple[int, int, int]:
        return self[:3]


OF_KINDS = [(MESSAGE, DAY), (DELIVERY, DAY), (COMMIT, DAY), (MESSAGE, EARLIER), (DELIVERY, EARLIER), (MESSAGE, EARLY),
            (WAS_OPEN, OPEN), (WAS_OPEN, WAITING)]  # fmt: skip
LINES = st.builds(
    lambda partition, ledger, entry, index, kind: Line(partition, ledger, entry, index, *kind),
    st.integers(0, 1), st.integers(0, 1), st.integers(0, 4), st.integers(-1, 0), st.sampled_from(OF_KINDS),
)  # fmt: skip
LOGS = st.lists(LINES, max_size=30)


def make_log_rows(lines: list[Line]) -> pa.Table:
    judged = {EARLY: False, WAITING: True, OPEN: False}
    rows = [
        {"topic": "t", **line._asdict(), "at": 0, "seq": i, "judged": (line.kind == MESSAGE and line.of == DAY) or None,
         "before": line.of in (EARLIER, EARLY)}
        | ({"judged": judged[line.of]} if line.of in judged else {})
        for i, line in enumerate(lines)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, LOG)


def wanted(lines: list[Line]) -> dict[int, bool | None]:
    """The numbers of the lines that a run judges, and of messages whether their absence counts."""
    firsts: dict[int, tuple[int, int]] = {}
    for line in lines:
        if (line.kind, line.of) == (MESSAGE, DAY):
            firsts[line.partition] = min(firsts.get(line.partition, line[1:3]), line[1:3])
    served = {line.at for line in lines if line.of == DAY and line.kind != MESSAGE}
    open_ = {line.at for line in lines if line.kind == WAS_OPEN}
    waiting = {line[:4] for line in lines if line.of == WAITING}
    found: dict[int, bool | None] = {}
    for i, line in enumerate(lines):
        late = line.partition in firsts and line[1:3] >= firsts[line.partition]
        if line.of == DAY:
            found[i] = True if line.kind == MESSAGE else None
        elif line.of == EARLY and line.at in served:
            found[i] = False
        elif line.of == EARLIER and (late or line.at in served | open_):
            found[i] = line[:4] in waiting if line.kind == MESSAGE else None
    return found


def in_order(log: pa.Table, block: int = 1 << 16) -> pa.Table:
    blocks = sorted(
        shuffle_blocks(log.to_batches(7), BY_POSITION, block), key=lambda each: (each.scope, each.first_key)
    )
    return pa.Table.from_batches(external_merge(blocks, BY_POSITION), LOG)


@examples(200)
@given(lines=LOGS, batch_rows=st.sampled_from([1, 2, 5, 1000]))
def test_entries_are_kept_that_are_open_served_or_behind_the_first_message(lines: list[Line], batch_rows: int) -> None:
    log = in_order(make_log_rows(lines))
    kept = pa.Table.from_batches(keep_wanted(log.to_batches(batch_rows)), LOG)
    assert dict(zip(kept["seq"].to_pylist(), kept["judged"].to_pylist(), strict=True)) == wanted(lines)
    assert kept["seq"].to_pylist() == [seq for seq in log["seq"].to_pylist() if seq in wanted(lines)]


@examples(200)
@given(lines=LOGS, many=st.booleans())
def test_a_filter_drops_nothing_that_is_wanted(lines: list[Line], many: bool) -> None:
    """Where entries are few enough to be named it drops all else."""
    firsts: dict[int, Any] = {}
    for line in lines:
        if (line.kind, line.of) == (MESSAGE, DAY):
            firsts[line.partition] = min(firsts.get(line.partition, line[1:3]), line[1:3])
    bounds = EntryFilter.of(firsts)
    named = make_log_rows([x for x in lines if x.kind == WAS_OPEN or (x.of == DAY and x.kind != MESSAGE)]).to_batches(3)
    if many:
        lowest = dict(firsts)
        for row in chain.from_iterable(each.to_pylist() for each in find_lowest_entries(named, bounds)):
            lowest[row["partition"]] = (row["ledger"], row["entry"])  # it is before the first
        kept = EntryFilter.of(lowest)
    else:
        hashes = [each.column(GROUP).to_numpy() for each in hash_entries(named, bounds)]
        kept = EntryFilter.of(firsts, np.concatenate([*hashes, np.empty(0, np.int64)]))
    earlier = [line for line in lines if line.of == EARLIER]
    (batch,) = make_log_rows(earlier).combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], LOG)]
    found = set(np.flatnonzero(kept.keep(batch)).tolist())
    mine = {earlier.index(line) for i, line in enumerate(lines) if line.of == EARLIER and i in wanted(lines)}
    assert found >= mine
    if not many:
        assert {earlier[i] for i in found} == {earlier[i] for i in mine}


def test_a_task_names_no_more_entries_than_a_filter_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_days, "MOST_ENTRIES", 2)
    monkeypatch.setattr("subreplay.rows.model.columns.MOST_BYTES", 1)  # of each batch
    log = make_log_rows([Line(0, 1, entry, -1, DELIVERY, DAY) for entry in range(9)])
    assert sum(len(each) for each in hash_entries(log.to_batches(1), EntryFilter.of({}))) == 3
