"""Priority levels from who was announced as active, by the rule P-FO-1."""

import pytest

from subreplay.adapters.broker_log.priority_levels import SeenActive, infer_levels
from subreplay.rows.model.rows import Scope


def seen(text):
    """``0:abc>b``: on partition 0, of members a, b and c (in order of joining), b was active."""
    partition, rest = text.split(":")
    members, active = rest.split(">")
    return SeenActive(Scope("persistent://t/ns/orders", int(partition)), tuple(members), active)


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ("0:ab>a 1:ab>b", {"a": 0, "b": 0}),
        ("0:ba>a 1:ba>b 0:b>b", {"a": 0, "b": 0}),
        ("0:ab>b 1:ab>b", {"a": 1, "b": 0}),
        ("0:ab>b 1:ab>b 0:ac>a 1:ac>a", {"a": 1, "b": 0, "c": 2}),
        ("0:abcd>b 1:abcd>c 0:ad>a 1:ad>a", {"a": 1, "b": 0, "c": 0, "d": 2}),
        ("0:ab>b 1:ab>a", None),  # nothing explains it
        ("0:abcdefg>a 1:abcdefg>b", dict.fromkeys("abcdefg", 0)),
        ("0:abcdefg>b 1:abcdefg>b", None),  # too many to try all orders
        ("", None),
    ],
)
def test_priority_levels_are_the_fewest_that_explain_the_active_consumers(reported, expected):
    assert infer_levels({seen(each) for each in reported.split()}) == expected
