"""The rules of a share partition, as the recordings of Kafka 4.4 show them."""

import numpy as np
import pytest

from subreplay.errors import ConfigError
from subreplay.simulation.kafka.share.share_window import MS, Acknowledgement, RecordState, ShareSettings
from tests.share.sharing import Share

ANN, BEN = 0, 1


def test_a_fetch_takes_new_records_up_to_the_end_of_a_log_batch():
    share = Share("5 5 5")
    assert share.fetch(ANN, most=7) == [(0, 9, 1)]
    assert share.fetch(BEN, most=7) == [(10, 14, 1)]


def test_a_fetch_never_takes_more_than_there_is():
    assert Share("1").fetch(ANN, most=50) == [(0, 0, 1)]


def test_record_limit_takes_exactly_the_limit_and_leaves_the_rest_of_the_batch_available():
    share = Share("8", record_limit=True)
    assert share.fetch(ANN, most=3) == [(0, 2, 1)]
    assert share.fetch(BEN, most=3) == [(3, 5, 1)]
    assert share.fetch(ANN, most=3) == [(6, 7, 1)]


def test_the_lowest_available_record_comes_before_new_ones():
    share = Share("4 4")
    share.fetch(ANN, most=4)
    share.acknowledge(ANN, 1, 1, Acknowledgement.RELEASE)
    assert share.fetch(BEN, most=50) == [(1, 1, 2), (4, 7, 1)]


def test_a_released_record_keeps_its_count_and_the_next_acquisition_counts_one_more():
    share = Share("1")
    share.fetch(ANN)
    share.acknowledge(ANN, 0, 0, Acknowledgement.RELEASE)
    assert share.states() == [(RecordState.AVAILABLE, 1)]
    assert share.fetch(ANN) == [(0, 0, 2)]


def test_a_rejected_record_is_archived_with_its_count():
    share = Share("1")
    share.fetch(ANN)
    share.acknowledge(ANN, 0, 0, Acknowledgement.REJECT)
    assert share.states() == [(RecordState.ARCHIVED, 1)]
    assert share.start == 1


def test_a_gap_archives_a_control_record():
    share = Share("1")
    share.fetch(ANN)
    share.acknowledge(ANN, 0, 0, Acknowledgement.GAP)
    assert share.states() == [(RecordState.ARCHIVED, 1)]


def test_locks_of_a_whole_batch_expire_together_and_the_records_are_available():
    share = Share("3", lock_duration=10 * MS)
    share.fetch(ANN, now=5 * MS)
    share.expire(0, 2, due=14 * MS)
    assert share.fetch(BEN, now=14 * MS) == []
    share.expire(0, 2, due=15 * MS)
    assert share.fetch(BEN, now=15 * MS) == [(0, 2, 2)]


def test_a_renewed_lock_begins_anew_and_counts_no_delivery():
    share = Share("2", lock_duration=10 * MS)
    share.fetch(ANN, now=0)
    share.acknowledge(ANN, 0, 0, Acknowledgement.RENEW, now=8 * MS)
    share.expire(0, 1, due=10 * MS)
    assert share.states() == [(RecordState.ACQUIRED, 1), (RecordState.AVAILABLE, 1)]
    share.expire(0, 0, due=18 * MS)
    assert share.states() == [(RecordState.AVAILABLE, 1), (RecordState.AVAILABLE, 1)]


def test_a_late_acknowledgement_is_refused_while_the_record_is_in_the_window():
    share = Share("2")
    share.fetch(ANN, now=0)
    share.expire(0, 1, due=10**18)
    assert not share.can_acknowledge(ANN, 0, 1)
    share.fetch(BEN)
    assert not share.can_acknowledge(ANN, 0, 1)


def test_a_late_acknowledgement_is_accepted_without_effect_once_the_start_offset_has_passed_it():
    share = Share("2 1")
    share.fetch(ANN, most=3)
    share.expire(0, 1, due=10**18)
    share.fetch(BEN, most=2)
    share.acknowledge(BEN, 0, 1, Acknowledgement.ACCEPT)
    assert share.start == 2
    assert share.can_acknowledge(ANN, 0, 1)
    share.acknowledge(ANN, 0, 1, Acknowledgement.REJECT)
    assert share.states()[:2] == [(RecordState.ACKNOWLEDGED, 2)] * 2


@pytest.mark.parametrize("ends", ["release", "expire"])
def test_a_record_is_archived_when_its_count_has_reached_the_limit(ends):
    share = Share("1", delivery_limit=2)
    for count in (1, 2):
        assert share.fetch(ANN) == [(0, 0, count)]
        if ends == "release":
            share.acknowledge(ANN, 0, 0, Acknowledgement.RELEASE)
        else:
            share.expire(0, 0, due=10**18)
    assert share.states() == [(RecordState.ARCHIVED, 2)]
    assert share.fetch(ANN) == []


def test_the_last_attempt_travels_alone():
    share = Share("3 2", delivery_limit=3)
    for _ in range(2):
        share.fetch(ANN, most=3)
        share.acknowledge(ANN, 0, share.end - 1, Acknowledgement.RELEASE)
    assert [share.fetch(ANN, most=50) for _ in range(4)] == [[(0, 0, 3)], [(1, 1, 3)], [(2, 2, 3)], [(3, 4, 1)]]


def test_with_a_limit_of_two_the_last_attempt_does_not_travel_alone():
    share = Share("3", delivery_limit=2)
    share.fetch(ANN)
    share.acknowledge(ANN, 0, 2, Acknowledgement.RELEASE)
    assert share.fetch(ANN) == [(0, 2, 2)]


def test_a_fetch_takes_fewer_records_of_a_batch_with_many_deliveries():
    """Half of the batch from count ceil(limit / 2) on, then a quarter."""
    share = Share("8", delivery_limit=6)
    for _ in range(3):
        share.fetch(ANN, most=8)
        share.acknowledge(ANN, 0, 7, Acknowledgement.RELEASE)
    assert share.fetch(ANN, most=8) == [(0, 3, 4)]
    share.acknowledge(ANN, 0, 3, Acknowledgement.RELEASE)
    assert share.fetch(ANN, most=8) == [(0, 1, 5)]


def test_a_fetch_stops_before_a_throttled_batch_if_it_has_something_already():
    share = Share("2 2 2", delivery_limit=5)
    share.fetch(ANN, most=2)
    share.fetch(ANN, most=2)
    for _ in range(3):
        share.acknowledge(ANN, 2, 3, Acknowledgement.RELEASE)
        share.fetch(ANN, most=2, new=False)
        share.fetch(ANN, most=2, new=False)
    share.release(ANN)
    assert share.states()[:4] == [(0, 1), (0, 1), (0, 4), (0, 4)]
    assert share.fetch(BEN, most=50) == [(0, 1, 2)]


def test_new_records_wait_while_the_window_is_full_and_holes_count():
    share = Share("4 4 4", max_locks=8)
    share.fetch(ANN, most=8)
    share.acknowledge(ANN, 1, 7, Acknowledgement.ACCEPT)
    assert share.fetch(BEN, most=8) == []
    share.acknowledge(ANN, 0, 0, Acknowledgement.ACCEPT)
    assert share.fetch(BEN, most=8) == [(8, 11, 1)]


def test_the_last_fetch_before_the_limit_is_rounded_up_to_a_log_batch():
    share = Share("4 4 4", max_locks=5)
    assert share.fetch(ANN, most=50) == [(0, 7, 1)]


def test_available_records_of_a_full_window_can_be_taken():
    share = Share("4 4", max_locks=4)
    share.fetch(ANN, most=4)
    share.acknowledge(ANN, 1, 2, Acknowledgement.RELEASE)
    assert share.fetch(BEN, most=50) == [(1, 2, 2)]


def test_the_end_of_a_session_releases_the_members_records_only():
    share = Share("2 2")
    share.fetch(ANN, most=2)
    share.fetch(BEN, most=2)
    share.release(ANN)
    assert [state for state, _ in share.states()] == [RecordState.AVAILABLE] * 2 + [RecordState.ACQUIRED] * 2


def test_aborted_records_are_archived_when_a_group_reads_committed_ones():
    share = Share("2 2 1", hidden=(2, 3))
    assert share.fetch(ANN, most=50) == [(0, 1, 1), (4, 4, 1)]
    share.acknowledge(ANN, 0, 1, Acknowledgement.ACCEPT)
    assert share.start == 4


def test_new_ranges_are_cut_where_a_log_batch_begins_after_the_batch_size():
    share = Share("3 3 3")
    share.fetch(ANN, most=9, batch_size=4)
    assert np.unique(share.windows.slots.flight).tolist() == [0, 6]


@pytest.mark.parametrize("name", ["lock_duration", "max_locks", "delivery_limit"])
def test_a_setting_below_one_is_refused_by_name(name):
    with pytest.raises(ConfigError, match=name):
        ShareSettings(**{name: 0})
