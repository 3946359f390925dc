"""Twice the rows take about twice the time: a change of complexity shows itself, whatever the machine.

No time is judged, only how it grows: the least of several rounds, in turns, so that what else runs on the machine
meets both. What grows with the square takes four times as long.
"""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from subreplay.hashing.profiles import PULSAR_4_0
from subreplay.rows.model.columns import DAY
from tests.bench import daily_runs, membership

ROUNDS, ATTEMPTS = 3, 4
MOST = 3  # times


def judged(rows: int) -> Callable[[], object]:
    """Both passes of the audit over one topic partition, each key once."""
    judge, log = replace(daily_runs._judge(daily_runs.BEGIN + DAY - 1, 50), lookback=0), daily_runs._log(rows)
    return lambda: daily_runs._daily_run(judge, log)


def folded(consumers: int) -> Callable[[], object]:
    """The joins and leaves of consumers under a policy whose range tables change by what one of them had."""
    return lambda: membership.pulsar("pulsar.key_shared.auto_split", PULSAR_4_0, consumers)


@pytest.mark.long
@pytest.mark.parametrize(
    ("work", "size"),
    [(judged, 20_000), (folded, 100)],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_twice_as_much_takes_no_thrice_the_time(work: Callable[[int], Callable[[], object]], size: int) -> None:
    once, twice = work(size), work(2 * size)
    once(), twice()  # compiled code is loaded
    grown = []
    for _ in range(ATTEMPTS):  # a machine may be busy all the time that one of them runs
        least = np.min([[seconds(once), seconds(twice)] for _ in range(ROUNDS)], axis=0)
        grown.append(least[1] / least[0])
        if grown[-1] < MOST:
            return
    pytest.fail(f"twice as much took {min(grown):.1f} times as long")


def test_quadratic_growth_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check by itself, with work that takes the square of its size by a clock of its own."""
    monkeypatch.setattr(f"{__name__}.seconds", lambda work: work())
    with pytest.raises(pytest.fail.Exception, match=r"twice as much took 4\.0 times as long"):
        test_twice_as_much_takes_no_thrice_the_time(lambda n: lambda: float(n * n), 700)


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
