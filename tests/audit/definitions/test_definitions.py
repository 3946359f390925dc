"""The compiled passes find, on random histories, exactly what the definitions say."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.audit.codes import Code
from subreplay.audit.definitions.deliveries import list_findings
from subreplay.audit.definitions.histories import History as Log
from subreplay.audit.judge import Judge
from subreplay.audit.terms import Terms
from subreplay.rows.model.columns import NEVER
from subreplay.semantics.policies import make_policy
from tests.support.history import auto_split, history
from tests.support.properties import examples
from tests.support.pure import judge_of, judged_log, log_of, with_receipts

POLICIES = {
    "keyed": auto_split(),
    "keyed of 3.2": auto_split("pulsar-3.2"),
    "unordered": auto_split(allow_out_of_order=True),
    "active": make_policy("pulsar.failover", "pulsar-4.0"),
    "filtered": make_policy("pulsar.key_hash_range", "pulsar-4.0"),
    "shared": make_policy("pulsar.shared", "pulsar-4.0"),
}
SHARE = make_policy("kafka.share", "kafka-4.4", lock_duration_us=150_000, delivery_limit=2)
TERMS = [Terms(stuck_after=30_000_000), Terms(stuck_after=0, ttl=1_100_000_000), Terms(tick=0, compacted=True)]


@st.composite
def logs(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A log, and the names in it."""
    names: list[str] = []
    entries = []
    for size in draw(st.lists(st.sampled_from([1, 1, 1, 1, 2]), min_size=1, max_size=8)):
        entry = []
        for _ in range(size):
            names.append(f"{draw(st.sampled_from('abn'))}{len(names)}")
            producer, sequence = draw(st.sampled_from(["", "", "@q"])), draw(st.sampled_from(["", "", "", "#1", "#3"]))
            delay = draw(st.sampled_from(["", "", "", "+110"])) if size == 1 else ""
            chunk = draw(st.sampled_from([""] * 6 + ["%0/2", "%1/2"])) if size == 1 else ""
            entry.append(names[-1] + producer + sequence + delay + chunk)
        entries.append(",".join(entry))
    return " ".join(entries), names


@st.composite
def histories(draw: st.DrawFn) -> tuple[str, str]:
    """A log and a story in which anything may happen."""
    log, names = draw(logs())
    story, connected, delivered = ["+C1:1"], ["C1"], []
    for _ in range(draw(st.integers(0, 22))):
        step = draw(
            st.sampled_from(
                ["deliver"] * 8 + ["ack"] * 4 + ["take"] * 2 + ["give back", "join", "close", "leave", "wait"]
            )
        )
        if step == "deliver":
            name = draw(st.sampled_from(names))
            consumer = draw(st.sampled_from([*connected, *connected, "C1", "C9"]))
            story.append(f"{name}>{consumer}" + draw(st.sampled_from(["", "", "", "*1"])))
            delivered.append(name)
        elif step in ("ack", "take", "give back") and delivered:
            end = {"ack": draw(st.sampled_from(["!", "!", "!!"])), "take": "^", "give back": "?"}[step]
            story.append(draw(st.sampled_from(delivered)) + end)
        elif step == "join" and len(connected) < 3:
            connected.append(next(c for c in ("C1", "C2", "C3", "C4") if c not in connected))
            story.append(f"+{connected[-1]}{draw(st.sampled_from([':0', ':1', ':2', '']))}")
        elif step == "close" and connected:
            story.append(f"({draw(st.sampled_from(connected))}")
        elif step == "leave" and connected:
            story.append(f"-{connected.pop(draw(st.integers(0, len(connected) - 1)))}")
        elif step == "wait":
            story.append("~4")
    return log, " ".join(story)


@pytest.mark.parametrize("kind", POLICIES)
@examples(100)
@given(
    reported=histories(), terms=st.sampled_from(TERMS), receipts=st.booleans(), batch_rows=st.sampled_from([1, 3, 1000])
)
def test_the_passes_find_what_the_definitions_say(
    kind: str, reported: tuple[str, str], terms: Terms, receipts: bool, batch_rows: int
) -> None:
    if kind == "filtered":  # one reader of half of the slots
        reported = reported[0], reported[1].replace("+C1:1", "+C1:1[0-32767]", 1)
    tables = history(*reported)
    judge = with_receipts(judge_of(POLICIES[kind], tables, terms), receipts)
    log = log_of(tables["messages"], tables["deliveries"])
    assert found_by_passes(judge, log, batch_rows) == found_by_definitions(judge, log)


LATER = timedelta(milliseconds=40)


@examples(200)
@given(
    reported=histories(),
    ends=st.lists(st.sampled_from(["", "", "refused", "rejected", "later"]), min_size=22, max_size=22),
    batch_rows=st.sampled_from([1, 3, 1000]),
)
def test_the_passes_find_what_the_definitions_say_of_a_share_group(
    reported: tuple[str, str], ends: list[str], batch_rows: int
) -> None:
    tables = history(*reported)
    rows = tables["deliveries"].to_pylist()
    for row, end in zip(rows, ends, strict=False):
        acked = row["acked_at"]
        row["outcome"] = "refused" if end == "refused" else None
        row["ack_type"] = "Reject" if end == "rejected" and acked else row["ack_type"]
        row["acked_at"] = acked + LATER if end == "later" and acked else acked
    tables |= {"deliveries": pa.Table.from_pylist(rows, tables["deliveries"].schema)}
    judge = judge_of(SHARE, tables)
    log = log_of(tables["messages"], tables["deliveries"])
    assert found_by_passes(judge, log, batch_rows) == found_by_definitions(judge, log)


def found_by_passes(judge: Judge, log: pa.Table, batch_rows: int) -> set[tuple[str, int, int, int]]:
    rows = judged_log(judge, log, batch_rows).select(["codes", "entry", "batch_index", "at", "delivered"])
    return {
        (code.name, r["entry"], r["batch_index"], r["at"] if r["delivered"] else NEVER)
        for r in rows.filter(pc.not_equal(rows["codes"], 0)).to_pylist()
        for code in Code
        if r["codes"] & code.bit
    }


def found_by_definitions(judge: Judge, log: pa.Table) -> set[tuple[str, int, int, int]]:
    (dispatcher,) = judge.dispatchers.values()
    return {
        (code.name, position[1], position[2], at)
        for code, position, at in list_findings(Log.of(judge, dispatcher, log))
    }
