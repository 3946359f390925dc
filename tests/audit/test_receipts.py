"""Deliveries of which only receipts are recorded: what was published after its consumer had left was not on its way."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from subreplay.audit.codes import Code
from subreplay.audit.explain.causes import Causes
from subreplay.audit.needs import Need
from subreplay.semantics.policies import make_policy
from subreplay.semantics.timelines.group_timeline import drop_unused_rebalance_delay
from tests.support.history import START, STEP, History, findings_of, history
from tests.support.pure import audit_by, judge_of

SHARED, RANGE = (
    make_policy("pulsar.shared", "pulsar-4.0"),
    make_policy("kafka.range", "kafka-4.0", initial_rebalance_delay_us=0),
)
LEFT = "+C1 +C2 a1>C1 -C1 a2>C2 a3>C1"  # C1 leaves at step 103


def receipts(tables: History, published: dict[int, float]) -> History:
    """The same where deliveries are known by their receipts, and entries were published at these steps."""
    delivered = tables["deliveries"]
    rows = [r | {"delivered_at": None, "received_at": r["delivered_at"]} for r in delivered.to_pylist()]
    at = tables["messages"]["publish_time"].cast(pa.int64()).to_pylist()
    at = [START + round(published[i] * STEP) if i in published else time for i, time in enumerate(at)]
    index = tables["messages"].schema.get_field_index("publish_time")
    field = tables["messages"].schema.field(index)
    messages = tables["messages"].set_column(index, field, pa.array(at).cast(field.type))
    return tables | {"messages": messages, "deliveries": pa.Table.from_pylist(rows, delivered.schema)}


@pytest.mark.parametrize("policy", [SHARED, RANGE], ids=["shared", "group"])
@pytest.mark.parametrize(("published", "found"), [(103.5, ["NOT_CONNECTED"]), (102.5, [])], ids=["after", "before"])
def test_a_consumer_that_goes_on_after_its_leave_is_found_by_what_was_published_since(policy, published, found):
    tables = receipts(history("a1 a2 a3", LEFT), {2: published})
    assert [code for code, where in findings_of(policy, tables) if code.isupper() and where == (2, -1)] == found


def test_a_receipt_of_a_consumer_that_came_back_in_between_is_late_and_no_more():
    tables = receipts(history("a1 a2", "+C1 a1>C1 -C1 +C1 -C1 a2>C1"), {1: 102.5})
    assert not [code for code, _ in findings_of(SHARED, tables) if code.isupper()]


def test_no_change_after_a_receipt_explains_it():
    judge = judge_of(SHARED, tables := receipts(history("a1", "+C1 +C2 a1>C1 a1>C2 -C2"), {}))
    rows = audit_by(judge, tables)
    causes = Causes(judge)
    assert (
        causes.find_causes(rows, Code.REDELIVERED, causes.number_epochs(rows)).to_pylist()
        == ["unexplained"] * rows.num_rows
    )


def test_a_message_that_never_came_is_counted_where_nothing_else_can_be_decided():
    tables = history("a1 a2 a3", "+C1 a1>C1 a1! a3>C1 a3!")
    for lacking, code in ((frozenset[Need](), Code.LOST), (frozenset({Need.EXACT_MEMBERSHIP}), Code.UNSEEN)):
        rows = audit_by(replace(judge_of(RANGE, tables), lacking=lacking), tables).to_pylist()
        assert [row["codes"] & (Code.LOST.bit | Code.UNSEEN.bit) for row in rows if not row["delivered"]] == [code.bit]


@pytest.mark.parametrize(("served", "delay"), [(5, 0), (2_999_999_999, 0), (3_000_000_000, 3_000_000), (-1, 3_000_000)])
def test_members_that_are_served_are_there(served, delay):
    group = make_policy("kafka.range", "kafka-4.0")
    assert drop_unused_rebalance_delay(group, [7, 0], [served, 9_000_000_000]).initial_rebalance_delay_us == delay
    assert drop_unused_rebalance_delay(SHARED, [0], [1]) is SHARED
