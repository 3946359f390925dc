"""Work and waiting: models fitted from recorded times, and the queue of each consumer."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.errors import InputError
from subreplay.rows.model.columns import UNKNOWN
from subreplay.simulation.pulsar.service_model import Empirical, Fixed, LogNormal, PerByte
from subreplay.whatif.planning.capacity import (
    compute_mean_work,
    draw_work,
    find_quantile,
    fit_service,
    measure_shared_waits,
    measure_waits_of_owners,
)

SIZES = np.arange(1, 2001, dtype=np.int64)
NAMES = ["c1", "c2"] * 1000


def test_times_that_follow_sizes_are_fitted_by_size() -> None:
    received = np.arange(2000) * 1_000_000
    found = fit_service(received, received + 5_000 + 30 * SIZES, SIZES, NAMES)
    assert isinstance(found.service, PerByte)
    assert (found.service.ns, found.service.ns_per_byte) == (pytest.approx(5_000), pytest.approx(30))
    assert found.explained == pytest.approx(1)
    assert [name for name, _ in found.by_consumer] == ["c1", "c2"]


def test_times_with_a_spread_are_fitted_by_their_spread() -> None:
    times = draw_work(LogNormal(1e6, 0.8), SIZES, seed=7)
    found = fit_service(np.zeros(2000, np.int64), times, SIZES, NAMES)
    assert isinstance(found.service, LogNormal)
    assert found.service.median_ns == pytest.approx(1e6, rel=0.1)
    assert found.service.sigma == pytest.approx(0.8, rel=0.1)
    assert found.off < 0.05


def test_times_with_two_peaks_get_an_empirical_model() -> None:
    times = np.where(SIZES % 2, 1_000, 1_000_000)
    found = fit_service(np.zeros(2000, np.int64), times, np.full(2000, 10), NAMES)
    assert isinstance(found.service, Empirical)


@pytest.mark.parametrize("lacking", ["received_at", "acked_at"])
def test_without_receipts_or_acknowledgements_nothing_is_fitted(lacking: str) -> None:
    times = {"received_at": np.zeros(2000, np.int64), "acked_at": np.ones(2000, np.int64)}
    times[lacking] = np.full(2000, UNKNOWN)
    with pytest.raises(InputError, match=f"{lacking} is not recorded"):
        fit_service(times["received_at"], times["acked_at"], SIZES, NAMES)


def test_mean_work_is_that_of_the_drawn_times() -> None:
    sizes = np.full(200_000, 500)
    for service in (Fixed(7), PerByte(2, 5), LogNormal(1e6, 0.5), Empirical((0, 10_000, 1_000_000))):
        assert compute_mean_work(service, sizes).mean() == pytest.approx(draw_work(service, sizes).mean(), rel=0.01)


arrivals = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9), st.integers(0, 3)), max_size=30).map(sorted)


@given(arrivals, st.integers(1, 4))
def test_the_first_free_consumer_takes_the_next_message(rows: list[tuple[int, int, int]], consumers: int) -> None:
    free, expected = [0] * consumers, []
    for at, work, _ in rows:
        end = max(heapq.heappop(free), at) + work
        heapq.heappush(free, end)
        expected.append(end - at)
    at, work, _ = np.array(rows, np.int64).reshape(-1, 3).T.copy()
    assert measure_shared_waits(at, work, consumers).tolist() == expected


@given(arrivals)
def test_an_owner_works_in_order_and_nothing_is_faster_than_its_own_work(rows: list[tuple[int, int, int]]) -> None:
    at, work, owner = np.array(rows, np.int64).reshape(-1, 3).T.copy()
    waits = measure_waits_of_owners(at, work, owner, 4)
    assert (waits >= work).all()
    for one in range(4):
        mine = owner == one
        assert measure_shared_waits(at[mine], work[mine], 1).tolist() == waits[mine].tolist()


def test_a_message_without_an_owner_is_never_processed() -> None:
    assert measure_waits_of_owners(np.array([0]), np.array([5]), np.array([-1]), 1).tolist() == [-1]


def test_a_quantile_is_a_latency_that_was_measured() -> None:
    assert [find_quantile(np.arange(1, 101), share) for share in (0.0, 0.5, 0.99, 1.0)] == [1, 50, 99, 100]
