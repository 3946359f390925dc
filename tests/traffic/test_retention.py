"""What retention keeps, against a plain look at the latest messages of each partition."""

from hypothesis import given
from hypothesis import strategies as st

from subreplay.rows.model.key_masking import KeyMasking
from subreplay.rows.model.rows import Scope
from subreplay.whatif.traffic.profile_builder import ProfileBuilder
from subreplay.whatif.traffic.retention import Retention, find_retained
from tests.support.properties import examples
from tests.support.published import logs


@examples(50)
@given(log=logs, time=st.none() | st.integers(0, 140), size=st.none() | st.integers(0, 60))
def test_messages_within_time_and_size_are_retained(log, time, size):
    rows = log.to_pylist()
    last = max(row["at"] for row in rows)
    found = find_retained(ProfileBuilder(KeyMasking.from_secret(False, "s")).build_profile(log), Retention(time, size))
    assert {one.scope for one in found} == {Scope(row["topic"], row["partition"]) for row in rows}
    for one in found:
        mine = [row for row in rows if row["partition"] == one.scope.partition]
        left = []
        for row in sorted(mine, key=lambda row: (-row["at"], -row["entry"])):
            if time is not None and last - row["at"] > time:
                break
            if size is not None and sum(r["size"] or 0 for r in [*left, row]) > size:
                break
            left.append(row)
        total = sum(row["size"] or 0 for row in left)
        if size is None:  # of the same instant and entry the order is not told, and with a limit it may decide
            assert (one.messages, one.bytes) == (len(left), total)
            assert one.since == (left[-1]["at"] if left else None)
        assert one.of == len(mine)
        assert size is None or one.bytes <= size
