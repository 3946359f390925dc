"""Consumers that are connected under one name at once: which of them a leave is of, and what they are called."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from subreplay.semantics.timelines.consumer_aliases import find_leaving_member
from subreplay.semantics.timelines.membership import build_dispatcher_events, find_unknown_consumers

TOPIC = "persistent://public/default/t"


class Member(NamedTuple):
    number: int
    instance: str | None


@pytest.mark.parametrize(
    ("instance", "namesakes", "gone"),
    [
        ("y", ["x", "y"], 1),
        ("y", ["x", None], 1),  # it may be the one that does not tell
        ("y", ["x"], None),
        (None, ["x", "y"], 0),
        (None, ["x", None], 1),
        (None, [None, None], 0),
        ("x", ["x", "x"], 0),
        ("x", [], None),
    ],
)
def test_a_leave_is_of_its_instance_or_else_of_the_oldest_it_can_be(instance, namesakes, gone):
    members = [Member(*numbered) for numbered in enumerate(namesakes)]
    found = find_leaving_member(instance, members)
    assert (found and found.number) == gone


def labels(story: str, untold: tuple[str, ...] = ()) -> str:
    """``+c@x`` joins, ``-c@x`` leaves; the answer has labels instead of names."""
    rows = []
    for at, word in enumerate(story.split()):
        name, _, instance = word[1:].partition("@")
        kind = "join" if word[0] == "+" else "leave"
        row = dict.fromkeys(("since", "priority", "ranges", "receiver_queue_size"))
        row |= {"event": kind, "topic": TOPIC, "partition": -1, "consumer": name, "instance": instance or None}
        rows.append(row | {"at": at, "seq": 0})
    (events,) = build_dispatcher_events(rows, [], untold).values()
    return " ".join(("+" if event.event == "join" else "-") + event.label for event in events).replace(" (", "(")


@pytest.mark.parametrize(
    ("story", "shown"),
    [
        ("+c@x -c@x +c@y", "+c -c +c"),  # one after the other is one consumer that came back
        ("+c@x +c@y -c@x +c@z -c@y -c@z", "+c +c(2) -c +c -c(2) -c"),
        ("+c@x +c@y +c@z -c@y +c@w", "+c +c(2) +c(3) -c(2) +c(2)"),
        ("+c@x +c@y -c", "+c +c(2) -c"),  # the oldest
        ("+c@x +d@y", "+c +d"),
        ("+c@x +c -c@x -c", "+c +c -c -c"),  # one of the two does not tell
        ("+c +c", "+c +c"),
    ],
)
def test_the_second_consumer_of_a_name_is_numbered_if_rows_distinguish_them(story, shown):
    assert labels(story) == shown


def test_consumers_with_equal_names_are_shown_together_if_deliveries_lack_their_instance():
    assert labels("+c@x +c@y", untold=("c",)) == "+c +c"
    assert labels("+c@x +c@y", untold=("d",)) == "+c +c(2)"


@pytest.mark.parametrize(
    ("served", "strange"),
    [
        (("c", "x"), False),
        (("c", None), False),
        (("c", "z"), True),
        (("c", "w"), False),  # the instance of another consumer says nothing of this one
        (("d", "z"), False),  # its join does not tell its instance
        (("e", None), True),
    ],
)
def test_a_consumer_is_unknown_if_its_name_or_instance_never_joined(served, strange):
    joins = [("c", "x"), ("c", "y"), ("d", None), ("w", "w")]
    membership = [{"event": "join", "consumer": name, "instance": instance} for name, instance in joins]
    membership.append({"event": "leave", "consumer": "e", "instance": None})
    row = {"consumer": served[0], "instance": served[1], "first": 1, "last": 2}
    assert bool(find_unknown_consumers([row], membership)) is strange
