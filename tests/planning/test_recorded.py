"""Plans against real brokers: who a plan says has each key, and what it says moves, is what the broker did."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc
import pytest

from subreplay.hashing.murmur3 import murmur3_32_array
from subreplay.rows.model.columns import ints
from subreplay.rows.model.entry_keys import outer_sticky_keys
from subreplay.rows.model.rows import Scope
from subreplay.semantics.policies import make_policy
from subreplay.whatif.planning.capacity import fit_service
from subreplay.whatif.planning.growing_membership import build_key_membership
from subreplay.whatif.planning.loads import WorkLoads
from subreplay.whatif.planning.policy_comparison import measure_handed_over
from tests.support.pure import log_of
from tests.support.recordings import ROOT, ingested

PROFILES = {"3.2.3": "pulsar-3.2", "4.0.8": "pulsar-4.0"}
SCENARIOS = ("s1_key_shared_autosplit", "s2_key_shared_autosplit_other_selector")


class Phase(NamedTuple):
    """What changed, and from when until when nothing else did."""

    leaving: tuple[int, ...]
    joining: tuple[int, ...]
    begin: datetime
    end: datetime


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("version", PROFILES)
def test_owners_shares_and_moves_of_a_plan_are_those_of_the_broker(version: str, scenario: str) -> None:
    found = ingested(ROOT / version / scenario)
    tables, policy = found.tables, make_policy(found.run["subscription"]["policy"], PROFILES[version])
    story = tables["membership"].to_pylist()
    rows = log_of(tables["messages"], tables["deliveries"])
    messages, deliveries = (rows.filter(pc.equal(rows["kind"], kind)) for kind in (0, 1))
    hashes, thing = np.unique(murmur3_32_array(outer_sticky_keys(messages, policy.profile)), return_inverse=True)
    published = {
        position: (int(key), int(at))
        for position, key, at in zip(positions(messages), thing, ints(messages, "at"), strict=True)
    }
    members = build_key_membership(policy, hashes, Scope(story[0]["topic"]), lambda number: f"c{number + 1}")
    before = None
    for phase in (
        Phase((), (0, 1, 2, 3), story[3]["at"], story[4]["since"]),
        Phase((0,), (), story[4]["at"], story[5]["since"]),
        Phase((), (4,), story[5]["at"], story[6]["since"]),
    ):
        for number in phase.joining:
            members.change_members((), (number,))
        members.change_members(phase.leaving, ())
        begin, end = (round(at.timestamp() * 1e9) for at in (phase.begin, phase.end))
        served = [
            (*published[position], int(name[1:]) - 1)
            for position, at, again, name in zip(
                positions(deliveries), ints(deliveries, "at"), ints(deliveries, "redelivery_count", 0),
                deliveries["consumer"].to_pylist(), strict=True,
            )
            if begin < at < end and not again and begin < published[position][1]
        ]  # fmt: skip
        keys, at, consumer = np.array(served, np.int64).T
        owners = members.find_owners()
        assert len(keys) > 200
        assert (owners[keys] == consumer).all()
        loads = WorkLoads.from_messages(keys, at, np.ones(len(keys), np.int64), len(hashes), 10**9)
        assert loads.sum_by_owner(owners, 5).sum(axis=1).tolist() == np.bincount(consumer, minlength=5).tolist()
        if before is not None:
            passed = np.array([one != two for one, two in zip(before[keys], consumer, strict=True)])
            assert measure_handed_over(loads, before, owners) == pytest.approx(passed.mean())
        before = owners


def positions(rows):  # type: ignore[no-untyped-def]
    return list(zip(*(ints(rows, name).tolist() for name in ("ledger", "entry", "batch_index")), strict=True))


def test_a_service_model_is_fitted_from_recorded_receipts_and_acknowledgements() -> None:
    tables = ingested(ROOT / "4.0.8" / SCENARIOS[0]).tables
    rows = log_of(tables["messages"], tables["deliveries"])
    served = rows.filter(pc.equal(rows["kind"], 1))
    size = np.full(served.num_rows, 100)
    model = fit_service(ints(served, "received_at"), ints(served, "acked_at"), size, served["consumer"].to_pylist())
    times = ints(served, "acked_at") - ints(served, "received_at")
    assert model.median == pytest.approx(np.median(times[(times >= 0) & (ints(served, "acked_at") > 0)]), rel=0.05)
    assert {name for name, _ in model.by_consumer} == {f"c{number}" for number in range(1, 6)}
    assert model.off < 0.2
