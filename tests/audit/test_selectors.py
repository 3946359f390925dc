"""Another selector or profile that fits where that of the run does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from subreplay.audit.codes import Code
from subreplay.audit.context import Dispatcher
from subreplay.audit.scoped_rows import ScopedRows
from subreplay.audit.selectors import (
    FEWEST_MISSED,
    MOST_COMPARED,
    OtherTimelines,
    OwnerFit,
    OwnerFits,
    add_fits,
    find_best_fit,
    list_other_selectors,
)
from subreplay.rows.model.columns import Ints
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.base import Policy
from tests.support.joins import fold

RING, SPLIT, FAILOVER = "pulsar.key_shared.consistent_hash", "pulsar.key_shared.auto_split", "pulsar.failover"
STORY = "+a +b +c -a +d +e"  # event i at 10 i µs


def fit(run: Policy, broker: Policy, astray: int = 0, rows: int = 900, story: str = STORY) -> OwnerFit | None:
    """What is found where ``broker`` is what ran, and so many deliveries went to nobody's right consumer."""
    draw = np.random.default_rng(5)
    hashes = draw.integers(0, 2**32, rows).astype(np.uint32)
    at = np.sort(draw.integers(10_000, 80_000, rows))
    seq = np.zeros(rows, np.int64)
    mine, real = fold(run, story), fold(broker, story)
    session = real.find_owners(broker.compute_slots(hashes), hashes, real.find_epochs(at, seq)).astype(np.int64)
    session[:astray] = (session[:astray] + 1) % len(real.consumers)
    expected = mine.find_owners(run.compute_slots(hashes), hashes, mine.find_epochs(at, seq))
    codes = np.where(expected == session, 0, Code.WRONG_OWNER.bit)
    fits = OwnerFits(run, Dispatcher.of(mine), OtherTimelines())
    for part in np.array_split(np.arange(rows), 3):
        rows = ScopedRows(facts(hashes[part], at[part], session[part]), np.array([0, len(part)]))
        add_fits([fits], rows, codes[part])
    counted = fits.rows()
    return find_best_fit(run, (dict(zip(counted, row, strict=True)) for row in zip(*counted.values(), strict=True)))


def facts(hashes: Any, at: Ints, session: Ints) -> pa.Table:
    quiet = np.zeros(len(at), np.bool_)
    columns = {"hash": hashes.astype(np.int64), "at": at, "session": session, "in_transition": quiet}
    return pa.table(columns | {"seq": np.zeros(len(at), np.int64)})


@pytest.mark.parametrize(
    ("run", "broker", "fitting"),
    [
        (make_policy(RING, "pulsar-3.2"), make_policy(RING, "pulsar-2.10"), [(RING, "pulsar-2.10")]),
        (make_policy(RING, "pulsar-4.2"), make_policy(RING, "pulsar-3.2"), [(RING, "pulsar-3.2")]),
        (
            make_policy(RING, "pulsar-3.2"),
            make_policy(RING, "pulsar-4.2"),
            [(RING, "pulsar-4.0"), (RING, "pulsar-4.2")],
        ),
        (
            make_policy(RING, "pulsar-4.0", points=20),
            make_policy(RING, "pulsar-2.10", points=20),
            [(RING, "pulsar-2.10")],
        ),
        (
            make_policy(RING, "pulsar-3.2"),
            make_policy(SPLIT, "pulsar-3.2"),
            [(SPLIT, f"pulsar-{v}") for v in ("2.10", "3.2")],
        ),
        (
            make_policy(SPLIT, "pulsar-4.2"),
            make_policy(RING, "pulsar-4.2"),
            [(RING, "pulsar-4.0"), (RING, "pulsar-4.2")],
        ),
    ],
)
def test_the_selector_that_ran_is_named(run: Policy, broker: Policy, fitting: list[tuple[str, str]]) -> None:
    found = fit(run, broker)
    assert found is not None
    assert [other[:2] for other in found.others if other[1] != "documented"][: len(fitting)] == fitting
    assert all(fits == found.compared == 900 for *_, fits in found.others)
    assert found.at_owner < 600


def test_a_failover_that_serves_in_the_order_of_subscription_is_that_of_2_10() -> None:
    found = fit(make_policy(FAILOVER, "pulsar-4.0"), make_policy(FAILOVER, "pulsar-2.10"), story="+c +a +b +d -c")
    assert found is not None
    assert (FAILOVER, "pulsar-2.10") in [other[:2] for other in found.others]
    assert "fit documented or pulsar-2.10" in found.sentence


def test_consumers_of_equal_names_count_as_one() -> None:
    found = fit(make_policy(RING, "pulsar-3.2"), make_policy(RING, "pulsar-2.10"), story="+a +a +b +c")
    assert found is not None
    assert found.others[0][1] == "pulsar-2.10"


@pytest.mark.parametrize("astray", [0, 1, FEWEST_MISSED - 1, FEWEST_MISSED, 60, 450])
def test_deliveries_that_went_astray_fit_nobody(astray: int) -> None:
    ring = make_policy(RING, "pulsar-4.0")
    assert fit(ring, ring, astray=astray) is None


def test_where_somebody_fits_nearly_all_he_is_named_and_where_many_are_astray_nobody() -> None:
    run, broker = make_policy(RING, "pulsar-3.2"), make_policy(RING, "pulsar-2.10")
    assert fit(run, broker, astray=4) is not None
    assert fit(run, broker, astray=40) is None


def test_messages_published_while_one_consumer_was_connected_do_not_distinguish_selectors() -> None:
    assert fit(make_policy(RING, "pulsar-3.2"), make_policy(RING, "pulsar-2.10"), story="+a") is None


def test_only_the_first_deliveries_of_a_dispatcher_are_compared() -> None:
    found = fit(make_policy(RING, "pulsar-3.2"), make_policy(RING, "pulsar-2.10"), rows=2 * MOST_COMPARED)
    assert found is not None
    assert found.compared == MOST_COMPARED


@pytest.mark.parametrize("name", ["pulsar.shared", "pulsar.key_failover", "kafka.range"])
def test_where_any_consumer_may_be_served_or_a_group_decides_there_are_no_others(name: str) -> None:
    profile = "kafka-4.0" if name.startswith("kafka") else "pulsar-4.0"
    assert list(list_other_selectors(make_policy(name, profile))) == []


def test_the_sentence_names_what_to_set() -> None:
    other = fit(make_policy(RING, "pulsar-3.2"), make_policy(RING, "pulsar-2.10"))
    assert other is not None
    assert other.sentence.startswith("the recorded owners fit pulsar-2.10 (900 of 900 deliveries), not pulsar-3.2 (")
    assert other.sentence.endswith("set subscription.profile to what the broker runs")
    selector = OwnerFit(RING, "pulsar-4.0", 20, 5, ((SPLIT, "pulsar-4.0", 20),))
    assert f"fit {SPLIT} under pulsar-4.0 (20 of 20 deliveries), not {RING} under pulsar-4.0 (5)" in selector.sentence
    assert selector.sentence.endswith("set subscription.policy to what the broker runs")
