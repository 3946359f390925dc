"""The picture of where the time goes: a bar as wide as its share, on top of what calls it."""

from collections import Counter
from xml.etree import ElementTree

from tests.bench.flame import Bar, bars, looked_at, svg


def test_what_is_called_stands_on_its_caller_and_is_no_wider():
    stacks = Counter({("a",): 1, ("a", "b"): 2, ("c",): 1})
    assert list(bars(stacks)) == [Bar("a", 0, 0.75, 0), Bar("b", 0, 0.5, 1), Bar("c", 0.75, 1, 0)]


def test_looks_outside_the_package_have_their_share_and_no_bar():
    assert list(bars(Counter({(): 3, ("a",): 1}))) == [Bar("a", 0, 0.25, 0)]


def test_a_picture_is_well_formed_whatever_functions_are_called():
    picture = ElementTree.fromstring(svg([Bar("audit.<listcomp> & more", 0, 1, 0)], "a < b"))
    assert picture[2][0].text == "audit.<listcomp> & more: 100.0%"


def test_work_is_looked_at_and_ends_the_looking():
    done = []
    assert set(looked_at(lambda: done.append(1))) <= {()}
    assert done
