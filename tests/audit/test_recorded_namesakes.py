"""A real broker with two consumers called twin on two connections, the second one from the third second on."""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from random import Random

import pytest

from tests.audit.rules.test_faults import found
from tests.support import faults
from tests.support.faults import Capture
from tests.support.pure import audit_by, judge_of

LOGGED = "../recordings-with-logs"  # beside the recordings without a log
L11 = f"{LOGGED}/4.0.8/l11_key_shared_same_name"


@pytest.fixture
def capture() -> Capture:
    return Capture.load(L11)


def twins(capture: Capture) -> list[str]:
    joins = (m for m in capture.membership if m["event"] == "join" and m["consumer"] == "twin")
    return [m["instance"] for m in sorted(joins, key=itemgetter("at"))]


def test_their_instances_are_known_and_every_promise_was_kept(capture: Capture) -> None:
    assert len(set(twins(capture))) == 3
    assert {d["instance"] for d in capture.deliveries if d["consumer"] == "twin"} == set(twins(capture))
    assert not found(capture).failing


@pytest.mark.parametrize("version", ["4.0.8", "4.2.4"])
@pytest.mark.parametrize("scenario", ["l07_failover_nonpartitioned", "l11_key_shared_same_name"])
def test_untouched_recordings_of_connections_that_close_keep_every_promise(version: str, scenario: str) -> None:
    assert not found(Capture.load(f"{LOGGED}/{version}/{scenario}")).failing


def test_each_is_called_otherwise_and_has_its_own_share(capture: Capture) -> None:
    rows = audit_by(judge_of(capture.policy, capture.tables), capture.tables)
    called = dict(zip(rows["consumer"].to_pylist(), rows["expected"].to_pylist(), strict=True))
    assert called == {"twin": "twin", "twin (2)": "twin (2)", "c1": "c1"}
    first, second, third = twins(capture)
    served = Counter(d["instance"] for d in capture.deliveries if d["consumer"] == "twin")
    shown = Counter(rows["consumer"].to_pylist())
    assert (shown["twin"], shown["twin (2)"]) == (served[first], served[second] + served[third])


def test_consumers_with_equal_names_and_no_instances_are_judged_together_without_findings(capture: Capture) -> None:
    for row in capture.deliveries:
        row["instance"] = None
    assert not found(capture).failing
    rows = audit_by(judge_of(capture.policy, capture.tables), capture.tables)
    assert set(rows["consumer"].to_pylist()) == {"twin", "c1"}


@pytest.mark.parametrize("seed", range(5))
def test_a_delivery_at_the_other_of_its_name_is_at_the_wrong_owner(capture: Capture, seed: int) -> None:
    first, second, _ = twins(capture)
    steady = [d for d in capture.once if d["instance"] == second and capture.steady(faults.at(d))]
    moved = Random(seed).choice(steady)
    moved["instance"] = first
    assert found(capture).failing == {"WRONG_OWNER": [faults.position_of(moved)]}


def test_one_of_them_that_never_joined_is_not_connected(capture: Capture) -> None:
    _, second, _ = twins(capture)
    capture.membership = [m for m in capture.membership if m["instance"] != second]
    failing = found(capture).failing
    assert set(failing["NOT_CONNECTED"]) == {
        faults.position_of(d) for d in capture.deliveries if d["instance"] == second
    }
