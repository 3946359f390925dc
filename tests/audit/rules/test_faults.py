"""Real recordings with one fault each: the right code, the right witness, and nothing else red."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from subreplay.adapters import ADAPTERS
from subreplay.audit.codes import Code, drop_exempt
from subreplay.audit.findings import Finding
from subreplay.audit.judge import Judge
from subreplay.audit.rules.dead_letters import find_disorder, find_incomplete
from subreplay.audit.rules.partitions import find_keys_in_two_partitions
from subreplay.audit.rules.ranges import find_range_findings
from subreplay.audit.terms import Terms
from subreplay.rows.model.rows import RuleStatus
from subreplay.semantics.policies import make_policy
from tests.support import faults, further_faults, recordings
from tests.support.faults import FAULTS, S1, S1B, S1E, S2, S3, S7, S7B, Capture, Expected, first_messages
from tests.support.further_faults import FURTHER
from tests.support.pure import audit_by, judge_of
from tests.support.recordings import Recording

# by version of the broker that was recorded; make slow runs the older one
MARKS = {"3.2.3": (pytest.mark.slow,), "4.0.8": ()}
Found = Mapping[str, list[str]]


@dataclass(frozen=True)
class Findings:
    """Messages by code: those whose finding fails, and those where it is allowed or excused."""

    failing: Found
    allowed: Found
    rule_statuses: Mapping[Code, RuleStatus]


def found_in(judge: Judge, tables: Mapping[str, pa.Table], others: Iterable[Finding] = ()) -> Findings:
    """The findings about deliveries, and ``others``."""
    rows = audit_by(judge, tables, 10_000)
    fails = drop_exempt(rows["codes"].to_numpy(), rows["excuses"].to_numpy()) & judge.promised
    of_rows = {"failing": fails, "allowed": rows["codes"].to_numpy() & ~fails}
    found: dict[str, dict[str, list[str]]] = {"failing": defaultdict(list), "allowed": defaultdict(list)}
    for kind, bits in of_rows.items():
        there = int(np.bitwise_or.reduce(bits))
        for code in (code for code in Code if there & code.bit):
            for row in rows.filter(bits & code.bit != 0).select(["ledger", "entry"]).to_pylist():
                found[kind][code.name].append(f"{row['ledger']}:{row['entry']}")
    for finding in others:
        fine = finding.exemption or judge.rule_statuses[finding.code] is RuleStatus.ALLOWED
        if judge.rule_statuses[finding.code].is_evaluated:
            words = f"{finding.position[0]}:{finding.position[1]}"
            found["allowed" if fine else "failing"][finding.code.name].append(words)
    return Findings(found["failing"], found["allowed"], judge.rule_statuses)


def found(capture: Capture) -> Findings:
    """The findings of a capture, those about whole keys, ranges and dead letters too."""
    tables = capture.tables
    judge = judge_of(capture.policy, tables, capture.terms)
    others = [
        *find_keys_in_two_partitions(first_messages(capture)),
        *(finding for d in judge.dispatchers.values() for finding in find_range_findings(d.timeline)),
        *find_incomplete(faults.exhausted(capture).to_batches(), capture.terms.max_redeliveries or 0),
        *find_disorder(faults.letters(capture).to_batches()),
    ]
    return found_in(judge, tables, others)


def failing_in(folder: Path) -> Found:
    """The failing findings of a recording as it is in a folder."""
    ingested = ADAPTERS["pulsar-recording"](folder)
    reported = ingested.run["subscription"]
    policy = make_policy(reported["policy"], reported["profile"], **reported.get("options", {}))
    return found_in(judge_of(policy, ingested.tables), ingested.tables).failing


@pytest.mark.parametrize("name", recordings.ALL)
def test_an_untouched_recording_keeps_every_promise(name: str) -> None:
    failing = found(Capture.load(name)).failing
    if "s1f" in name:  # default batching under Key_Shared: every batch mixes keys
        assert {code: len(messages) for code, messages in failing.items()} == {"MIXED_BATCH": 118}
    else:
        assert not failing


TRIALS = [
    pytest.param(fault, scenario, version, seed, marks=MARKS[version])
    for faults_of in (FAULTS, FURTHER)
    for fault, scenarios in faults_of.items()
    for scenario in scenarios
    for version in MARKS
    for seed in range(2 if faults_of is FAULTS and scenario == scenarios[0] else 1)
]
OF_SEVERAL = {  # messages, each with a finding of its own
    faults.serve_a_standby_too,
    faults.jump_over_some_messages,
    faults.forget_a_join,
    faults.exchange_sequence_ids,
    further_faults.exchange_two_consumers,
    further_faults.exchange_two_messages_in_the_log,
    further_faults.starve_a_consumer,
    further_faults.starve_a_partition,
}
assert len(FAULTS) >= 20
assert len(TRIALS) >= 200


@pytest.mark.parametrize(
    ("fault", "scenario", "version", "seed"), TRIALS, ids=lambda v: getattr(v, "__name__", str(v)).split("_key")[0]
)
def test_a_fault_is_found_with_its_evidence_and_nothing_else(
    fault: Callable[..., Expected], scenario: str, version: str, seed: int
) -> None:
    capture = Capture.load(f"{version}/{scenario}")
    expected = fault(capture, random.Random(f"{fault.__name__}/{scenario}/{seed}"))
    reported = found(capture)
    allowed = expected.exempt or reported.rule_statuses[Code[expected.code]] is RuleStatus.ALLOWED
    right = (reported.allowed if allowed else reported.failing)[expected.code]
    assert expected.evidence in right if expected.evidence else right
    if not allowed and fault not in OF_SEVERAL and expected.evidence:
        assert len(right) == 1
    assert set(reported.failing) <= {expected.code} | expected.implied


@pytest.mark.parametrize("version", [pytest.param(version, marks=marks) for version, marks in MARKS.items()])
@pytest.mark.parametrize(
    ("fault", "scenario"),
    [
        (recordings.swap_two_deliveries_of_a_key, S1),
        (recordings.move_a_delivery, S1E),
        (recordings.remove_a_delivery, S1E),
        (recordings.remove_a_delivery_and_its_ack, S7),
        (recordings.deliver_again_after_ack, S1E),
        (recordings.ack_after_the_next_owner, S2),
        (recordings.remove_a_join, S3),
        (recordings.remove_a_leave, S1),
    ],
    ids=lambda v: getattr(v, "__name__", v),
)
def test_a_fault_in_the_broker_s_own_events_is_found_too(
    fault: Callable[..., tuple[str, str]], scenario: str, version: str, tmp_path: Path
) -> None:
    recording = Recording.load(f"{version}/{scenario}")
    code, evidence = fault(recording, random.Random(f"{fault.__name__}/{scenario}"))
    failing = failing_in(recording.save(tmp_path / "recording"))
    assert set(failing) - {"BEFORE_PREDECESSOR_ACK"} == {code}
    assert not evidence or evidence in failing[code]


def test_a_removed_leave_of_a_sticky_consumer_shows_that_its_successor_could_not_join() -> None:
    capture = Capture.load(f"4.0.8/{S3}")
    faults.forget_a_leave(capture, random.Random(1))
    assert set(found(capture).failing) <= {"NOT_CONNECTED", "WRONG_OWNER"}
    (dispatcher,) = judge_of(capture.policy, capture.tables).dispatchers.values()
    assert Code.STICKY_OVERLAP in {finding.code for finding in find_range_findings(dispatcher.timeline)}


@pytest.mark.parametrize("version", [pytest.param(version, marks=marks) for version, marks in MARKS.items()])
def test_slots_that_a_sticky_consumer_no_longer_asks_for_are_a_gap(version: str) -> None:
    capture = Capture.load(f"{version}/{S3}")
    faults.ask_for_fewer_slots(capture, random.Random(1))
    (dispatcher,) = judge_of(capture.policy, capture.tables).dispatchers.values()
    assert Code.STICKY_GAP in {finding.code for finding in find_range_findings(dispatcher.timeline)}


@pytest.mark.parametrize(("version", "at_least"), [("3.2.3", 341), ("4.0.8", 157)])
def test_messages_blocked_by_the_stuck_consumer_are_found_and_nothing_else_fails(version: str, at_least: int) -> None:
    capture = Capture.load(f"{version}/{S1B}")
    capture.terms = Terms(stuck_after=100_000_000)
    failing = found(capture).failing
    assert len(failing.pop(Code.STUCK.name)) >= at_least  # counted on the recording by hand
    assert not failing


@pytest.mark.parametrize("version", [pytest.param(version, marks=marks) for version, marks in MARKS.items()])
def test_every_message_that_exceeded_its_redeliveries_is_on_the_dead_letter_topic(version: str) -> None:
    capture = Capture.load(f"{version}/{S7B}")
    assert capture.terms.max_redeliveries == 3
    assert len(capture.letters) >= 200
    assert faults.exhausted(capture).num_rows == 0
    assert Code.DLQ_INCOMPLETE.name not in found(capture).allowed


@pytest.mark.long
def test_a_delivery_that_only_the_client_places_elsewhere_is_found(tmp_path: Path) -> None:
    recording = Recording.load(f"4.0.8/{S1}")
    receipt = recording.files["deliveries"][500]
    receipt["consumer"] = "c2" if receipt["consumer"] == "c1" else "c1"
    failing = failing_in(recording.save(tmp_path / "recording"))
    assert failing == {Code.WRONG_OWNER.name: [f"{receipt['ledger']}:{receipt['entry']}"]}


@pytest.mark.long
def test_an_acknowledged_message_that_no_application_received_is_lost(tmp_path: Path) -> None:
    recording = Recording.load(f"4.0.8/{S1}")
    receipt = recording.files["deliveries"].pop(700)
    failing = failing_in(recording.save(tmp_path / "recording"))
    assert failing == {"LOST": [f"{receipt['ledger']}:{receipt['entry']}"]}


@pytest.mark.long
def test_a_receipt_long_after_the_acknowledgement_is_a_duplicate(tmp_path: Path) -> None:
    recording = Recording.load(f"4.0.8/{S1}")
    receipt = dict(recording.files["deliveries"][100])
    receipt |= {"recv_ns": receipt["ack_ns"] + 200_000_000, "ack_ns": receipt["ack_ns"] + 201_000_000}
    recording.files["deliveries"].append(receipt)
    failing = failing_in(recording.save(tmp_path / "recording"))
    assert failing == {"DUP_DELIVERY": [f"{receipt['ledger']}:{receipt['entry']}"]}
