"""A log of a Kafka group that lies is caught: a fault in a recording is found with the code that it is."""

from __future__ import annotations

import pytest

from tests.support.group_faults import FAULTS, trial
from tests.support.groups import RECORDED


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_found(fault, tmp_path):
    one = trial(fault, RECORDED, 0, tmp_path)
    assert one.caught, one


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_every_trial_of_a_fault_is_found(fault, tmp_path):
    missed = [one for seed in range(1, 20) if not (one := trial(fault, RECORDED, seed, tmp_path)).caught]
    assert missed == []
