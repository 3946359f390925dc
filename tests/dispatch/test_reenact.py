"""Re-enactment of streams: the same dispatches however the streams are cut, in memory that does not grow."""

import numpy as np
import pytest

from subreplay.hashing.murmur3 import MASK_31
from subreplay.rows.model.rows import Instant, MembershipEvent, Scope
from subreplay.semantics.policies import make_policy
from subreplay.semantics.timelines.timeline import Timeline
from subreplay.simulation.pulsar.broker.broker_state import create_broker
from subreplay.simulation.pulsar.broker.dispatch_rules import DispatcherKind
from subreplay.simulation.pulsar.dispatcher_choice import build_options, choose_dispatcher
from subreplay.simulation.pulsar.reenact import CLIENT_COMMANDS, ENTRIES, ClientCommand, iterate_changes, reenact

COUNT = 5_000
SCOPE = Scope("persistent://public/default/t")
MS = 1_000_000


def timeline(policy):
    events = []
    for seq, (at, kind, name) in enumerate(
        [(0, "join", "a"), (0, "join", "b"), (2_000, "join", "c"), (3_000, "leave", "b")]
    ):
        instant = Instant(at * MS, seq)
        events.append(MembershipEvent(SCOPE, kind, name, instant, instant))
    return Timeline.fold(policy, SCOPE, events)


def entries(policy, draining):
    hashes = np.random.default_rng(7).integers(0, 2**32, COUNT, dtype=np.uint32)
    rows = np.zeros(COUNT, ENTRIES)
    rows["at"] = np.arange(COUNT) * MS
    rows["slot"] = policy.compute_slots(hashes)
    rows["hash"] = rows["slot"] if draining else hashes & np.uint32(MASK_31)
    rows["messages"], rows["chunked"] = 1, -1
    return rows


def commands():
    """Everything is acknowledged 100 ms after it was published; each consumer asks for 100 messages every 10 ms."""
    acks = np.zeros(COUNT, CLIENT_COMMANDS)
    acks["at"], acks["ordinal"], acks["kind"] = (np.arange(COUNT) + 100) * MS, np.arange(COUNT), ClientCommand.ACK
    flows = np.zeros(3 * COUNT // 10, CLIENT_COMMANDS)
    flows["at"], flows["ordinal"], flows["kind"] = np.arange(len(flows)) // 3 * 10 * MS + 1, -1, ClientCommand.FLOW
    flows["consumer"], flows["amount"] = np.arange(len(flows)) % 3, 100
    rows = np.concatenate(
        [flows[flows["consumer"] < 2], flows[(flows["consumer"] == 2) & (flows["at"] > 2_000 * MS)], acks]
    )
    return rows[np.argsort(rows["at"], kind="stable")]


def cut(rows, size):
    return (rows[at : at + size] for at in range(0, len(rows), size))


def played(profile, size, until=10_000 * MS):
    policy = make_policy("pulsar.key_shared.consistent_hash", profile)
    draining = choose_dispatcher(policy) == DispatcherKind.KEY_SHARED_DRAINING
    broker = create_broker(build_options(policy), window=256, output=256)
    streams = cut(entries(policy, draining), size), cut(commands(), size)
    parts = list(reenact(broker, iterate_changes(timeline(policy)), *streams, until))
    return np.concatenate(parts)


@pytest.mark.long
@pytest.mark.parametrize("profile", ["pulsar-3.2", "pulsar-4.0", "pulsar-4.2"])
def test_streams_may_be_cut_anywhere(profile):
    whole = played(profile, COUNT)
    assert sorted(set(whole["ordinal"].tolist())) == list(range(COUNT))
    assert (np.diff(whole["at"]) >= 0).all()
    for size in (1, 97, 1_000):
        assert played(profile, size).tolist() == whole.tolist()


def test_each_entry_goes_to_the_owner_of_its_slot_at_that_time():
    policy = make_policy("pulsar.key_shared.consistent_hash", "pulsar-4.0")
    story = timeline(policy)
    rows = played("pulsar-4.0", COUNT)
    log = entries(policy, draining=True)[rows["ordinal"]]
    epochs = story.find_epochs(rows["at"], np.full(len(rows), 99))
    owners = story.find_owners(log["slot"].astype(np.int64), log["slot"].astype(np.uint32), epochs)
    assert (owners == rows["consumer"]).all()


def test_nothing_happens_before_it_is_published_or_after_the_end():
    rows = played("pulsar-4.0", 500, until=1_000 * MS)
    assert sorted(rows["ordinal"].tolist()) == list(range(1_000))
    assert (rows["at"] >= rows["ordinal"] * MS).all()


@pytest.mark.parametrize(("command", "again"), [(0, [0, 1]), (7, [0, 0])])
def test_entries_rejected_by_one_command_are_read_again_together(command, again):
    """3.x reads at once after each command, and a read is one consumer's turn."""
    policy = make_policy("pulsar.shared", "pulsar-3.2")
    log = entries(policy, False)[:2]
    log["at"] = 1
    rows = np.zeros(4, CLIENT_COMMANDS)
    rows["at"], rows["kind"], rows["amount"] = (
        [1, 2, 3, 3],
        [ClientCommand.FLOW, ClientCommand.FLOW, ClientCommand.NACK, ClientCommand.NACK],
        10,
    )
    rows["consumer"], rows["ordinal"], rows["command"] = [0, 1, 0, 0], [-1, -1, 0, 1], [0, 0, command, command]
    broker = create_broker(build_options(policy), window=256, output=256)
    played = np.concatenate([*reenact(broker, iterate_changes(timeline(policy)), [log], [rows], 10)])

    assert played["consumer"].tolist()[:2] == [0, 0]
    assert [1 - consumer for consumer in played["consumer"].tolist()[2:]] == again
