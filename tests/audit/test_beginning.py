"""Data that begin in mid-life: what their beginning explains is no violation, and all else is still found."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import get_args

import pyarrow as pa
import pytest

from subreplay.audit.codes import Code, Exemption, find_exemption
from tests.audit.rules.test_faults import found
from tests.support import faults, further_faults, recordings
from tests.support.cuts import Messages, cut, some_moment
from tests.support.faults import S1, S2, S3, S5, S7, S9, Capture, Expected
from tests.support.history import auto_split, findings, history
from tests.support.pure import audit, judge_of

CLEAN = [name for name in recordings.ALL if "s1f" not in name]  # every batch of s1f mixes keys


@pytest.mark.parametrize("messages", get_args(Messages))
@pytest.mark.parametrize("joins", [True, False], ids=["joins kept", "joins cut"])
@pytest.mark.parametrize("name", CLEAN)
def test_a_recording_without_its_beginning_breaks_no_guarantee(name: str, joins: bool, messages: Messages) -> None:
    for acks in (True, False):
        capture = Capture.load(name)
        cut(capture, some_moment(capture, Random(f"{name}/{messages}/{joins}")), messages, joins, acks)
        assert not found(capture).failing


INSIDE = {
    faults.swap_two_deliveries_of_a_key: (S1, S2, S5),
    faults.move_a_delivery: (S1, S3, S5),
    faults.skip_a_message: (S1, S7, S9),
    faults.deliver_again_after_the_acknowledgement: (S1, S5, S7),
    further_faults.come_late: (S1, S2),
    further_faults.deliver_to_an_unknown_consumer: (S1,),
}


@pytest.mark.parametrize("messages", get_args(Messages))
@pytest.mark.parametrize(
    ("fault", "scenario"),
    [(fault, scenario) for fault, scenarios in INSIDE.items() for scenario in scenarios],
    ids=lambda v: getattr(v, "__name__", v),
)
def test_a_fault_well_inside_of_cut_data_is_found(
    fault: Callable[..., Expected], scenario: str, messages: Messages
) -> None:
    capture = Capture.load(f"4.0.8/{scenario}")
    rng = Random(f"{fault.__name__}/{scenario}")
    moment = min(some_moment(capture, rng), some_moment(capture, rng))
    cut(capture, moment, messages, joins=True, acks=False)
    settled = {
        faults.position_of(m) for m in capture.messages if m["publish_time"] * 1000 < moment + faults.SECOND // 10
    }
    capture.__dict__["once"] = [d for d in capture.once if faults.position_of(d) not in settled]
    expected = fault(capture, rng)
    failing = found(capture).failing
    assert expected.evidence in failing[expected.code]
    assert set(failing) <= {expected.code} | expected.implied


LOG, SINCE = "a1 a2", "a2>C1 a2! ~20 -C1 +C2 a1>C2 a1!"


def test_a_message_that_may_have_been_delivered_earlier_is_out_of_order_but_exempt() -> None:
    """C1 was there long before the first recorded delivery; what it held comes again once it has left."""
    tables = history(LOG, f"+C1 ~50 {SINCE}")
    assert judge_of(auto_split(), tables).begins
    (found,) = (row for row in audit(auto_split(), tables).to_pylist() if row["codes"] & Code.KEY_ORDER.bit)
    assert find_exemption(Code.KEY_ORDER, found["excuses"]) is Exemption.DELIVERED_EARLIER


def test_nothing_came_before_the_first_join() -> None:
    assert findings(auto_split(), LOG, f"+C1 {SINCE}") == ["KEY_ORDER a1"]


@pytest.mark.parametrize(
    ("ledger", "exemption"), [(6, Exemption.STORED_EARLIER), (7, Exemption.NONE), (8, Exemption.NONE)]
)
def test_a_message_of_a_ledger_before_the_first_stored_one_was_deleted_with_it(
    ledger: int, exemption: Exemption
) -> None:
    """A broker deletes whole ledgers, as after an unload; a message that is missing within a ledger, or behind, is not
    explained by that."""
    tables = history("a1 a2", "+C1 a1>C1 a1! a2>C1 a2!")
    rows = tables["deliveries"].to_pylist()
    stored = tables["messages"].to_pylist()[0]["ledger"]
    rows[1] |= {"ledger": stored - 7 + ledger, "entry": 9}
    tables["deliveries"] = pa.Table.from_pylist(rows, tables["deliveries"].schema)
    (unknown,) = (row for row in audit(auto_split(), tables).to_pylist() if row["codes"] & Code.UNKNOWN_MESSAGE.bit)
    assert find_exemption(Code.UNKNOWN_MESSAGE, unknown["excuses"]) is exemption
