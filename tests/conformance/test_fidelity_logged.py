"""Recordings beside which the broker's log was kept: consumers of one name, switches that do not wait, permits."""

import gzip
import json
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from subreplay.adapters import ADAPTERS
from subreplay.cli.main import main
from subreplay.conformance.fidelity.broker_flow_log import LoggedPermitRequest, read_logged_flows
from subreplay.conformance.fidelity.dispatch_comparison import compare_dispatches
from subreplay.conformance.fidelity.dispatch_reenactment import reenact_dispatcher
from subreplay.conformance.fidelity.fidelity_measure import measure_fidelity
from subreplay.conformance.fidelity.read_times import (
    MAX_READ_DELAY,
    READ_DELAY,
    find_first_consumers,
    find_latest_read_times,
    find_read_times,
)
from subreplay.conformance.fidelity.recorded_dispatchers import find_recorded_profile, read_recorded_dispatchers
from subreplay.conformance.fidelity.replay_inputs import build_inputs
from subreplay.conformance.recordings import find_recordings
from subreplay.simulation.pulsar.broker.broker_records import DISPATCHED
from subreplay.simulation.pulsar.broker.dispatchers.single_active import BY_RULE
from subreplay.simulation.pulsar.reenact import ClientCommand
from tests.audit.rules.test_faults import found_in
from tests.support.pure import judge_of

ROOT = Path(__file__).parents[1] / "data" / "recordings-with-logs"
FOLDERS = find_recordings([ROOT])
MS = 1_000_000
each = pytest.mark.parametrize("folder", FOLDERS, ids=lambda f: f"{f.parent.name}-{f.name}")


def named(name):
    return pytest.mark.parametrize(
        "folder", [f for f in FOLDERS if f.name.startswith(name)], ids=lambda f: f.parent.name
    )


@cache
def delivered(folder):
    (recorded,) = read_recorded_dispatchers(folder, find_recorded_profile(folder))
    return recorded, build_inputs(recorded)


def missed_entries(recorded, taken):
    found = compare_dispatches(recorded, taken, reenact_dispatcher(recorded, taken))
    return found.compared - found.same_consumer


@each
def test_every_entry_goes_to_the_consumer_it_went_to(folder):
    result = measure_fidelity(folder)

    assert result.compared >= 1550
    assert (result.same_consumer, result.exempt, result.missed_entries) == (100, 0, ())
    assert result.same_count >= 99.9


@each
def test_nothing_of_it_is_rejected_and_every_promise_was_kept(folder):
    ingested = ADAPTERS["pulsar-recording"](folder)
    recorded, _ = delivered(folder)

    assert not ingested.rejected
    assert all(count.rows_in == count.valid for count in ingested.counts)
    assert not found_in(judge_of(recorded.policy, ingested.tables), ingested.tables).failing


@named("l11")
def test_of_two_consumers_of_one_name_the_other_one_is_the_wrong_one(folder, tmp_path, capsys):
    """Ten entries in a row of one twin, said to be the other's."""
    spoilt = tmp_path / folder.parent.name / "spoilt"
    shutil.copytree(folder, spoilt)
    with gzip.open(folder / "broker_events.jsonl.gz", "rt", encoding="utf-8") as lines:
        events = [json.loads(line) for line in lines]
    one, other = [e["cnx"] for e in events if e["ev"] == "consumer_created" and e["consumer"] == "twin"][:2]
    for event in [e for e in events if e["ev"] == "dispatch" and e["cnx"] == other][20:30]:
        event["cnx"] = one
    with gzip.open(spoilt / "broker_events.jsonl.gz", "wt", encoding="utf-8") as lines:
        lines.writelines(f"{json.dumps(event)}\n" for event in events)

    assert main(["fidelity", str(tmp_path)]) == 1
    shown = capsys.readouterr().out
    assert "guarantee: the same consumer for 99.9 %" in shown
    assert "went to twin in the recording and to twin (2) in the re-enactment" in shown


SWITCHES = {"4.0.8": {"c-z": (0, False), "c-b": (BY_RULE, True)}, "4.2.4": {}}
"""By whom they made active: the one found a read under way, the other a write; all others waited for the timer."""


@named("l07")
def test_a_switch_waits_for_the_timer_unless_it_finds_a_read_or_a_write_under_way(folder):
    recorded, taken = delivered(folder)
    at_once = {c.consumer.name: (c.delay, c.writing) for c in taken.changes if c.delay == 0 or c.writing}

    assert at_once == SWITCHES[folder.parent.name]
    waited = [c.delay / MS for c in taken.changes if c.delay > 0]
    assert len(waited) >= 4
    assert min(waited) > 999
    replayed = reenact_dispatcher(recorded, taken)
    for change in taken.changes:
        if change.consumer.name in at_once and change.joined:
            mine = replayed[(replayed.consumer == change.consumer.index) & (replayed.at >= change.at)]
            assert mine.at[0] - change.at < 100 * MS


@named("l07")
def test_by_the_timer_alone_switches_come_out_otherwise(folder):
    recorded, taken = delivered(folder)
    by_rule = tuple(replace(change, delay=BY_RULE, writing=False) for change in taken.changes)
    runs = (taken, replace(taken, changes=by_rule))
    reported, alone = (np.quantile(np.abs(errors_of(recorded, one)), 0.98) for one in runs)

    assert reported < 50 * MS
    assert alone > 500 * MS or not SWITCHES[folder.parent.name]


def errors_of(recorded, taken):
    return compare_dispatches(recorded, taken, reenact_dispatcher(recorded, taken)).errors


@named("l01")
def test_without_the_log_permits_are_modelled_and_nothing_else_changes(folder, tmp_path):
    shutil.copytree(folder, tmp_path / folder.parent.name / folder.name)
    for log in tmp_path.rglob("broker.log.gz"):
        log.unlink()
    (copied,) = find_recordings([tmp_path])
    (modelled,) = read_recorded_dispatchers(copied, find_recorded_profile(folder))

    assert not modelled.flows
    assert len(delivered(folder)[0].flows) == 40
    assert measure_fidelity(copied).same_consumer == 100


@each
def test_nobody_is_handed_anything_without_a_permit(folder):
    _, taken = delivered(folder)
    flows = taken.commands[taken.commands.kind == ClientCommand.FLOW]
    for consumer in np.unique(taken.dispatched.consumer):
        requested = flows[flows.consumer == consumer]
        mine = taken.dispatched[taken.dispatched.consumer == consumer]
        messages = taken.entries.messages[mine.ordinal]
        used = np.cumsum(messages) - messages
        permits = np.concatenate([[0], np.cumsum(requested.amount)])[np.searchsorted(requested.at, mine.at, "right")]
        assert (used < permits).all()


LINES = """\
2026-11-22T01:36:43,563+0000 [pulsar-io-18-4] DEBUG a.b.PersistentDispatcherMultipleConsumers - \
[persistent://public/default/t / s-Consumer{subscription=PersistentSubscription{topic=persistent://public/default/t, \
name=s}, consumerId=3, consumerName=c1, address=/127.0.0.1:57038}] \
Trigger new read after receiving flow control message with permits 11 after adding 10 permits
2026-11-22T01:36:44,000+0000 [pulsar-io-18-4] DEBUG a.b.PersistentDispatcherMultipleConsumers - \
[persistent://public/default/t / s-Consumer{subscription=PersistentSubscription{topic=persistent://public/default/t, \
name=s}, consumerId=0, consumerName=c2, address=[id: 0xce10ef7b, L:/127.0.0.1:26650 ! R:/127.0.0.1:53104] \
[SR:127.0.0.1, state:Failed]}] \
Trigger new read after receiving flow control message with permits 1 after adding 1 permits
2026-11-22T01:36:45,000+0000 [pulsar-io-18-4] DEBUG a.b.PersistentDispatcherMultipleConsumers - \
[persistent://public/default/t / s] Schedule read of 1 messages for 1 consumers
"""


@pytest.mark.parametrize("compressed", [True, False])
def test_a_broker_log_contains_the_permits_that_each_consumer_requested(tmp_path, compressed):
    """As 3.2 and as 4.x print an address; a connection may be gone by then (``!``)."""
    path = tmp_path / ("broker.log.gz" if compressed else "broker.log")
    path.write_bytes(gzip.compress(LINES.encode()) if compressed else LINES.encode())

    topic = "persistent://public/default/t"
    assert read_logged_flows(tmp_path) == (
        LoggedPermitRequest(1795311403563 * MS, topic, "s", "127.0.0.1:57038#3", 10),
        LoggedPermitRequest(1795311404000 * MS, topic, "s", "127.0.0.1:53104#0", 1),
    )


def test_an_entry_is_there_when_it_was_read_by_what_was_dispatched():
    """Published at 0, 4 and 5 ms; the second was read with the third, which went out at 12 ms, or before."""
    dispatched = np.zeros(2, DISPATCHED).view(np.recarray)
    dispatched.ordinal, dispatched.at = [0, 2], [1 * MS, 12 * MS]
    latest = find_latest_read_times(3, dispatched)

    there = find_read_times(np.array([0, 4 * MS, 5 * MS]), latest, np.zeros(3, np.bool_))
    assert (there / MS).tolist() == [1, 12, 12]


def test_entries_of_one_turn_are_of_one_read_and_another_consumer_begins_the_next():
    """Published at 0 to 4 ms; a gets the first two at 9 ms, b the next two with a pause of 3 ms, a the last at once."""
    dispatched = np.zeros(5, DISPATCHED).view(np.recarray)
    dispatched.ordinal, dispatched.consumer = range(5), [0, 0, 1, 1, 0]
    dispatched.at = [9 * MS, 9 * MS + 10, 9 * MS + 500_000, 12 * MS, 12 * MS + 20]
    latest, produced = find_latest_read_times(5, dispatched), np.arange(5) * MS
    turns = find_first_consumers(5, dispatched)

    there = find_read_times(produced, latest, np.zeros(5, np.bool_), turns)
    assert there.tolist() == [9 * MS, 9 * MS, 9 * MS + 500_000, 9 * MS + 500_000, 12 * MS + 20]
    assert len(set(find_read_times(produced, latest, np.zeros(5, np.bool_)).tolist())) == 2  # where no turns tell


def test_a_read_begins_when_all_of_its_turn_is_there():
    """The broker was slow: 30 ms after the first was published it wrote all three."""
    dispatched = np.zeros(3, DISPATCHED).view(np.recarray)
    dispatched.ordinal, dispatched.at = range(3), [60 * MS, 60 * MS + 10, 60 * MS + 20]
    latest = find_latest_read_times(3, dispatched)

    there = find_read_times(
        np.array([0, 30 * MS, 50 * MS]), latest, np.zeros(3, np.bool_), find_first_consumers(3, dispatched)
    )
    assert there.tolist() == [50 * MS] * 3


def test_what_was_not_read_soon_was_kept_back_by_something_else():
    never = find_latest_read_times(1, np.zeros(0, DISPATCHED).view(np.recarray))

    assert find_read_times(np.array([7 * MS]), never, np.zeros(1, np.bool_)) == [7 * MS + MAX_READ_DELAY]


def test_a_delayed_entry_is_read_when_the_reader_looks_again():
    """Nothing is dispatched of it for long: the reader looked at 1 ms, and does so again ``READ_DELAY`` later."""
    dispatched = np.zeros(1, DISPATCHED).view(np.recarray)
    dispatched.ordinal, dispatched.at = [0], [1 * MS]
    latest = find_latest_read_times(3, dispatched)

    there = find_read_times(np.array([0, 3 * MS, 50 * MS]), latest, np.array([False, True, True]))
    assert there.tolist() == [1 * MS, 1 * MS + READ_DELAY, 50 * MS]
