"""Real recordings with one fault each: the right code, the right witness, and nothing else red."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from subreplay.adapters import ADAPTERS
from subreplay.model import Standing
from subreplay.policies import make
from subreplay.rules.codes import Code, Excuse, unexcused
from subreplay.rules.dead_letters import dead_letters
from subreplay.rules.partitions import keys_in_two_partitions
from subreplay.rules.ranges import sticky_ranges
from subreplay.rules.terms import Terms
from tests.support import faults, recordings
from tests.support.faults import FAULTS, S1, S1E, S2, S3, S7, Capture, Expected, first_messages
from tests.support.pure import audit_by, judge_of
from tests.support.recordings import Recording

VERSIONS = ("3.2.3", "4.0.8")
Found = Mapping[str, list[str]]


def failing_of(policy: Any, tables: Any, terms: Terms) -> Found:
    """The failing findings about deliveries: messages by code."""
    judge = judge_of(policy, tables, terms)
    rows = audit_by(judge, tables, 10_000)
    bits = unexcused(rows["codes"].to_numpy(), rows["excuses"].to_numpy()) & judge.promised
    found: dict[str, list[str]] = defaultdict(list)
    for code in Code:
        of_code = rows.filter(bits & code.bit != 0).select(["ledger", "entry"])
        for row in of_code.to_pylist():
            found[code.name].append(f"{row['ledger']}:{row['entry']}")
    return found


def failing(capture: Capture) -> Found:
    """The failing findings of a capture, those about whole keys too."""
    found = dict(failing_of(capture.policy, capture.tables, capture.terms))
    for finding in keys_in_two_partitions(first_messages(capture)):
        found.setdefault(finding.code.name, []).append(f"{finding.position[0]}:{finding.position[1]}")
    return found


def failing_in(folder: Path) -> Found:
    """The failing findings of a recording as it is in a folder."""
    ingested = ADAPTERS["pulsar-recording"](folder)
    told = ingested.run["subscription"]
    return failing_of(make(told["policy"], told["profile"], **told.get("options", {})), ingested.tables, Terms())


@pytest.mark.parametrize("name", recordings.ALL)
def test_an_untouched_recording_keeps_every_promise(name: str) -> None:
    found = failing(Capture.load(name))
    if "s1f" in name:  # default batching under Key_Shared: every batch mixes keys
        assert {code: len(messages) for code, messages in found.items()} == {"MIXED_BATCH": 118}
    else:
        assert not found


TRIALS = [
    (fault, scenario, version, seed)
    for fault, scenarios in FAULTS.items()
    for scenario in scenarios
    for version in VERSIONS
    for seed in range(2 if scenario == scenarios[0] else 1)
]
assert len(FAULTS) >= 20
assert len(TRIALS) >= 190


@pytest.mark.parametrize(
    ("fault", "scenario", "version", "seed"), TRIALS, ids=lambda v: getattr(v, "__name__", str(v)).split("_key")[0]
)
def test_a_fault_is_found_with_its_witness_and_nothing_else(
    fault: Callable[..., Expected], scenario: str, version: str, seed: int
) -> None:
    capture = Capture.load(f"{version}/{scenario}")
    expected = fault(capture, random.Random(f"{fault.__name__}/{scenario}/{seed}"))
    found = failing(capture)
    if judge_of(capture.policy, capture.tables, capture.terms).standings[Code[expected.code]] is Standing.ALLOWED:
        assert not found  # found, and legal under this profile
        return
    assert expected.code in found
    assert expected.witness is None or expected.witness in found[expected.code]
    assert set(found) <= {expected.code} | expected.implied


@pytest.mark.parametrize("version", VERSIONS)
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
    code, witness = fault(recording, random.Random(f"{fault.__name__}/{scenario}"))
    found = failing_in(recording.save(tmp_path / "recording"))
    assert set(found) - {"BEFORE_PREDECESSOR_ACK"} == {code}
    assert not witness or witness in found[code]


def test_a_removed_leave_of_a_sticky_consumer_shows_that_its_successor_could_not_join() -> None:
    capture = Capture.load(f"4.0.8/{S3}")
    faults.forget_a_leave(capture, random.Random(1))
    assert set(failing(capture)) <= {"NOT_CONNECTED", "WRONG_OWNER"}
    (dispatcher,) = judge_of(capture.policy, capture.tables).dispatchers.values()
    assert Code.STICKY_OVERLAP in {finding.code for finding in sticky_ranges(dispatcher.timeline)}


@pytest.mark.parametrize("version", VERSIONS)
def test_slots_that_a_sticky_consumer_no_longer_asks_for_are_a_gap(version: str) -> None:
    capture = Capture.load(f"{version}/{S3}")
    faults.ask_for_fewer_slots(capture, random.Random(1))
    (dispatcher,) = judge_of(capture.policy, capture.tables).dispatchers.values()
    assert Code.STICKY_GAP in {finding.code for finding in sticky_ranges(dispatcher.timeline)}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_message_given_up_is_on_the_dead_letter_topic_and_a_removed_one_is_missed(version: str) -> None:
    exhausted, letters = faults.dead_letter_frames(version)
    assert letters.num_rows >= 200
    assert [f for f in dead_letters(exhausted, letters, 3) if f.code is Code.DLQ_INCOMPLETE] == []
    for seed in range(5):
        lost = random.Random(seed).choice([row for row in exhausted.to_pylist() if row["nacked"]])
        same = pc.and_(
            pc.equal(letters["origin_ledger"], lost["ledger"]), pc.equal(letters["origin_entry"], lost["entry"])
        )
        missing = [
            f for f in dead_letters(exhausted, letters.filter(pc.invert(same)), 3) if f.code is Code.DLQ_INCOMPLETE
        ]
        assert [(f.position[:2], f.excuse) for f in missing] == [((lost["ledger"], lost["entry"]), Excuse.NONE)]


def test_a_delivery_that_only_the_client_places_elsewhere_is_found(tmp_path: Path) -> None:
    recording = Recording.load(f"4.0.8/{S1}")
    receipt = recording.files["deliveries"][500]
    receipt["consumer"] = "c2" if receipt["consumer"] == "c1" else "c1"
    found = failing_in(recording.save(tmp_path / "recording"))
    assert found == {Code.WRONG_OWNER.name: [f"{receipt['ledger']}:{receipt['entry']}"]}


def test_an_acknowledged_message_that_no_application_received_is_lost(tmp_path: Path) -> None:
    recording = Recording.load(f"4.0.8/{S1}")
    receipt = recording.files["deliveries"].pop(700)
    found = failing_in(recording.save(tmp_path / "recording"))
    assert found == {"LOST": [f"{receipt['ledger']}:{receipt['entry']}"]}


def test_a_receipt_long_after_the_acknowledgement_is_a_duplicate(tmp_path: Path) -> None:
    recording = Recording.load(f"4.0.8/{S1}")
    receipt = dict(recording.files["deliveries"][100])
    receipt |= {"recv_ns": receipt["ack_ns"] + 200_000_000, "ack_ns": receipt["ack_ns"] + 201_000_000}
    recording.files["deliveries"].append(receipt)
    found = failing_in(recording.save(tmp_path / "recording"))
    assert found == {"DUP_DELIVERY": [f"{receipt['ledger']}:{receipt['entry']}"]}
