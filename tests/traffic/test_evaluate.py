"""The pass over a traffic profile, held to its slow definition; and profiles in parts, which add up to the whole."""

from functools import reduce
from operator import add

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subreplay.model.words import KeyWords
from subreplay.policies import make
from subreplay.traffic.evaluate import Evaluator
from subreplay.traffic.evaluation import Evaluation, Extent
from subreplay.traffic.measuring import Profiler
from subreplay.traffic.profile import joined
from subreplay.whatif.scenario import plan
from tests.support import assigned
from tests.support.every_policy import EVERY
from tests.support.published import logs, members, together, told

PROFILER = Profiler(KeyWords.of(False, "a secret"))
KAFKA = [pytest.param(make(name, "kafka-4.0"), id=name) for name in ("kafka.range", "kafka.cooperative_sticky")]
WIDTH = 30


COUNTS = ("messages", "bytes", "keys", "messages_moved", "keys_moved")
DIMENSIONS = {
    "window": ("window", "consumer"),
    "consumer": ("consumer",),
    "scenario": (),
    "move": ("topic", "partition", "epoch", "before", "consumer"),
}


def levels(found: Evaluation) -> dict[str, assigned.Sums]:
    """The rows of an evaluation as ``assigned`` states them."""
    told = {level: {} for level in DIMENSIONS}
    for row in found.rows("s"):
        counts = COUNTS[: 3 if row["level"] == "move" else 5]
        told[row["level"]][tuple(row[d] for d in DIMENSIONS[row["level"]])] = tuple(row[c] for c in counts)
    return told


@pytest.mark.parametrize("policy", [*EVERY, *KAFKA])
@settings(max_examples=12)
@given(log=logs, told=told, together=together, blocks=st.sampled_from([100, 7]))
def test_an_evaluation_is_the_sum_over_messages_one_by_one(policy, log, told, together, blocks):
    timelines = plan("s", policy, members(told, together)).timelines
    profile = joined(list(PROFILER.profiles(log.to_batches(), blocks)))
    expected = assigned.assigned(log, policy, timelines, profile.extent[0])
    evaluator = Evaluator(profile, Extent(*profile.extent, WIDTH))
    for every in (False, True):
        found = evaluator.evaluate(policy, timelines, moves=every)
        assert levels(found) == assigned.summed(expected, WIDTH) | {"move": assigned.moves(expected, every)}


@pytest.mark.parametrize("policy", EVERY[:2])
@settings(max_examples=12)
@given(log=logs, told=told, parts=st.integers(1, 4))
def test_parts_without_a_common_key_add_up(policy, log, told, parts):
    timelines = plan("s", policy, members(told, 1)).timelines
    profile, extent = PROFILER.profile(log), Extent(0, 130, WIDTH)
    found = [Evaluator(profile.part(i, parts), extent).evaluate(policy, timelines, moves=True) for i in range(parts)]
    whole = Evaluator(profile, extent).evaluate(policy, timelines, moves=True)
    assert levels(reduce(add, found)) == levels(whole)
