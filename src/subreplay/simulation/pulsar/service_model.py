"""How long an application works on a message.

A draw depends on nothing but the seed and what is drawn for: never on the order of events, or on how the log is cut
into batches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from subreplay.errors import ConfigError
from subreplay.kernels.inlining import hot, inlined
from subreplay.simulation.pulsar.broker.broker_records import Records


def _at_least_0(key: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise ConfigError(f"{key} must be at least 0, got {value}")


LONGEST = 2.0**60
"""ns, 36 years: no work takes longer."""
_MOST_EXPONENT = 700.0
"""Its power of e is still a number."""


class ServiceKind(IntEnum):
    """Which of the models a row of ``SERVICE`` is."""

    LINEAR = 0  # Fixed, PerByte
    LOGNORMAL = 1
    EMPIRICAL = 2
    IN_TURN = 3


SERVICE = np.dtype(
    [
        ("kind", "i8"),
        ("ns", "f8"),  # fixed part, or median
        ("ns_per_byte", "f8"),
        ("sigma", "f8"),
        ("factor", "f8"),
        ("first", "i8"),  # of its quantiles or times, among those of all consumers
        ("quantiles", "i8"),
        ("turn", "i8"),  # which of them is the next one, where they are taken in turn
    ],
    align=True,
)


@dataclass(frozen=True)
class Fixed:
    """Every message takes ``ns``; 0 is an infinitely fast application."""

    ns: float = 0

    def __post_init__(self) -> None:
        _at_least_0("service.ns", self.ns)


@dataclass(frozen=True)
class PerByte:
    """A message of n bytes takes ``ns + n * ns_per_byte``."""

    ns_per_byte: float
    ns: float = 0

    def __post_init__(self) -> None:
        _at_least_0("service.ns", self.ns)
        _at_least_0("service.ns_per_byte", self.ns_per_byte)


@dataclass(frozen=True)
class LogNormal:
    """Times are log-normal: half of the messages take less than ``median_ns``; ``sigma`` is of the logarithm."""

    median_ns: float
    sigma: float

    def __post_init__(self) -> None:
        _at_least_0("service.median_ns", self.median_ns)
        _at_least_0("service.sigma", self.sigma)


@dataclass(frozen=True)
class Empirical:
    """Times are spread as recorded ones: ``quantiles_ns`` are their quantiles 0, 1/n, …, 1, straight in between.

    >>> Empirical.of([30, 10, 20]).quantiles_ns
    (10.0, 20.0, 30.0)
    """

    quantiles_ns: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.quantiles_ns:
            raise ConfigError("service.quantiles_ns: at least one time is needed, got none")
        _at_least_0("service.quantiles_ns", self.quantiles_ns[0])
        if any(one > two for one, two in pairwise(self.quantiles_ns)):
            raise ConfigError(f"service.quantiles_ns must not fall, got {self.quantiles_ns}")

    @classmethod
    def of(cls, times_ns: Sequence[float] | NDArray[np.float64], most: int = 1000) -> Empirical:
        """The model of recorded times (ns), by at most ``most`` equal steps; raises ConfigError if there are none."""
        if not len(times_ns):
            raise ConfigError("service: there are no recorded times to learn from")
        steps = min(most, max(len(times_ns) - 1, 1))
        return cls(tuple(np.quantile(np.asarray(times_ns, np.float64), np.linspace(0, 1, steps + 1)).tolist()))


@dataclass(frozen=True)
class InTurn:
    """The n-th message that a consumer works on takes ``times_ns[n]``; after the last one comes the first again."""

    times_ns: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.times_ns:
            raise ConfigError("service.times_ns: at least one time is needed, got none")
        _at_least_0("service.times_ns", min(self.times_ns))


Service: TypeAlias = Fixed | PerByte | LogNormal | Empirical | InTurn


def write_service(row: Records, service: Service, factor: float, first: int) -> tuple[float, ...]:
    """Fill a row of ``SERVICE``; returns the quantiles or times that have to stand at ``first`` among those of all."""
    quantiles: tuple[float, ...] = ()
    row.factor, row.first = factor, first
    if isinstance(service, LogNormal):
        row.kind, row.ns, row.sigma = ServiceKind.LOGNORMAL, service.median_ns, service.sigma
    elif isinstance(service, Empirical):
        row.kind, quantiles = ServiceKind.EMPIRICAL, service.quantiles_ns
    elif isinstance(service, InTurn):
        row.kind, quantiles = ServiceKind.IN_TURN, service.times_ns
    else:
        row.kind, row.ns = ServiceKind.LINEAR, service.ns
        row.ns_per_byte = service.ns_per_byte if isinstance(service, PerByte) else 0
    row.quantiles = len(quantiles)
    return quantiles


@hot
def service_ns(services: Records, consumer: int, quantiles: NDArray[np.float64], size: int, draw: int) -> int:
    """How long a consumer works on a message of ``size`` bytes; ``draw`` is its random number, see ``drawn``."""
    it = services[consumer]
    if it.kind == ServiceKind.LINEAR:
        return _whole(it.ns + it.ns_per_byte * size, it.factor)
    if it.kind == ServiceKind.LOGNORMAL:
        return _whole(it.ns * math.exp(min(it.sigma * _normal(draw), _MOST_EXPONENT)), it.factor)
    if it.kind == ServiceKind.IN_TURN:
        turn = it.turn
        it.turn = (turn + 1) % it.quantiles
        return _whole(quantiles[it.first + turn], it.factor)
    rank = uniform(draw) * (it.quantiles - 1)
    below = int(rank)
    above = min(below + 1, it.quantiles - 1)
    low, high = quantiles[it.first + below], quantiles[it.first + above]
    return _whole(low + (high - low) * (rank - below), it.factor)


@inlined
def _whole(ns: float, factor: float) -> int:
    return int(min(min(ns, LONGEST) * factor, LONGEST) + 0.5)


@inlined
def drawn(seed: int, one: int, two: int, three: int) -> int:
    """64 random bits that belong to these numbers (the finaliser of SplitMix64, once for each)."""
    bits = np.uint64(seed)
    for number in (one, two, three):
        bits = _mixed(bits ^ (np.uint64(number) * np.uint64(0x9E3779B97F4A7C15)))
    return np.int64(bits)  # type: ignore[return-value]


@inlined
def uniform(draw: int) -> float:
    """A number in [0, 1) from random bits."""
    return (np.uint64(draw) >> np.uint64(11)) * 2.0**-53


@inlined
def _normal(draw: int) -> float:
    """Box and Muller's: the first of the two."""
    again = np.int64(_mixed(np.uint64(draw)))
    return math.sqrt(-2 * math.log(1 - uniform(draw))) * math.cos(2 * math.pi * uniform(again))  # type: ignore[arg-type]


@inlined
def _mixed(bits: np.uint64) -> np.uint64:
    bits += np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
