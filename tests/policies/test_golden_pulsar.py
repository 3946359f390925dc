"""Every golden vector of the three broker versions, replayed through the public API."""

import gzip
import json
from pathlib import Path

import pytest

from subreplay.conformance.golden.pulsar import CASES, PROFILE_OF

GOLDEN = Path(__file__).parents[1] / "data" / "golden" / "pulsar"


@pytest.mark.parametrize("version", PROFILE_OF)
@pytest.mark.parametrize("kind", CASES)
def test_every_case_is_as_the_broker_did_it(kind, version):
    with gzip.open(GOLDEN / version / f"{kind}.jsonl.gz", "rt", encoding="utf-8") as lines:
        cases = [json.loads(line) for line in lines]

    differences = [(case.get("seq"), CASES[kind](case, PROFILE_OF[version])) for case in cases]

    assert len(cases) >= 100
    assert [(seq, difference) for seq, difference in differences if difference] == []


def test_a_wrong_expectation_is_told_with_both_values():
    with gzip.open(GOLDEN / "4.0.8" / "failover.jsonl.gz", "rt", encoding="utf-8") as lines:
        case = json.loads(next(lines))
    case["events"][0]["active"] = 99

    assert CASES["failover"](case, "pulsar-4.0") == "event 0 (add 0), active: expected 99, actual 0"
