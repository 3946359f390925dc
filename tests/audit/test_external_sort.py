"""Rows that travelled in blocks are the same as before, and in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.rows import sorted_blocks
from subreplay.rows.model.columns import NEVER, UNKNOWN
from subreplay.rows.model.tables import FACTS, LOG
from subreplay.rows.sorted_blocks import (
    BY_POSITION,
    BY_TIME,
    ShuffleBlock,
    external_merge,
    shuffle_blocks,
    sorted_rows,
)
from subreplay.rows.spill_files import SpillFile, measure_scopes, read_blocks
from subreplay.semantics.policies import make_policy
from tests.support.history import history
from tests.support.pure import judge_of, log_of

FAILOVER = make_policy("pulsar.failover", "documented")
STORED, STORY = "a1#0 n1#5 a2#6 a3#6", "+C1 a1>C1 a2>C1 a1! a2! a3>C1"  # skips n1, and a3 is published again


def arrived(blocks: Iterator[ShuffleBlock]) -> Iterator[ShuffleBlock]:
    """Blocks as an exchange brings them."""
    return iter(sorted(blocks, key=lambda block: (block.scope, block.first_key)))


def leave(blocks: Iterable[ShuffleBlock], path: str) -> None:
    """Write a file of blocks, or fail in the middle."""
    file = SpillFile(path)
    try:
        for block in blocks:
            file.add(block)
        file.finish()
    finally:
        file.close()


def test_facts_come_back_as_they_went() -> None:
    tables = history(STORED, STORY)
    facts = list(judge_of(FAILOVER, tables).by_position(log_of(tables["messages"], tables["deliveries"]).to_batches()))
    back = pa.Table.from_batches(sorted_rows(facts, BY_TIME), FACTS)
    went = pa.Table.from_batches(facts, FACTS).sort_by([(name, "ascending") for name in ("at", "ledger", "entry")])
    assert back.to_pylist() == went.to_pylist()
    assert {name for name in ("twin", "skipped") if back[name].null_count < len(back)} == {"twin", "skipped"}


instants = st.sampled_from([UNKNOWN, 0, 7, NEVER])
positions = st.tuples(
    st.sampled_from([3, 3, 4]), st.integers(0, 2), st.sampled_from([-1, -1, 0]), st.just(1), instants
)  # often the same
names = st.sampled_from([None, "c1", "c10", "c2"])
logs = st.lists(st.tuples(st.sampled_from("tttu"), st.sampled_from([0, 0, 0, -1]), positions, names), max_size=60)


@given(logs, st.data())
def test_any_rows_come_back_in_order_whatever_the_runs_and_blocks(
    drawn: list[tuple[str, int, tuple[int, ...], str | None]], data: st.DataObject
) -> None:
    keys = ("ledger", "entry", "batch_index", "kind", "at")
    rows = [
        {
            "topic": topic,
            "partition": partition,
            **dict(zip(keys, position, strict=True)),
            "seq": 0,
            "consumer": consumer,
        }
        for topic, partition, position, consumer in drawn
    ]
    order = ["topic", "partition", *BY_POSITION.columns]
    wanted = sorted(rows, key=lambda row: (*(row[name] for name in order), row["consumer"] or ""))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sorted_blocks, "SORT_ROWS", data.draw(st.integers(1, 9)))
        patched.setattr(sorted_blocks, "ROWS", data.draw(st.integers(1, 5)))
        block = data.draw(st.integers(1, 2000))
        log = pa.Table.from_pylist(rows, LOG)
        back = external_merge(arrived(shuffle_blocks(log.to_batches(4), BY_POSITION, block)), BY_POSITION)
        assert pa.Table.from_batches(back, LOG).to_pylist() == pa.Table.from_pylist(wanted, LOG).to_pylist()
        patched.setattr(sorted_blocks, "SPILL_BLOCK_BYTES", block)
        by_scope = log.take(pc.sort_indices(log, [("topic", "ascending"), ("partition", "ascending")]))
        back = sorted_rows(by_scope.to_batches(data.draw(st.integers(1, 9))), BY_POSITION)
        assert pa.Table.from_batches(back, LOG).to_pylist() == pa.Table.from_pylist(wanted, LOG).to_pylist()
        with TemporaryDirectory() as folder:
            cut, paths = data.draw(st.integers(0, len(rows))), [f"{folder}/{number}" for number in range(2)]
            for path, part in zip(paths, (log.slice(0, cut), log.slice(cut)), strict=True):
                leave(shuffle_blocks(part.to_batches(4), BY_POSITION, block), path)
            back = external_merge(read_blocks(paths, sorted(measure_scopes(paths))), BY_POSITION)
            assert pa.Table.from_batches(back, LOG).to_pylist() == pa.Table.from_pylist(wanted, LOG).to_pylist()


def test_a_file_of_blocks_is_there_when_it_is_complete(tmp_path: Path) -> None:
    """A task that fails, or is run twice, leaves nothing that another one takes for all there is."""

    def broken_off() -> Iterator[ShuffleBlock]:
        yield ShuffleBlock(("t", 0), [1, 2, 3, 4], 1, b"rows")
        raise InterruptedError

    with pytest.raises(InterruptedError):
        leave(broken_off(), str(tmp_path / "blocks"))
    assert not (tmp_path / "blocks").exists()
    whole = [ShuffleBlock(("t", 0), [1, 2, 3, 4], 1, b"rows"), ShuffleBlock(("t", 1), [0, 0, 0, 0], 1, b"more rows")]
    leave(whole, str(tmp_path / "blocks"))
    assert measure_scopes([str(tmp_path / "blocks")]) == {("t", 0): 4, ("t", 1): 9}
    assert [block.rows for block in read_blocks([str(tmp_path / "blocks")], [("t", 1), ("t", 0)])] == [
        b"more rows",
        b"rows",
    ]
