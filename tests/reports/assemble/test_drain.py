"""What limits a drain, in a sentence; who blocked longest."""

from __future__ import annotations

import pytest

from subreplay.reports.assemble.drain_limits import ConsumerSpread, build_drain, select_longest
from subreplay.reports.dispatch_data import Blocked, Bound

S = 1_000_000_000
CONSUMER, HASH = Bound("consumer", "c3", 60, 30 * S), Bound("hash", "77", 20, 10 * S)


@pytest.mark.parametrize(
    ("bounds", "sentence"),
    [
        ([CONSUMER, HASH], "At least 30 s: c3 has 60 messages to serve. With any other assignment at least "
         "10 s: hash 77 has 20 messages, served one after the other."),
        ([CONSUMER, Bound("hash", "77", 60, 30 * S)], "At least 30 s: hash 77 has 60 messages, served one after the "
         "other. More consumers would not help."),
        ([CONSUMER], "At least 30 s: c3 has 60 messages to serve. More consumers, or a fairer share, would help."),
        ([Bound("partition", "3", 1, S)], "At least 1 s: partition 3 has 1 message, served one after the other. More "
         "consumers would not help."),
        ([Bound("consumer", "c3", 60, 0)], "The work itself takes no time: only waiting does."),
        ([], "The work itself takes no time: only waiting does."),
    ],
)  # fmt: skip
def test_the_larger_bound_limits(bounds: list[Bound], sentence: str) -> None:
    assert build_drain(90, 40 * S, bounds).limit == sentence


def test_a_drain_that_never_ends_says_so() -> None:
    why = "c3 holds 5 messages"
    assert build_drain(90, None, [CONSUMER], never=why).limit == f"It never drains. {why}"
    assert build_drain(0, 0).limit == "Nothing was left when the last message was published."


def test_no_bound_is_longer_than_the_drain_took() -> None:
    found = build_drain(90, 29 * S, [CONSUMER, HASH])
    assert [bound.busy_ns for bound in found.bounds] == [29 * S, 10 * S]
    assert found.limit.startswith("At least 29 s")


@pytest.mark.parametrize(("anybody", "help_"), [(True, "A smaller receiver queue"), (False, "A fairer share")])
def test_more_consumers_would_not_help_where_some_are_idle(anybody: bool, help_: str) -> None:
    idle = "16 of 20 consumers are idle meanwhile: more consumers would not help."
    assert build_drain(90, 40 * S, [CONSUMER], spread=ConsumerSpread(20, 16, anybody)).limit.endswith(
        f"{idle} {help_} would."
    )
    assert build_drain(90, 40 * S, [CONSUMER], spread=ConsumerSpread(20, 0, anybody)).limit.endswith(
        "More consumers, or a fairer share, would help."
    )


def test_waiting_is_not_taken_for_work_that_more_consumers_would_share() -> None:
    assert build_drain(90, 61 * S, [CONSUMER]).limit == (
        "At least 30 s: c3 has 60 messages to serve. The rest of 1 min 1 s is waiting, not work."
    )
    assert build_drain(90, 61 * S, [CONSUMER, HASH]).limit.endswith("The rest of 1 min 1 s is waiting, not work.")
    assert "More consumers" in build_drain(90, 60 * S, [CONSUMER]).limit


def test_the_consumer_stands_before_the_hash() -> None:
    assert build_drain(90, 40 * S, [HASH, CONSUMER]).bounds == (CONSUMER, HASH)


def test_the_consumer_that_waited_longest_comes_first_in_any_order_of_rows() -> None:
    def waited(consumer: str, blocked_ns: int, messages: int = 1) -> Blocked:
        return Blocked(consumer, "", "c1", "the hash drains", "2026-05-01T12:00:00Z", blocked_ns, 1, messages, False)

    rows = [waited("c10", 5), waited("c2", 5), waited("c3", 9), waited("c4", 5, messages=2), waited("c5", 1)]
    assert [row.consumer for row in select_longest(rows, 4)] == ["c3", "c4", "c2", "c10"]
    assert select_longest(rows[::-1], 4) == select_longest(rows, 4)
