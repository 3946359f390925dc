"""Rows that travelled in blocks are the same as before, and in order."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.columns import NEVER, UNKNOWN
from subreplay.policies import make
from subreplay.rules import travelling
from subreplay.rules.travelling import BLOCKS, BY_POSITION, BY_TIME, Block, cut, in_place, merged, packed, unpacked
from subreplay.tables import FACTS, LOG
from tests.support.history import history
from tests.support.pure import judge_of, log_of

FAILOVER = make("pulsar.failover", "documented")
STORED, STORY = "a1#0 n1#5 a2#6 a3#6", "+C1 a1>C1 a2>C1 a1! a2! a3>C1"  # skips n1, and a3 is published again


def arrived(blocks: Iterator[Block]) -> Iterator[Block]:
    """Blocks as Spark brings them, a few at a time."""
    rows = pa.Table.from_batches(packed(blocks), BLOCKS).to_pylist()
    rows.sort(key=lambda row: (row["topic"], row["partition"], row["place"]))
    return unpacked(pa.Table.from_pylist(rows, BLOCKS).to_batches(3))


def test_facts_come_back_as_they_went() -> None:
    tables = history(STORED, STORY)
    facts = list(judge_of(FAILOVER, tables).by_position(log_of(tables["messages"], tables["deliveries"]).to_batches()))
    back = pa.Table.from_batches(merged(in_place(cut(facts, BY_TIME)), BY_TIME), FACTS)
    went = pa.Table.from_batches(facts, FACTS).sort_by([(name, "ascending") for name in ("at", "ledger", "entry")])
    assert back.to_pylist() == went.to_pylist()
    assert {name for name in ("twin", "skipped") if back[name].null_count < len(back)} == {"twin", "skipped"}


places = st.tuples(st.integers(0, 2), st.integers(0, 40), st.sampled_from([-1, 0, 1]), st.integers(0, 2))
instants = st.sampled_from([UNKNOWN, -5, 0, 7, NEVER])


@given(st.lists(st.tuples(st.integers(-1, 1), places, instants, st.sampled_from([None, "c1", "c10", "c2"]))), st.data())
def test_any_rows_come_back_in_order_whatever_the_runs_and_blocks(drawn: list[object], data: st.DataObject) -> None:
    rows = [
        {"topic": topic, "partition": partition, "ledger": place[0], "entry": place[1], "batch_index": place[2],
         "kind": place[3], "at": at, "seq": 0, "consumer": consumer}
        for (partition, place, at, consumer), topic in zip(drawn, "tu" * len(drawn), strict=False)
    ]  # fmt: skip
    log = pa.Table.from_pylist(rows, LOG)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(travelling, "RUN", data.draw(st.integers(1, 20)))
        patched.setattr(travelling, "ROWS", data.draw(st.integers(1, 20)))
        patched.setattr(travelling, "BLOCK", data.draw(st.integers(1, 2000)))
        random.Random(1).shuffle(rows)
        blocks = cut(pa.Table.from_pylist(rows, LOG).to_batches(4), BY_POSITION)
        back = pa.Table.from_batches(merged(arrived(blocks), BY_POSITION), LOG)
    order = ["topic", "partition", *BY_POSITION.columns]
    wanted = sorted(log.to_pylist(), key=lambda row: (*(row[name] for name in order), row["consumer"] or ""))
    assert back.to_pylist() == wanted
