"""KeyHashRange readers: rows P-KR-1 to P-KR-3."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.pulsar.coverage import Coverage, Overlap, compute_coverage
from tests.support.joins import fold, owner, shares

OLDER, NEWER = (make_policy("pulsar.key_hash_range", profile) for profile in ("documented", "pulsar-4.0"))
READER = "+R[0-10000,20001-30000]"


@pytest.mark.row("P-KR-1")
def test_p_kr_1_a_reader_gets_only_slots_inside_its_ranges_both_ends_included():
    timeline = fold(NEWER, READER)
    slots = [1, 10000, 10001, 20000, 20001, 30000, 30001, 65535]
    assert [owner(timeline, slot) for slot in slots] == ["R", "R", None, None, "R", "R", None, None]


@pytest.mark.row("P-KR-1")
def test_p_kr_1_a_reader_without_ranges_gets_everything():
    assert shares(fold(NEWER, "+R")) == shares(fold(NEWER, "+R[]")) == {"R": [(0, 65535)]}


@pytest.mark.row("P-KR-1")
def test_p_kr_1_a_reader_is_the_only_consumer_of_its_subscription():
    timeline = fold(NEWER, "+R[0-9] +S[10-19] -R +S[10-19]")
    assert str(timeline.epochs[2].rejected) == "Exclusive consumer is already connected"
    assert shares(timeline) == {"S": [(10, 19)]}


@pytest.mark.row("P-KR-1")
@pytest.mark.parametrize(
    ("ranges", "reason"),
    [
        ("9-5", "Range end must >= range start, provided range is [9, 5]"),
        ("0-65536", "Ranges must be [0, 65535] but provided range is [0, 65536]"),
        ("5-9,0-5", "Key hash ranges with overlap between [5, 9] and [0, 5]"),
    ],
)
def test_p_kr_1_ranges_that_no_client_would_send_are_refused(ranges, reason):
    for policy in (OLDER, NEWER):
        assert str(fold(policy, f"+R[{ranges}]").epochs[1].rejected) == reason


@pytest.mark.row("P-KR-2")
@pytest.mark.parametrize(("profile", "gap"), [("documented", "R"), ("pulsar-3.2", "R"), ("pulsar-4.0", None)])
def test_p_kr_2_the_gap_between_two_ranges_of_a_reader_belongs_to_it_in_the_older_profiles(profile, gap):
    timeline = fold(make_policy("pulsar.key_hash_range", profile), READER)
    assert owner(timeline, 15000) == gap
    assert owner(timeline, 30001) is None


ranges = st.lists(st.integers(0, 65535), min_size=2, max_size=8, unique=True).map(
    lambda ends: [*zip(*[iter(sorted(ends)[: len(ends) // 2 * 2])] * 2, strict=True)]
)


@pytest.mark.row("P-KR-2")
@given(ranges, st.lists(st.integers(0, 65535), max_size=20))
def test_p_kr_2_floor_and_ceiling_among_the_ends_must_name_the_reader(own, slots):
    """The older selection, restated from the document."""
    ends = np.array(sorted(end for range_ in own for end in range_))
    served = OLDER.compute_served_ranges(tuple(own))
    for slot in slots:
        floor, ceiling = ends[ends <= slot], ends[ends >= slot]
        assert any(first <= slot <= last for first, last in served) == bool(len(floor) and len(ceiling))


@pytest.mark.row("P-KR-3")
def test_p_kr_3_coverage_gaps_and_overlaps_of_several_readers():
    readers = {"r1": [(0, 10000), (20001, 30000)], "r2": [(10001, 20000)], "r3": [(25000, 40000)]}
    assert compute_coverage(readers) == Coverage(
        covered=((0, 40000),), gaps=((40001, 65535),), overlaps=(Overlap(25000, 30000, "r1", "r3"),)
    )
    assert compute_coverage({}) == Coverage((), ((0, 65535),), ())


@pytest.mark.row("P-KR-3")
def test_p_kr_3_what_the_older_profile_serves_beyond_the_ranges_overlaps_too():
    requested = {"r1": ((0, 99), (200, 299)), "r2": ((100, 199),)}
    assert (
        compute_coverage({reader: NEWER.compute_served_ranges(own) for reader, own in requested.items()}).overlaps == ()
    )
    assert compute_coverage(
        {reader: OLDER.compute_served_ranges(own) for reader, own in requested.items()}
    ).overlaps == (Overlap(100, 199, "r1", "r2"),)


small = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted).map(tuple)


@given(st.dictionaries(st.sampled_from("abc"), st.lists(small, max_size=3)))
def test_coverage_agrees_with_every_single_slot(readers):
    found = compute_coverage(readers, (0, 30))
    for slot in range(31):
        here = {reader for reader, own in readers.items() if any(first <= slot <= last for first, last in own)}
        assert any(first <= slot <= last for first, last in found.covered) == bool(here)
        assert any(first <= slot <= last for first, last in found.gaps) == (not here)
        pairs = {frozenset(overlap[2:]) for overlap in found.overlaps if overlap.start <= slot <= overlap.end}
        assert pairs == {frozenset((one, other)) for one in here for other in here if one < other}
