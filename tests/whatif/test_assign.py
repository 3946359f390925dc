"""Whom a message is assigned to around a change, and what counts as moved: cases computed by hand."""

from collections import Counter

import pyarrow as pa

from subreplay.model.rows import Scope
from subreplay.policies import make
from subreplay.whatif.assign import Assigner
from subreplay.whatif.scenario import PlannedMember, plan, planned_events

T = Scope("persistent://public/default/t", 0)
MINUTE = 60 * 10**9


def traffic(policy, members, published, moves_of=None, profile="pulsar-4.0"):
    """``TRAFFIC`` rows of one message of each of eight keys at each of the instants (ns); members join at 0."""
    one = plan("s", make(policy, profile), {T: planned_events(members, T, 0)})
    rows = [(at, f"key {k}") for at in published for k in range(8)]
    n = len(rows)
    log = pa.table(
        {
            "topic": [T.topic] * n,
            "partition": pa.array([T.partition] * n, pa.int32()),
            "entry": pa.array(range(n), pa.int64()),
            "batch_index": pa.array([-1] * n, pa.int32()),
            "at": pa.array([at for at, _ in rows], pa.int64()),
            "key": pa.array([key.encode() for _, key in rows], pa.binary()),
            **{name: pa.nulls(n, pa.binary()) for name in ("ordering_key", "batch_key", "batch_ordering_key")},
            "producer": ["p"] * n,
            "sequence_id": pa.array(range(n), pa.int64()),
            "size": pa.array([1] * n, pa.int32()),
        }
    )
    assigner = Assigner((one,), MINUTE, first=min(published), moves_of=moves_of)
    return pa.Table.from_batches(list(assigner.assign(log.to_batches()))).to_pylist()


def by(rows, *columns):
    counted = Counter()
    for row in rows:
        counted[tuple(row[column] for column in columns)] += row["messages"]
    return dict(counted)


def moved(rows):
    return sum(row["messages"] for row in rows if row["before"] not in (None, row["consumer"]))


def test_members_that_join_at_one_instant_move_nothing():
    together = [PlannedMember(name, 0, None) for name in "abcd"]
    rows = traffic("pulsar.key_shared.auto_split", together, [0, 1, 2])
    assert moved(rows) == 0
    assert {row["epoch"] for row in rows} == {4}  # also what was published at that very instant


def test_what_changed_before_the_first_message_moved_nothing():
    one_by_one = [PlannedMember(name, 10 * i, None) for i, name in enumerate("abcd")]
    assert moved(traffic("pulsar.key_shared.auto_split", one_by_one, [40, 50])) == 0


def test_what_a_newcomer_takes_while_there_is_traffic_has_moved_until_the_next_change():
    members = [PlannedMember("a", 0, None), PlannedMember("b", 10, None), PlannedMember("c", 30, None)]
    rows = traffic("pulsar.failover", members, [5, 15, 20, 35])  # a stays active all the time
    assert moved(rows) == 0
    leaving = [PlannedMember("a", 0, 10), PlannedMember("b", 0, None)]
    rows = traffic("pulsar.failover", leaving, [5, 15, 20])  # b takes over: the two rounds after it are moved traffic
    assert by(rows, "before", "consumer") == {(None, "a"): 8, ("a", "b"): 16}


def test_under_shared_nobody_owns_and_nothing_moves():
    members = [PlannedMember("a", 0, None), PlannedMember("b", 10, None)]
    assert moved(traffic("pulsar.shared", members, [5, 15])) == 0


def test_of_the_plan_that_is_asked_for_moves_what_stays_is_one_row_an_epoch():
    members = [PlannedMember("a", 0, 10), PlannedMember("b", 0, None)]
    rows = traffic("pulsar.failover", members, [5, 6, 15], moves_of="s")
    assert by(rows, "epoch", "before", "consumer") == {(2, None, None): 16, (3, "a", "b"): 8}
