"""One night after the other finds what one audit of all nights finds."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.audit.codes import Code, find_exemption, mask
from subreplay.audit.rules import undelivered as undelivered_rules
from subreplay.audit.rules.undelivered import DAY_END_MARGIN
from subreplay.audit.terms import Terms
from subreplay.rows.model.columns import NEVER
from subreplay.semantics.policies import make_policy
from tests.audit.definitions.test_definitions import POLICIES as KINDS
from tests.audit.definitions.test_definitions import SHARE, TERMS, histories
from tests.support import recordings
from tests.support.daily_runs import audit_daily
from tests.support.history import START, STEP, History, history
from tests.support.properties import examples
from tests.support.pure import audit, audit_by, judge_of, with_receipts

POLICIES = KINDS | {"share group": SHARE}
# These tell how things stand when the data end: each night tells how they stand at its own end.
AS_OF_THE_END = mask({Code.UNACKED, Code.UNSEEN, Code.UNROUTABLE, Code.STUCK, Code.STARVED, Code.STALLED})
WAITING = Terms(stalled_after=80_000_000, stuck_after=80_000_000, late_after=80_000_000)
# Missing so far: what comes in a later night after all is then no longer missing.
SO_FAR = mask({Code.LOST, Code.SKIP})
OF_MESSAGES = mask({Code.PRODUCER_ORDER, Code.DUP_PUBLISH, Code.DIVERGENT_ID, Code.ROUTING_MISMATCH})


@pytest.mark.parametrize("kind", POLICIES)
@examples(30)
@given(
    reported=histories(),
    terms=st.sampled_from([*TERMS, WAITING]),
    steps=st.lists(st.integers(100, 130), min_size=1, max_size=4, unique=True),
    receipts=st.booleans(),
    batch_rows=st.sampled_from([1, 3, 1000]),
    settles=st.sampled_from([0, DAY_END_MARGIN]),
)
def test_daily_runs_find_what_one_run_finds(
    kind: str, reported: tuple[str, str], terms: Terms, steps: list[int], receipts: bool, batch_rows: int, settles: int
) -> None:
    log, story = reported
    tables = published_just_in_time(history(log, f"{story} ~12 +C8"))  # all that can be told of a loss, the end can
    ends = [(START + step * STEP + STEP // 2) * 1000 for step in sorted(steps)] + [NEVER - 1]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(undelivered_rules, "DAY_END_MARGIN", settles)
        daily_runs = audit_daily(POLICIES[kind], tables, ends, terms, batch_rows, receipts)
    whole = audit_by(with_receipts(judge_of(POLICIES[kind], tables, terms), receipts), tables)
    same(daily_runs, whole, lasting=mask({Code.LOST}))
    assert lost_for_good(daily_runs) == lost_for_good([whole])
    assert not skips_retracted(daily_runs) & skips([whole])


@pytest.mark.parametrize("story", ["a1>C1 a1! a3>C1 a3! ~8 a2>C1 a2! a4>C1 a4!", "a1>C1 a1! a4>C1 a4! ~8 a2>C1 a2!"])
def test_the_delivery_of_the_only_skipped_message_retracts_the_skip(story: str) -> None:
    """In the second story another one, which never comes, was jumped over with it."""
    tables = history("a1 a2 a3 a4", f"+C1 {story}")
    daily_runs = audit_daily(
        make_policy("pulsar.exclusive", "pulsar-4.0"), tables, [(START + 106 * STEP) * 1000, NEVER - 1]
    )
    whole = audit(make_policy("pulsar.exclusive", "pulsar-4.0"), tables)
    reported = skips(daily_runs)
    assert len(reported) == 1
    assert skips_retracted(daily_runs) == (reported if "a3>" in story else set())
    assert skips([whole]) == reported - skips_retracted(daily_runs)


@pytest.mark.parametrize("kind", POLICIES)
@pytest.mark.parametrize(
    ("story", "steps"),
    [
        ("+C1:1 (C1 ~4 a0>C1 a0>C1 a0! a0>C1 a0>C1 -C1 a0>C1 a0>C1 a0>C1 a0>C9", [108, 109, 125]),
        ("+C1:1 (C1 +C2:0 a0>C1 a0! a0! ~4 a0! a0! -C1 a0>C2", [111]),
    ],
)
def test_a_close_under_way_at_midnight_is_known_to_the_run_before_midnight(
    kind: str, story: str, steps: list[int]
) -> None:
    tables = published_just_in_time(history("a0", f"{story} ~12 +C8"))
    ends = [(START + step * STEP + STEP // 2) * 1000 for step in steps] + [NEVER - 1]
    same(audit_daily(POLICIES[kind], tables, ends), audit(POLICIES[kind], tables))


def test_an_event_that_ends_after_midnight_does_not_lengthen_the_day() -> None:
    """The later of two messages is handed out first, at midnight; the other follows, a step later."""
    tables = history("n1 a1 a2", "+C1 n1>C1 a2>C1 a1>C1 ~500 n1! a1! a2!")
    midnight = sorted(tables["deliveries"]["delivered_at"].cast(pa.int64()).to_pylist())[1] * 1000
    first, _ = audit_daily(make_policy("pulsar.shared", "pulsar-4.0"), tables, [midnight, NEVER - 1])
    (missing,) = first.filter(pc.invert(first["delivered"]))["codes"].to_pylist()
    assert missing == Code.UNSEEN.bit


RECORDED = ["3.2.3/s1_key_shared_autosplit", "4.0.8/s1_key_shared_autosplit", "4.0.8/s1b_key_shared_stuck",
            "3.2.3/s1b_key_shared_stuck", "4.0.8/s5_failover_partitioned", "4.0.8/s7b_shared_dlq",
            "4.0.8/s1f_key_shared_default_batching", "4.0.8/s9_delayed_shared"]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", RECORDED)
def test_a_recording_cut_into_a_month_of_daily_runs_equals_one_run(name: str) -> None:
    recorded = recordings.ingested(recordings.ROOT / name)
    reported = recorded.run["subscription"]
    policy = make_policy(reported["policy"], reported["profile"], **reported.get("options", {}))
    at = pc.fill_null(recorded.tables["deliveries"]["delivered_at"].cast(pa.int64()), 0).to_numpy()
    ends = [int(t) * 1000 + 500 for t in np.quantile(at[at > 0], np.arange(1, 30) / 30)] + [NEVER - 1]
    same(audit_daily(policy, recorded.tables, ends), audit(policy, recorded.tables))


def same(daily_runs: list[pa.Table], whole: pa.Table, lasting: int = SO_FAR) -> None:
    """``lasting``: of what is missing so far, what nights miss no less. (SKIP reads a consumer's stream in the order of
    the log: what an active consumer got of an earlier part of it on a later night, against all order, moves its start.)
    """
    assert found(daily_runs, ~SO_FAR) == found([whole], ~SO_FAR)
    assert found([whole], lasting) <= found(daily_runs, lasting)
    assert undelivered(daily_runs[-1:]) == undelivered([whole])
    assert sum(n.filter(n["delivered"]).num_rows for n in daily_runs) == whole.filter(whole["delivered"]).num_rows


def found(tables: list[pa.Table], codes: int) -> set[tuple[str, int, int, str]]:
    requested = codes & ~AS_OF_THE_END
    return {
        (code.name, r["entry"], r["batch_index"], proof(code, r))
        for table in tables
        for r in table.filter(pc.not_equal(pc.bit_wise_and(table["codes"], requested), 0)).to_pylist()
        for code in Code
        if r["codes"] & requested & code.bit
    }


WITNESSES = {
    Code.KEY_ORDER: "order_witness", Code.PARTITION_ORDER: "order_witness", Code.REDELIVERY_ORDER: "order_witness",
    Code.KEY_TWO_OWNERS: "owner_witness", Code.BEFORE_PREDECESSOR_ACK: "owner_witness",
    Code.TWO_ACTIVE: "owner_witness", Code.SKIP: "skipped",
}  # fmt: skip


def proof(code: Code, row: dict[str, Any]) -> str:
    """What is said of a finding: of a message the one it collides with, of a delivery when it came and what proves it
    (but for when that ended, which a later night may know better)."""
    if code.bit & OF_MESSAGES:
        return str(row["twin"])
    evidence = row[WITNESSES[code]] if code in WITNESSES else None
    reported = [row["at"], row["consumer"], row["nth"], row["previous"], find_exemption(code, row["excuses"])]
    return str([*reported, evidence and {k: v for k, v in evidence.items() if k != "held_until"}])


def lost_for_good(daily_runs: list[pa.Table]) -> set[tuple[int, int]]:
    """Messages told LOST by a night, but for those that a later one withdraws because they came after all."""
    lost: set[tuple[int, int]] = set()
    for rows in (daily_run.to_pylist() for daily_run in daily_runs):
        lost -= {(r["entry"], r["batch_index"]) for r in rows if r["delivered"]}
        lost |= {(r["entry"], r["batch_index"]) for r in rows if r["codes"] & Code.LOST.bit}
    return lost


def skips(daily_runs: list[pa.Table]) -> set[tuple[int, int, int, int]]:
    """Deliveries told as SKIP: position, session, time."""
    rows = [row for daily_run in daily_runs for row in daily_run.to_pylist()]
    return {(r["entry"], r["batch_index"], r["session"], r["at"]) for r in rows if r["codes"] & Code.SKIP.bit}


def skips_retracted(daily_runs: list[pa.Table]) -> set[tuple[int, int, int, int]]:
    """Those of them that a later night withdraws: it gave the same consumer the only message that was jumped over."""
    reported: dict[tuple[int, int, int], set[tuple[int, int, int, int]]] = defaultdict(set)
    withdrawn = set()
    for rows in (daily_run.to_pylist() for daily_run in daily_runs):
        for r in rows:
            withdrawn |= reported.get((r["entry"], r["batch_index"], r["session"]), set())
        for r in rows:
            if r["codes"] & Code.SKIP.bit and not r["skipped_others"]:
                of = r["skipped"]["entry"], r["skipped"]["batch_index"], r["session"]
                reported[of].add((r["entry"], r["batch_index"], r["session"], r["at"]))
    return withdrawn


def undelivered(tables: list[pa.Table]) -> set[tuple[int, int]]:
    rows = [row for table in tables for row in table.to_pylist()]
    return {(r["entry"], r["batch_index"]) for r in rows if not r["delivered"] and not r["codes"] & SO_FAR}


def published_just_in_time(tables: History) -> History:
    """Every message as late as its own first delivery, and those of all behind it, allow."""
    messages, deliveries = tables["messages"], tables["deliveries"].to_pylist()
    times = messages["publish_time"].to_pylist()
    first = {}
    for d in deliveries:
        first[d["entry"]] = min(first.get(d["entry"], d["delivered_at"]), d["delivered_at"])
    late = max([*first.values()], default=times[-1])
    latest = [first.get(entry, late) for entry in messages["entry"].to_pylist()]
    for i in range(len(latest) - 1, 0, -1):
        latest[i - 1] = min(latest[i - 1], latest[i])
    index = messages.schema.get_field_index("publish_time")
    published = pa.array(latest, messages.schema.field(index).type)
    return tables | {"messages": messages.set_column(index, messages.schema.field(index), published)}
