"""Every recorded script of the real dispatchers: what each consumer was sent after each step, and the state."""

import gzip
import json
from pathlib import Path

import pytest

from subreplay.conformance.golden.pulsar import PROFILE_OF
from subreplay.conformance.golden.pulsar_dispatch import dispatch_key_shared_case, dispatch_shared_case

GOLDEN = Path(__file__).parents[1] / "data" / "golden" / "pulsar"
KINDS = {"dispatch_shared": dispatch_shared_case, "dispatch_key_shared": dispatch_key_shared_case}


def cases(kind, version):
    with gzip.open(GOLDEN / version / f"{kind}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.mark.long
@pytest.mark.parametrize("version", PROFILE_OF)
@pytest.mark.parametrize("kind", KINDS)
def test_every_step_is_as_the_broker_did_it(kind, version):
    scripts = cases(kind, version)
    differences = [(case["seq"], KINDS[kind](case, PROFILE_OF[version])) for case in scripts]

    assert len(scripts) >= 100
    assert [(seq, difference) for seq, difference in differences if difference] == []


def test_a_wrong_expectation_is_told_with_both_values():
    case = cases("dispatch_shared", "4.0.8")[0]
    case["events"][2]["delivered"]["0"][0] = [7, 7]

    assert dispatch_shared_case(case, "pulsar-4.0").startswith("event 2 (add 0), delivered: expected {'0': [[7, 7], ")


@pytest.mark.long
def test_a_profile_is_not_another_one():
    scripts = cases("dispatch_key_shared", "4.0.8")
    assert sum(dispatch_key_shared_case(case, "pulsar-4.2") is not None for case in scripts) > 0
