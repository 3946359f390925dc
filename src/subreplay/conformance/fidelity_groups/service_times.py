"""The working time of a recorded scenario's application on each record, which its plan defines by a seed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice

from subreplay.simulation.pulsar.service_model import Empirical, Service, TimesInOrder

SLEEP_OVERHEAD = 157_000
"""How much longer a sleep lasts (ns, the median of 60,000)."""
_MULTIPLIER, _INCREMENT, _MASK = 0x5DEECE66D, 0xB, (1 << 48) - 1


def build_service(mean_us: float, seed: int | None, records: int) -> Service:
    """Return exponential times with an application's mean: those of its ``seed`` for so many records, else any."""
    mean = mean_us * 1_000
    if seed is None or not records:
        return Empirical((*(-mean * math.log1p(-q / 1_000) for q in range(1_000)), mean * 9.2))
    times = (-math.log(1 - value) * mean + SLEEP_OVERHEAD for value in generate_java_doubles(seed))
    return TimesInOrder(tuple(islice(times, records)))


def generate_java_doubles(seed: int) -> Iterator[float]:
    """Yield the values of ``java.util.Random(seed).nextDouble()``."""
    state = (seed ^ _MULTIPLIER) & _MASK
    while True:
        high = (state := (state * _MULTIPLIER + _INCREMENT) & _MASK) >> 22
        low = (state := (state * _MULTIPLIER + _INCREMENT) & _MASK) >> 21
        yield ((high << 27) + low) / (1 << 53)
