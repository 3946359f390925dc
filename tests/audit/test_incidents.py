"""Incidents: groups of failing findings with one cause, consumer or partition at one time."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from subreplay.audit.incidents import (
    LEVELS,
    MOST_PARTS,
    PARTS,
    IncidentParts,
    count_parts,
    find_actor,
    find_incidents,
    make_part_key,
)
from subreplay.rows.model.tables import VIOLATIONS

SECOND = 1_000_000_000
WIDTH = 10 * SECOND


def part(at: float, **values: Any) -> dict[str, Any]:
    """A part with one finding at an instant (s)."""
    row = dict.fromkeys(PARTS.names) | {
        "level": 0, "window": int(at * SECOND) // WIDTH * WIDTH, "code": "WRONG_OWNER", "verdict": "invalid",
        "attribution": "broker", "count": 1, "first": int(at * SECOND), "last": int(at * SECOND), "open": False,
        "cause": "unexplained",
    }  # fmt: skip
    return row | values


def grouped(*parts: dict[str, Any], gap: float = 5) -> list[list[int]]:
    return find_incidents(parts, int(gap * SECOND))


def violation(at: float, **values: Any) -> dict[str, Any]:
    """A failing row of table ``violations`` at an instant (s)."""
    row = {
        "date": None, "subscription": "s", "topic": "t", "partition": 0, "ledger": 0, "entry": 0, "batch_index": -1,
        "code": "WRONG_OWNER", "verdict": "invalid", "moment": int(at * 1e6), "at": int(at * 1e6), "slot": -1,
        "epoch": 0, "cause": "unexplained", "witness": [], "explanation": "", "attribution": "broker",
    }  # fmt: skip
    return row | {"date": 0} | values


def violations(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([dict(row) for row in rows], schema=VIOLATIONS)


def test_findings_of_one_cause_that_overlap_in_time_are_one_incident() -> None:
    left = "epoch 3: c1 left at 12:00:03"
    assert grouped(part(1, cause=left, consumer="a"), part(4, cause=left, consumer="b", code="KEY_ORDER")) == [[0, 1]]


def test_findings_of_one_consumer_are_one_incident_only_if_one_party_is_responsible() -> None:
    one = part(1, consumer="a", cause="x")
    assert grouped(one, part(2, consumer="a", cause="y")) == [[0, 1]]
    assert grouped(one, part(2, consumer="a", cause="y", attribution="producer")) == [[0], [1]]


def test_findings_that_are_far_apart_are_two_incidents() -> None:
    assert grouped(part(1), part(20)) == [[0], [1]]


def test_a_wait_reaches_until_the_message_is_delivered() -> None:
    assert grouped(part(1, last=18 * SECOND), part(20)) == [[0, 1]]


def test_a_cause_that_recurs_is_one_incident() -> None:
    assert grouped(*[part(20 * n, cause="the client sends twice") for n in range(3)]) == [[0], [1], [2]]
    assert grouped(*[part(20 * n, cause="the client sends twice") for n in range(4)]) == [[0, 1, 2, 3]]


def test_unexplained_findings_of_two_rules_have_no_cause_in_common() -> None:
    assert grouped(part(1, consumer="a"), part(1, consumer="b", code="KEY_ORDER")) == [[0], [1]]


def test_many_incidents_are_joined_until_they_are_a_handful() -> None:
    parts = [part(20 * n, cause=f"cause {n}", partition=n % 2) for n in range(200)]
    assert len(grouped(*parts)) == 2


def test_the_consumer_that_blocks_others_is_the_actor() -> None:
    cause = "consumer a, which held 13 unacknowledged since 10:01:47 (8 min)"
    row = violation(1, code="STUCK", cause=cause, consumer="b")
    assert count_parts(violations(row), WIDTH)["consumer"].to_pylist() == ["a"] == [find_actor(row)]


def test_a_message_that_was_delivered_late_waited_before_its_delivery() -> None:
    (delivered,) = count_parts(violations(violation(60, waited=50_000_000)), WIDTH).to_pylist()
    (open_,) = count_parts(violations(violation(60, waited=50_000_000) | {"at": None}), WIDTH).to_pylist()
    assert (delivered["first"], delivered["last"], delivered["open"]) == (10 * SECOND, 60 * SECOND, False)
    assert (open_["first"], open_["last"], open_["open"]) == (60 * SECOND, 110 * SECOND, True)


def test_findings_that_do_not_fail_are_no_incident() -> None:
    assert not count_parts(violations(violation(1, verdict="valid")), WIDTH).num_rows


ROWS = st.lists(
    st.builds(
        violation,
        st.integers(0, 1000),
        code=st.sampled_from(["WRONG_OWNER", "LOST"]),
        consumer=st.sampled_from([None, "a", "b"]),
        partition=st.integers(-1, 2),
        cause=st.sampled_from(["unexplained", "consumer a, which held 2 unacknowledged"]),
        waited=st.one_of(st.none(), st.integers(0, 10**9)),
    ),
    max_size=30,
)


@given(ROWS, st.integers(1, 7))
def test_every_finding_is_in_the_part_of_its_key_however_tasks_split_them(
    rows: list[dict[str, Any]], size: int
) -> None:
    whole = count_parts(violations(*rows), WIDTH)
    adding = IncidentParts(WIDTH)
    for start in range(0, len(rows), size):
        adding.add(count_parts(violations(*rows[start : start + size]), WIDTH))
    split = adding.compute_sum()
    one = IncidentParts(WIDTH)
    one.add(whole)
    assert split.equals(one.compute_sum())
    keys = {make_part_key({**row, "actor": row["consumer"]}, 0, WIDTH): row["count"] for row in split.to_pylist()}
    for row in rows:
        window = row["moment"] * 1000 // WIDTH * WIDTH
        keys[make_part_key({**row, "window": window, "actor": find_actor(row)}, 0, WIDTH)] -= 1
    assert set(keys.values()) <= {0}


def test_too_many_parts_lose_the_same_details_however_they_are_split() -> None:
    rows = [violation(n, consumer=f"c{n}", partition=n % 7) for n in range(MOST_PARTS + 10)]
    every = [count_parts(violations(*rows[start::5]), WIDTH) for start in range(5)]
    forward, backward = IncidentParts(WIDTH), IncidentParts(WIDTH)
    for one, other in zip(every, reversed(every), strict=True):
        forward.add(one)
        backward.add(other)
    found = forward.compute_sum()
    assert found.equals(backward.compute_sum())
    assert len(found) <= MOST_PARTS
    assert sum(found["count"].to_pylist()) == len(rows)
    windows, dropped = LEVELS[found["level"][0].as_py()]
    assert dropped == 2, "partitions and consumers"
    assert {window % (WIDTH * windows) for window in found["window"].to_pylist()} == {0}
