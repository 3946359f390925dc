"""What a share group does with its log: who gets records, and what becomes of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.errors import ConfigError
from subreplay.semantics.policies.kafka.assignor import Partitions, derive_topic_ids
from subreplay.simulation.kafka.share.share_parameters import OffsetRule, ShareMemberModel, ShareParameters
from subreplay.simulation.kafka.share.share_replay import rank_partitions
from subreplay.simulation.kafka.share.share_window import ShareSettings
from subreplay.simulation.kafka.simulation_parameters import Stall
from subreplay.simulation.pulsar.broker.dispatch_rules import MILLISECOND as MS
from subreplay.simulation.pulsar.clients.client_state import DeliveryOutcome
from subreplay.simulation.pulsar.service_model import Fixed, LogNormal
from tests.groups.consuming import TOPIC
from tests.share.replaying import Replayed
from tests.support.properties import examples

SLOW, QUICK = ShareMemberModel(Fixed(100 * MS)), ShareMemberModel(Fixed(MS))


def test_members_share_one_partition_and_none_is_idle():
    replayed = Replayed("0:+a +b +c", "20000:p0 20001:p0 20002:p0", others=dict.fromkeys("abc", SLOW))
    assert {consumer for consumer, *_ in replayed.deliveries()} == {"a", "b", "c"}


def test_the_member_that_has_waited_longest_gets_new_records():
    """c fetched last, and a fetch waits half a second before it is sent again."""
    replayed = Replayed("0:+a 6000:+b 6010:+c", "20600:p0 20601:p0", others=dict.fromkeys("abc", SLOW))
    first, second = replayed.deliveries()
    assert first[0] != second[0]
    assert second[4] == 20_601


def test_a_fetch_that_waits_for_one_partition_takes_what_another_fetch_waits_for():
    """The waiters of the first partition are served first, and one of them has both partitions."""
    known = Partitions.from_counts({TOPIC: 2}, topic_ids=derive_topic_ids([TOPIC]))
    first, other = np.argsort(rank_partitions(known)).tolist()
    replayed = Replayed("0:+a +b +c", f"20000:p{first} 20000:p{other}", partitions=2, member=SLOW)
    assigned = replayed.replay.targets[-1].partitions
    both = next(name for name, owned in assigned.items() if len(owned) == 2)
    assert [row[0] for row in replayed.deliveries() if row[1] == other] == [both]


def test_a_slow_member_does_not_block_the_partition_that_it_shares():
    replayed = Replayed("0:+slow +quick", "20000:p0*2 20010:p0 20020:p0", others={"slow": SLOW, "quick": QUICK})
    assert len(replayed.deliveries()) == 4
    assert replayed.pending() == []


def test_records_that_are_appended_together_go_to_one_member_up_to_the_end_of_their_batch():
    replayed = Replayed("0:+a +b", "20000:p0*8", max_poll_records=3)
    assert {row[0] for row in replayed.deliveries()} in ({"a"}, {"b"})


def test_with_record_limit_members_take_turns_in_one_batch():
    settings = ShareSettings(record_limit=True)
    replayed = Replayed("0:+a +b", "20000:p0*6", max_poll_records=3, settings=settings)
    assert sorted(row[0] for row in replayed.deliveries()) == ["a"] * 3 + ["b"] * 3


def test_the_first_member_reads_all_partitions_until_a_heartbeat_after_the_assignment_interval():
    replayed = Replayed("0:+a 10:+b", "100:p0 p1", partitions=2)
    assert {row[0] for row in replayed.deliveries()} == {"a"}
    assert [(target.epoch, target.at // MS) for target in replayed.replay.targets] == [(2, 0), (3, 5_000)]


def test_a_member_that_joins_after_the_assignment_interval_fetches_at_once():
    replayed = Replayed("0:+a 2000:+b", "2001:p0 2002:p1 2003:p0", partitions=2, member=SLOW)
    assert {row[0] for row in replayed.deliveries()[:2]} == {"a", "b"}


def test_a_lock_that_ends_gives_the_record_to_others_while_the_application_still_works():
    hung = ShareMemberModel(Fixed(MS), stalls=(Stall(0, 100 * MS),))
    settings = ShareSettings(lock_duration=30 * MS)
    replayed = Replayed("0:+hung 20000:+b", "20001:p0", others={"hung": hung}, settings=settings)
    assert replayed.deliveries() == [
        ("hung", 0, 0, 1, 20_001, "TIMED_OUT"),
        ("b", 0, 0, 2, 20_031, "ACKED"),
    ]


def test_a_consumer_that_closes_with_implicit_acknowledgement_returns_what_it_has_done():
    replayed = Replayed("0:+a 20002:-a 20010:+b", "20001:p0*3")
    assert [(row[0], row[3], row[5]) for row in replayed.deliveries()] == [("a", 1, "RETURNED")] * 3 + [
        ("b", 2, "ACKED")
    ] * 3


def test_a_consumer_that_closes_with_explicit_acknowledgement_acknowledges_first():
    explicit = ShareMemberModel(Fixed(MS), explicit=True)
    replayed = Replayed("0:+a 20002:-a 20010:+b", "20001:p0*3", member=explicit)
    assert [(row[0], row[5]) for row in replayed.deliveries()] == [("a", "ACKED")] * 3


def test_a_crash_releases_records_at_once_but_the_partition_waits_for_the_eviction():
    log = "20000:p0*2 p1*2"
    model = {"others": {"a": SLOW, "b": SLOW}}
    replayed = Replayed("0:+a 2000:+b 20050:!b", log, partitions=2, session=6_000, **model)
    lost = [row for row in replayed.deliveries() if row[0] == "b"]
    again = [row for row in replayed.deliveries() if row[3] == 2]
    assert [row[5] for row in lost] == ["RETURNED"] * 2
    assert [row[0] for row in again] == ["a"] * 2
    assert again[0][4] > 20_050 + 1_000  # after the session time-out


def test_a_crashed_members_records_of_a_shared_partition_are_redelivered_when_the_connection_breaks():
    replayed = Replayed("0:+a 2000:+b 20050:!a", "20000:p0", others={"a": SLOW, "b": QUICK})
    first, *more = replayed.deliveries()
    assert first[:4] in (("a", 0, 0, 1), ("b", 0, 0, 1))
    assert all(row[4] == 20_065 for row in more)


def test_the_reset_latest_skips_what_was_produced_before_the_first_fetch():
    replayed = Replayed("100:+a", "0:p0*2 200:p0", reset="latest")
    assert [row[2] for row in replayed.deliveries()] == [2]
    assert replayed.pending() == [(0, 0), (0, 1)]


def test_rates_release_reject_and_renew_deliveries():
    model = ShareMemberModel(Fixed(0), explicit=True, release_rate=0.2, reject_rate=0.1, renew_rate=0.1)
    replayed = Replayed("0:+a", "20000:p0*2000", member=model)
    outcomes = [row[5] for row in replayed.deliveries()]
    assert 0.15 < outcomes.count("NACKED") / len(outcomes) < 0.25
    assert 0.07 < outcomes.count("DROPPED") / len(outcomes) < 0.13
    assert replayed.pending() == []


def test_a_rule_by_offset_releases_the_first_deliveries_until_the_limit_archives_the_record():
    rule = OffsetRule(2, release={1: 99})
    model = ShareMemberModel(Fixed(0), explicit=True, rule=rule)
    replayed = Replayed("0:+a", "20000:p0*2", member=model, settings=ShareSettings(delivery_limit=3))
    assert [row[2:4] + row[5:] for row in replayed.deliveries()] == [
        (0, 1, "ACKED"), (1, 1, "NACKED"), (1, 2, "NACKED"), (1, 3, "DROPPED")
    ]  # fmt: skip


def test_a_renewed_record_keeps_its_count_and_comes_before_new_ones():
    model = ShareMemberModel(Fixed(10 * MS), explicit=True, commits=True, rule=OffsetRule(2, renew={0: 2}))
    settings = ShareSettings(lock_duration=25 * MS)
    replayed = Replayed("0:+a", "20000:p0*2 20001:p0", member=model, settings=settings)
    rows = replayed.deliveries()
    assert [(row[2], row[3], row[5]) for row in rows] == [(0, 1, "ACKED"), (1, 1, "ACKED"), (2, 1, "ACKED")]
    assert rows[2][4] == 20_040


def test_without_commits_a_client_fetches_while_records_are_renewed_and_locks_run_before_they_are_polled():
    model = ShareMemberModel(Fixed(10 * MS), explicit=True, rule=OffsetRule(9, renew={0: 2}))
    settings = ShareSettings(lock_duration=25 * MS)
    replayed = Replayed("0:+a", "20000:p0*2 20001:p0", member=model, settings=settings)
    assert [row[3:] for row in replayed.deliveries() if row[2] == 2] == [
        (1, 20_040, "TIMED_OUT"),  # acquired at 20,020
        (2, 20_050, "ACKED"),
    ]


def test_times_are_drawn_from_the_seed():
    def end(seed):
        model = ShareMemberModel(LogNormal(MS, 1.0))
        return Replayed("0:+a", "20000:p0*50", member=model, seed=seed).rows.processed_at.max()

    assert end(1) == end(1)
    assert end(1) != end(2)


def test_intervals_count_published_and_settled_records():
    lags = np.concatenate(Replayed("0:+a", "20000:p0*5 22000:p0*5").lags)
    assert lags["published"].sum() == lags["settled"].sum() == 10


@pytest.mark.parametrize("name", ["max_poll_records", "max_wait", "heartbeat_interval", "interval"])
def test_a_parameter_below_its_least_value_is_refused_by_name(name):
    with pytest.raises(ConfigError, match=name):
        ShareParameters(**{name: 0})


def test_rates_above_one_together_are_refused():
    with pytest.raises(ConfigError, match="release_rate"):
        ShareMemberModel(release_rate=0.7, reject_rate=0.7)


histories = st.lists(
    st.tuples(st.sampled_from("+-!"), st.integers(0, 3), st.sampled_from((0, 5, 400, 7_000))), max_size=10
)
models = st.builds(
    ShareMemberModel,
    service=st.sampled_from((Fixed(0), Fixed(3 * MS), LogNormal(20 * MS, 1.0))),
    explicit=st.booleans(),
    release_rate=st.sampled_from((0.0, 0.3)),
    reject_rate=st.sampled_from((0.0, 0.1)),
    renew_rate=st.sampled_from((0.0, 0.2)),
    overhead=st.sampled_from((0, 2 * MS)),
)


@examples(40)
@given(histories, models, st.integers(1, 5), st.sampled_from((3, 500)), st.booleans(), st.integers(1, 40))
def test_no_record_is_lost_and_none_is_delivered_beyond_the_limit(steps, model, limit, most, record_limit, gap):
    at, words, running = 0, ["0:+keeper"], set()
    for kind, number, wait in steps:
        at += wait
        if kind == "+" and number not in running:
            running.add(number)
            words.append(f"{at}:+c{number}")
        elif kind != "+" and number in running:
            running.discard(number)
            words.append(f"{at}:{kind}c{number}")
    log = " ".join(f"{gap * 20 * n}:p{n % 3}*{1 + n % 4}" for n in range(30))
    settings = ShareSettings(lock_duration=50 * MS, delivery_limit=limit, max_locks=7, record_limit=record_limit)
    replayed = Replayed(
        " ".join(words), log, partitions=3, session=6_000, member=model, max_poll_records=most, settings=settings
    )
    rows = replayed.rows
    assert replayed.pending() == []
    delivered = rows[rows.delivered_at >= 0]
    records = {}
    for row in delivered:
        records.setdefault((int(row["partition"]), int(row.entry)), []).append(row)
    assert len(records) == sum(1 + n % 4 for n in range(30))
    for of_record in records.values():
        of_record.sort(key=lambda row: row.redeliveries)
        assert [int(row.redeliveries) for row in of_record] == list(range(len(of_record)))
        assert len(of_record) <= limit
        assert all(row.outcome not in (DeliveryOutcome.ACKED, DeliveryOutcome.DROPPED) for row in of_record[:-1])
        assert of_record[-1].outcome in (DeliveryOutcome.ACKED, DeliveryOutcome.DROPPED)
