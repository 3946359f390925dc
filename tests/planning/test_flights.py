"""The story of docs/guides/planning-example.md on real skew, which says exactly these figures."""

from __future__ import annotations

from typing import Any

import pytest

from subreplay.config.run import parse
from subreplay.pipeline.plan_questions import PlanInput, answer
from subreplay.reports.assemble.plan_views import build_plan_view
from subreplay.whatif.planning.questions.answer import PlanAnswer, Question
from tests.support.flights import build_profile
from tests.support.planning import refuse_fit


def ask(question: Question, key: str, **plan: Any) -> PlanAnswer:
    traffic = build_profile(key)
    run = {
        "subscription": {"policy": "pulsar.key_shared.consistent_hash"},
        "plan": {"window": "1h", "service": {"model": "fixed", "time": "60s"}} | plan,
    }
    return answer(PlanInput(parse(run, "here"), traffic, dict.fromkeys(traffic.scopes, ()), refuse_fit), question)


def needed(found: PlanAnswer) -> dict[str, int]:
    return {one.policy.rsplit(".", 1)[1]: one.consumers for one in found.figures.policies}


@pytest.mark.long
def test_with_planes_as_keys_three_consumers_are_enough() -> None:
    found = ask("consumers", "tailnum", sizing={"windows": 0.99})
    assert needed(found) == {"consistent_hash": 3, "auto_split": 4, "failover": 0, "shared": 2}
    assert (found.best, found.bound) == ("3 under pulsar.key_shared.consistent_hash", 2)


@pytest.mark.long
def test_with_carriers_as_keys_the_hottest_key_limits_scaling_at_five_consumers() -> None:
    found = ask("consumers", "carrier", sizing={"p99": "5m"})
    assert needed(found) == {"consistent_hash": 33, "auto_split": 12, "failover": 0, "shared": 3}
    assert (found.figures.ceiling.consumers, round(found.figures.ceiling.share, 3)) == (5, 0.161)


@pytest.mark.long
def test_planned_ranges_for_carriers_are_a_third_better_than_equal_ones() -> None:
    found = ask("ranges", "carrier", service=None, consumers=3)
    assert found.runner_up is not None
    assert (found.value, found.runner_up.value, round(found.bound or 0, 1)) == (38, 62, 31.3)
    assert found.figures.ranges == ((0, 8144), (8145, 20982), (20983, 65535))
    assert build_plan_view(found).fragile[0].startswith("Tested on 28 days that the plan was not made from")


def test_more_partitions_stop_helping_carriers() -> None:
    found = ask("partitions", "carrier", service=None, consumers=8)
    assert [(one.partitions, one.worst, one.empty) for one in found.figures] == [
        (1, 94, 0),
        (5, 64, 0),
        (10, 43, 4),
        (24, 42, 11),
    ]
