"""What holds of every group, under every assignor: no record is lost, each partition is read in order by one member at
a time, and only a crash or an eviction brings a record twice."""

from collections import defaultdict
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from subreplay.semantics.policies import ASSIGNORS
from subreplay.simulation.kafka.simulation_parameters import MemberModel
from subreplay.simulation.pulsar.broker.dispatch_rules import MILLISECOND as MS
from subreplay.simulation.pulsar.service_model import Empirical, Fixed, LogNormal, PerByte
from tests.groups.consuming import consume
from tests.support.properties import examples

EVERY = tuple(assignor.name for assignor in ASSIGNORS)
SERVICES = (Fixed(0), Fixed(3 * MS), PerByte(10_000, MS), LogNormal(2 * MS, 1.0), Empirical((0, MS, 20 * MS)))
PARTITIONS = 5


@st.composite
def histories(draw, ends="-!"):
    """Members that come and go, some of them static; and the instance ids."""
    at, here, words, instances, free = 0, [], [], {}, ["i0", "i1"]
    for number in range(draw(st.integers(1, 9))):
        at += draw(st.sampled_from((0, 1, 17, 80)))
        if here and draw(st.booleans()):
            gone = here.pop(draw(st.integers(0, len(here) - 1)))
            words.append(f"{at}:{draw(st.sampled_from(ends))}{gone}")
            if gone in instances and "!" in ends:  # one that comes back while its old self still closes fences it
                free.append(instances[gone])
        else:
            here.append(f"c{number}")
            words.append(f"{at}:+{here[-1]}")
            if free and draw(st.booleans()):
                instances[here[-1]] = free.pop()
    return " ".join(words), instances


@st.composite
def logs(draw):
    at, words = 0, []
    for _ in range(draw(st.integers(1, 40))):
        at += draw(st.sampled_from((0, 0, 2, 11)))
        words.append(f"{at}:p{draw(st.integers(0, PARTITIONS - 1))}*{draw(st.sampled_from((1, 1, 2, 30)))}")
    return " ".join(words)


models = st.builds(
    MemberModel,
    service=st.sampled_from(SERVICES),
    factor=st.sampled_from((0.5, 1.0, 4.0)),
    stuck_from=st.sampled_from((None, None, 60 * MS)),
    stuck_until=st.just(None),
)
suppositions = st.fixed_dictionaries(
    {
        "max_poll_records": st.sampled_from((1, 3, 500)),
        "max_poll_interval": st.sampled_from((40 * MS, 300_000 * MS)),
        "commit_interval": st.sampled_from((0, 25 * MS, 5_000 * MS)),
        "heartbeat_interval": st.sampled_from((7 * MS, 10 * MS)),
        "rebalance_time": st.sampled_from((0, 9 * MS)),
        "max_partition_fetch_bytes": st.sampled_from((150, 1 << 20)),
    }
)
delays = st.sampled_from((0, 30_000))


def run(name, history, log, model, assumed, delay, cut=None):
    members, instances = history
    options = {"session_timeout_us": 60_000, "initial_rebalance_delay_us": delay}
    return consume(name, members, log, model, partitions=PARTITIONS, instances=instances, options=options, cut=cut,
                   **assumed)  # fmt: skip


@given(st.sampled_from(EVERY), histories(), logs(), models, suppositions, delays)
@examples(100)
def test_every_record_is_committed_once_or_pending_and_comes_in_order(name, history, log, model, assumed, delay):
    found = run(name, history, log, model, assumed, delay)
    of_record = defaultdict(list)
    for row in found.rows:
        of_record[row.partition, row.offset].append(row)

    published = sum(int(word.split("*")[1]) for word in log.split())
    assert len(of_record) == published
    for rows in of_record.values():
        assert [row.outcome in ("ACKED", "PENDING") for row in rows].count(True) == 1
        assert rows[-1].outcome in ("ACKED", "PENDING")
        assert [row.redeliveries for row in rows if row.consumer] == list(range(len([r for r in rows if r.consumer])))
        for row in rows:
            times = [t for t in (row.delivered_at, row.received_at, row.processed_at) if t is not None]
            assert times == sorted(times)
            assert row.acked_at is None or row.acked_at >= row.processed_at
    _in_order(found)
    _one_member_at_a_time(found)
    assert sum(int(lag.published.sum()) for lag in found.lags) == published
    assert sum(int(lag.settled.sum()) for lag in found.lags) == sum(row.outcome == "ACKED" for row in found.rows)


def _in_order(found):
    """A member reads a partition in the order of the log, and goes back only to what was not committed."""
    read = defaultdict(list)
    for row in found.rows:
        if row.member >= 0:
            read[row.member, row.partition].append(row)
    for rows in read.values():
        for one, two in pairwise(rows):
            assert two.offset > one.offset or one.outcome in ("RETURNED", "TIMED_OUT")


def _one_member_at_a_time(found):
    """Nobody is given a record of a partition that was given to another and is neither committed nor given up."""
    by_partition = defaultdict(list)
    for row in found.rows:
        if row.member >= 0:
            by_partition[row.partition].append(row)
    for rows in by_partition.values():
        for one, two in pairwise(rows):
            if one.member != two.member and one.outcome == "ACKED":
                assert one.acked_at <= two.delivered_at


@given(
    st.sampled_from(tuple(name for name in EVERY if name != "kafka.cooperative_sticky")),
    histories(ends="-"),
    logs(),
    st.builds(MemberModel, st.sampled_from(SERVICES)),
    suppositions,
    delays,
)
@examples(50)
def test_if_members_only_leave_no_record_is_redelivered(name, history, log, model, assumed, delay):
    # a cooperative one that closes while its join waits cannot commit (``test_measured_facts``)
    found = run(name, history, log, model, assumed | {"max_poll_interval": 10**15}, delay)

    assert {row.outcome for row in found.rows} <= {"ACKED", "PENDING"}
    assert all(row.redeliveries == 0 for row in found.rows)


@given(st.sampled_from(EVERY), histories(), logs(), models, suppositions, delays, st.sampled_from((1, 7)))
@examples(30)
def test_the_rows_do_not_depend_on_how_the_log_is_cut(name, history, log, model, assumed, delay, cut):
    whole, parts = (run(name, history, log, model, assumed, delay, size) for size in (None, cut))

    assert [repr(row) for row in whole.rows] == [repr(row) for row in parts.rows]
    assert whole.pauses() == parts.pauses()
    assert whole.rounds() == parts.rounds()
