"""Recordings in which the cursor was reset, or the topic unloaded, under a running load."""

from dataclasses import replace
from pathlib import Path

import pytest

from subreplay.conformance.fidelity.dispatch_comparison import compare_dispatches
from subreplay.conformance.fidelity.dispatch_reenactment import reenact_dispatcher
from subreplay.conformance.fidelity.fidelity_measure import measure_fidelity
from subreplay.conformance.fidelity.recorded_dispatchers import find_recorded_profile, read_recorded_dispatchers
from subreplay.conformance.fidelity.replay_inputs import UNLOADED, build_inputs

ROOT = Path(__file__).parents[1] / "data" / "recordings-incidents" / "4.2.4"
RESET, UNLOAD = "i7_reset_cursor_admin", "i9_unload_with_unacked"


@pytest.mark.parametrize("name", [RESET, UNLOAD])
def test_every_entry_goes_to_the_consumer_it_went_to(name):
    result = measure_fidelity(ROOT / name)

    assert result.compared >= 1000
    assert (result.same_consumer, result.same_count, result.missed_entries) == (100, 100, ())


@pytest.mark.parametrize("name", [RESET, UNLOAD])
def test_the_log_says_where_the_cursor_went_back_to(name):
    (recorded,) = read_recorded_dispatchers(ROOT / name, find_recorded_profile(ROOT / name))
    taken = build_inputs(recorded)
    ((at, entry),) = taken.resets
    unaware = replace(taken, resets=())

    found = compare_dispatches(recorded, unaware, reenact_dispatcher(recorded, unaware))

    assert at in taken.dispatched.at + 1
    assert (entry == UNLOADED) == (name == UNLOAD)
    assert found.same_consumer < found.compared
