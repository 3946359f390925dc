"""Facts are the same behind their journey as before it."""

from __future__ import annotations

import pyarrow as pa

from subreplay.policies import make
from subreplay.rules.travelling import packed, unpacked
from subreplay.tables import FACTS
from tests.support.history import history
from tests.support.pure import judge_of, log_of

FAILOVER = make("pulsar.failover", "documented")
LOG, STORY = "a1#0 n1#5 a2#6 a3#6", "+C1 a1>C1 a2>C1 a1! a2! a3>C1"  # skips n1, and a3 is published again


def test_every_column_of_facts_comes_back_as_it_went() -> None:
    tables = history(LOG, STORY)
    facts = list(judge_of(FAILOVER, tables).by_position(log_of(tables["messages"], tables["deliveries"]).to_batches()))
    back = list(unpacked(packed(facts)))
    assert pa.Table.from_batches(back, FACTS).equals(pa.Table.from_batches(facts, FACTS))
    assert {name for name in ("twin", "skipped") if any(b.column(name).null_count < len(b) for b in facts)} == {
        "twin", "skipped"
    }  # fmt: skip


def test_a_piece_of_a_batch_finds_its_own_rows() -> None:
    tables = history(LOG, STORY)
    judge = judge_of(FAILOVER, tables)
    facts, *_ = judge.by_position(log_of(tables["messages"], tables["deliveries"]).combine_chunks().to_batches())
    (travelling,) = packed([facts])
    (piece,) = unpacked([travelling.slice(1, 2)])
    assert piece.equals(facts.slice(1, 2))
