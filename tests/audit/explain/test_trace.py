"""The life of a message, line by line."""

from __future__ import annotations

import pyarrow as pa
import pytest

from subreplay.audit.explain.trace import Trace
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.base import Policy
from tests.support.history import auto_split, history
from tests.support.pure import audit_by, judge_of, log_of

KEY_SHARED, FAILOVER = auto_split(), make_policy("pulsar.failover", "pulsar-4.0")


def life_of(policy: Policy, log: str, story: str, entry: int, partition: int = -1) -> Trace:
    """The life of the message of an entry, told of nothing that held it back."""
    tables = history(log, story, partition)
    judge = judge_of(policy, tables)
    rows = audit_by(judge, tables)
    whole = log_of(tables["messages"], tables["deliveries"])
    mine = [table.filter(pa.compute.equal(table["entry"], entry)) for table in (whole, rows)]
    return Trace(judge, *mine)


def happened(trace: Trace) -> list[str]:
    """The words of each line, without time and place."""
    return [
        line.split("1:0  ")[-1].strip() if "1:0  " in line else line.split(maxsplit=1)[1]
        for line in trace.format_lines()
    ]


def test_the_trace_of_a_message_shows_publication_nack_and_redelivery_to_the_next_owner() -> None:
    reported = happened(life_of(KEY_SHARED, "a1", "+C1 a1>C1 a1^ a1? +C2 a1>C2*1 a1!", 0))
    slot = reported[0].split("slot ")[1].split()[0]
    assert reported == [
        f"published by p as sequence 0, 1 bytes; slot {slot} belongs to nobody (epoch 0: nobody had joined yet)",
        f"epoch 1: C1 joined at 22:13:21.000000: the owner of slot {slot} changes from nobody to C1",
        "delivered to C1",
        "received by the application of C1",
        "negatively acknowledged by C1 (nack or ack timeout)",
        f"epoch 2: C2 joined at 22:13:21.040000: the owner of slot {slot} changes from C1 to C2",
        "delivered to C2, delivery 2 of it, redelivery count 1",
        "acknowledged by C2",
    ]


@pytest.mark.parametrize(
    ("policy", "story", "line"),
    [
        (KEY_SHARED, "+C1 a1>C1 -C1 a1!", "returned to the broker: C1 left"),
        (KEY_SHARED, "+C1 +C2 a1>C1 a1!", "delivered to C1; its owner was C2"),
        (KEY_SHARED, "+C1 a1>C1 a1!!", "acknowledged by C1, cumulatively"),
        (KEY_SHARED, "+C1", "not delivered by the end"),
        (KEY_SHARED, "+C1 ~100 -C1", "changes from C1 to nobody"),
        (FAILOVER, "+C1 +C0 -C0 a1>C1 a1!", "changes from C0 to C1"),
    ],
)  # fmt: skip
def test_what_else_may_happen(policy: Policy, story: str, line: str) -> None:
    assert any(reported.endswith(line) for reported in happened(life_of(policy, "a1", story, 0)))


def test_events_before_the_publication_are_not_traced() -> None:
    reported = happened(life_of(FAILOVER, "n1 n2", "+C1 ~100 n1>C1 n1! n2>C1 n2!", 0))
    assert not [line for line in reported if "n2" in line]
    assert [line.split()[0] for line in reported] == ["published", "epoch", "delivered", "acknowledged"]


def test_a_message_waits_from_when_its_consumer_could_have_had_it() -> None:
    (wait,) = life_of(KEY_SHARED, "a1 a2", "+C1 a1>C1 +C2 ~100 a1! a2>C2 a2!", 1).find_waiting()
    assert (wait["entry"], wait["session"]) == (1, 1)
    assert wait["slot"] is not None
    assert wait["since"] < wait["before"] == wait["until"]
    (wait,) = life_of(auto_split("pulsar-3.2"), "a1 a2", "+C1 a1>C1 +C2 ~100 a1! a2>C2 a2!", 1).find_waiting()
    assert wait["slot"] is None
    assert wait["since"] == wait["before"] < wait["until"]


def test_the_trace_names_the_blocking_delivery_and_the_number_of_others() -> None:
    trace = life_of(KEY_SHARED, "a1 a2", "+C1 a1>C1 +C2 ~100 a1! a2>C2 a2!", 1)
    (requested,) = trace.find_waiting()
    holder = {"ledger": 1, "entry": 0, "batch_index": -1}
    wait = requested | {"holder": holder, "consumer": "C1", "until": requested["until"] - 1_000, "of": 3}
    lines = Trace(trace.judge, trace.log, trace.judged, (wait,)).format_lines()
    (line,) = [line for line in lines if "blocked" in line]
    assert line == "  22:13:20.001000  1:1  blocked by 3 others, last by 1:0 at C1 until 22:13:22.039999"


def test_the_trace_shows_all_findings_with_cause_and_evidence() -> None:
    trace = life_of(KEY_SHARED, "a1", "+C1 +C2 a1>C1 a1!", 0)
    first, *more = trace.explain_findings("sub")
    assert first.startswith("  WRONG_OWNER (invalid): 1:0 of key ")
    assert more[0].startswith("    cause: epoch 2: C2 joined at ")
    assert more[1].startswith("    evidence: 1:0 at C1 (")
    again = [*life_of(KEY_SHARED, "a1", "+C1 a1>C1 a1? a1>C1*1 a1!", 0).explain_findings("sub")]
    assert again[0].startswith("  REDELIVERED (allowed): ")


def test_the_trace_names_the_partition_of_a_message() -> None:
    lines = [*life_of(KEY_SHARED, "a1", "+C1 a1>C1 a1!", 0, partition=3).format_lines()]
    assert [line.split()[1] for line in lines] == ["3/1:0", "epoch", "3/1:0", "3/1:0"]
