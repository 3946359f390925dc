"""What holds of every share partition, whatever its members do."""

from hypothesis import given
from hypothesis import strategies as st

from subreplay.simulation.kafka.share.share_window import Acknowledgement, RecordState
from tests.share.sharing import Share
from tests.support.properties import examples

LOCK = 10
MEMBERS = 3
actions = st.lists(
    st.one_of(
        st.tuples(st.just("fetch"), st.integers(0, MEMBERS - 1), st.integers(1, 9)),
        st.tuples(st.just("answer"), st.integers(0, MEMBERS - 1), st.sampled_from(Acknowledgement)),
        st.tuples(st.just("close"), st.integers(0, MEMBERS - 1), st.just(0)),
        st.tuples(st.just("wait"), st.integers(1, 12), st.just(0)),
    ),
    max_size=60,
)
settings = st.fixed_dictionaries(
    {
        "delivery_limit": st.integers(1, 6),
        "max_locks": st.sampled_from((4, 9, 2_000)),
        "record_limit": st.booleans(),
    }
)


def is_done(state):
    return state in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


@examples(80)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=8), settings, actions)
def test_no_record_has_two_members_counts_stay_below_the_limit_and_the_start_never_goes_back(sizes, options, steps):
    share = Share(" ".join(map(str, sizes)), lock_duration=LOCK, **options)
    owned, counts, now, start = {}, {}, 0, 0
    for kind, first, second in steps:
        if kind == "fetch":
            for begin, end, count in share.fetch(first, most=second, batch_size=second, now=now):
                for offset in range(begin, end + 1):
                    assert offset not in owned
                    assert count == counts.get(offset, 0) + 1 <= options["delivery_limit"]
                    owned[offset], counts[offset] = (first, now + LOCK), count
                if options["record_limit"]:
                    assert sum(one[0] == first and one[1] == now + LOCK for one in owned.values()) >= 1
        elif kind == "answer":
            mine = sorted(offset for offset, (member, _) in owned.items() if member == first)
            for offset in mine[::2]:
                share.acknowledge(first, offset, offset, second, now)
                if second == Acknowledgement.RENEW:
                    owned[offset] = first, now + LOCK
                else:
                    del owned[offset]
        elif kind == "close":
            share.release(first)
            owned = {offset: one for offset, one in owned.items() if one[0] != first}
        else:
            now += first
            share.expire(0, share.end - 1, due=now)
            owned = {offset: one for offset, one in owned.items() if one[1] > now}
        states = share.states()
        assert {offset for offset, (state, _) in enumerate(states) if state == RecordState.ACQUIRED} == owned.keys()
        assert share.start >= start
        start = share.start
        assert all(is_done(state) for state, _ in states[:start])
        assert start == share.end or not is_done(states[start][0])
        available = sum(state == RecordState.AVAILABLE for state, _ in states[start:])
        assert available == share.partition.available


@examples(40)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=8), settings, st.sets(st.integers(0, 47)))
def test_every_record_ends_acknowledged_or_archived_if_it_is_released_again_and_again(sizes, options, poison):
    """``poison`` are the offsets that every member releases."""
    share = Share(" ".join(map(str, sizes)), lock_duration=LOCK, **options)
    for turn in range(10 * sum(sizes) * options["delivery_limit"]):
        ranges = share.fetch(turn % MEMBERS, most=4, batch_size=4)
        if not ranges:
            break
        for begin, end, _ in ranges:
            for offset in range(begin, end + 1):
                kind = Acknowledgement.RELEASE if offset in poison else Acknowledgement.ACCEPT
                share.acknowledge(turn % MEMBERS, offset, offset, kind)
    assert share.start == share.end == sum(sizes)
    for offset, (state, count) in enumerate(share.states()):
        limit = (RecordState.ARCHIVED, options["delivery_limit"])
        assert (state, count) == (limit if offset in poison else (RecordState.ACKNOWLEDGED, 1))
