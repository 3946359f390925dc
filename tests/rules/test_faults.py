"""Real recordings with one fault each: the right code, the right witness, and nothing else red."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from subreplay.adapters import ADAPTERS
from subreplay.model import Standing
from subreplay.policies import make
from subreplay.rules.registry import Code, standings
from tests.support import recordings
from tests.support.pure import audit
from tests.support.recordings import Recording

Fault = Callable[[Recording, random.Random], tuple[str, str]]
S1, S1B, S1E = "s1_key_shared_autosplit", "s1b_key_shared_stuck", "s1e_key_shared_key_based_batching"
S2, S3 = "s2_key_shared_autosplit_other_selector", "s3_key_shared_sticky"
S5, S5P, S7, S9 = (
    "s5_failover_partitioned",
    "s5p_failover_partitioned_priority",
    "s7_shared_rq_nack_close",
    "s9_delayed_shared",
)

TRIALS: dict[Fault, tuple[str, ...]] = {
    recordings.swap_two_deliveries_of_a_key: (S1, S1B, S2, S3, S5),
    recordings.move_a_delivery: (S1, S1E, S2, S3, S5P),
    recordings.remove_a_delivery: (S1, S1E, S5, S7, S9),
    recordings.remove_a_delivery_and_its_ack: (S1, S2, S5P, S7, S9),
    recordings.deliver_again_after_ack: (S1, S1E, S3, S5, S7),
    recordings.ack_after_the_next_owner: (S1, S1B, S2),
    recordings.remove_a_join: (S1, S2, S3, S7),
    recordings.remove_a_leave: (S1, S2),
}


def failing(name: str | Path) -> dict[str, list[str]]:
    """The failing findings of a recording: messages by code."""
    folder = name if isinstance(name, Path) else recordings.ROOT / name
    ingested = ADAPTERS["pulsar-recording"](folder)
    told = ingested.run["subscription"]
    policy = make(told["policy"], told["profile"], **told.get("options", {}))
    promised = [code for code, standing in standings(policy).items() if standing is Standing.PROMISED]
    found: dict[str, list[str]] = defaultdict(list)
    for row in audit(policy, ingested.tables).to_pylist():
        for code in promised:
            if row["codes"] & code.bit and not row["excuses"] >> 4 * code.value & 15:
                found[code.name].append(f"{row['ledger']}:{row['entry']}")
    return found


@pytest.mark.parametrize("name", recordings.ALL)
def test_an_untouched_recording_keeps_every_promise(name: str) -> None:
    found = failing(name)
    if "s1f" in name:  # default batching under Key_Shared: every batch mixes keys
        assert {code: len(messages) for code, messages in found.items()} == {"MIXED_BATCH": 118}
    else:
        assert not found


@pytest.mark.parametrize("version", ["3.2.3", "4.0.8"])
@pytest.mark.parametrize(
    ("fault", "scenario"),
    [(f, s) for f, scenarios in TRIALS.items() for s in scenarios],
    ids=lambda v: getattr(v, "__name__", v),
)
def test_a_fault_is_found_with_its_witness_and_nothing_else(
    fault: Fault, scenario: str, version: str, tmp_path: Path
) -> None:
    recording = Recording.load(f"{version}/{scenario}")
    code, witness = fault(recording, random.Random(f"{fault.__name__}/{scenario}"))
    found = failing(recording.save(tmp_path / "recording"))
    assert set(found) == {code}
    assert not witness or witness in found[code]


def test_a_removed_leave_of_a_sticky_consumer_shows_that_its_successor_could_not_join(tmp_path: Path) -> None:
    recording = Recording.load(f"4.0.8/{S3}")
    recordings.remove_a_leave(recording, random.Random(1))
    assert set(failing(recording.save(tmp_path / "recording"))) <= {"NOT_CONNECTED", "WRONG_OWNER"}


def test_an_order_that_only_the_application_saw_broken_is_found(tmp_path: Path) -> None:
    recording = Recording.load(f"4.0.8/{S1}")
    keys = defaultdict(list)
    for receipt in recording.files["deliveries"]:
        keys[receipt["key"], receipt["consumer"]].append(receipt)
    first, second = next(r[:2] for r in keys.values() if len(r) > 3)
    for name in ("recv_ns", "ack_ns"):
        first[name], second[name] = second[name], first[name]
    found = failing(recording.save(tmp_path / "recording"))
    assert found == {"KEY_ORDER": [f"{second['ledger']}:{second['entry']}"]}


def test_a_delivery_that_only_the_client_places_elsewhere_is_found(tmp_path: Path) -> None:
    recording = Recording.load(f"4.0.8/{S1}")
    receipt = recording.files["deliveries"][500]
    receipt["consumer"] = "c2" if receipt["consumer"] == "c1" else "c1"
    found = failing(recording.save(tmp_path / "recording"))
    assert found == {Code.WRONG_OWNER.name: [f"{receipt['ledger']}:{receipt['entry']}"]}


def test_an_acknowledged_message_that_no_application_received_is_lost(tmp_path: Path) -> None:
    recording = Recording.load(f"4.0.8/{S1}")
    receipt = recording.files["deliveries"].pop(700)
    found = failing(recording.save(tmp_path / "recording"))
    assert found == {"LOST": [f"{receipt['ledger']}:{receipt['entry']}"]}


def test_a_receipt_long_after_the_acknowledgement_is_a_duplicate(tmp_path: Path) -> None:
    recording = Recording.load(f"4.0.8/{S1}")
    receipt = dict(recording.files["deliveries"][100])
    receipt |= {"recv_ns": receipt["ack_ns"] + 200_000_000, "ack_ns": receipt["ack_ns"] + 201_000_000}
    recording.files["deliveries"].append(receipt)
    found = failing(recording.save(tmp_path / "recording"))
    assert found == {"DUP_DELIVERY": [f"{receipt['ledger']}:{receipt['entry']}"]}
