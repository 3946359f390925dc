"""How long an application processes a message.

A random draw depends only on the seed and on what is drawn for, not on the order of events or the batches of the log.
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


def _check_not_negative(key: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise ConfigError(f"{key} must be at least 0, but is {value}.")


LONGEST = 2.0**60
"""ns, 36 years: no work takes longer."""
_MOST_EXPONENT = 700.0
"""The largest exponent for which the power of e is finite."""


class ServiceKind(IntEnum):
    """The service model of a row of ``SERVICE``."""

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
        ("first", "i8"),  # index of its first quantile or time, among those of all consumers
        ("quantiles", "i8"),
        ("turn", "i8"),  # index of the next time, for times in order
    ],
    align=True,
)


@dataclass(frozen=True)
class Fixed:
    """Every message takes ``ns``; 0 is an infinitely fast application."""

    ns: float = 0

    def __post_init__(self) -> None:
        _check_not_negative("service.ns", self.ns)


@dataclass(frozen=True)
class PerByte:
    """A message of n bytes takes ``ns + n * ns_per_byte``."""

    ns_per_byte: float
    ns: float = 0

    def __post_init__(self) -> None:
        _check_not_negative("service.ns", self.ns)
        _check_not_negative("service.ns_per_byte", self.ns_per_byte)


@dataclass(frozen=True)
class LogNormal:
    """Log-normal times: half of the messages take less than ``median_ns``; ``sigma`` is that of the logarithm."""

    median_ns: float
    sigma: float

    def __post_init__(self) -> None:
        _check_not_negative("service.median_ns", self.median_ns)
        _check_not_negative("service.sigma", self.sigma)


@dataclass(frozen=True)
class Empirical:
    """Times distributed like recorded ones: ``quantiles_ns`` are the quantiles 0, 1/n, …, 1, interpolated linearly.

    >>> Empirical.from_times([30, 10, 20]).quantiles_ns
    (10.0, 20.0, 30.0)
    """

    quantiles_ns: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.quantiles_ns:
            raise ConfigError("service.quantiles_ns is empty; give at least one time.")
        _check_not_negative("service.quantiles_ns", self.quantiles_ns[0])
        if any(one > two for one, two in pairwise(self.quantiles_ns)):
            raise ConfigError(f"service.quantiles_ns must be in ascending order, but are {self.quantiles_ns}.")

    @classmethod
    def from_times(cls, times_ns: Sequence[float] | NDArray[np.float64], most: int = 1000) -> Empirical:
        """Build the model of recorded times (ns) with at most ``most`` equal steps.

        Raises ConfigError if there are none.
        """
        if not len(times_ns):
            raise ConfigError(
                "service: the deliveries have no recorded times, so no service model can be fitted. "
                "Set the service explicitly."
            )
        steps = min(most, max(len(times_ns) - 1, 1))
        return cls(tuple(np.quantile(np.asarray(times_ns, np.float64), np.linspace(0, 1, steps + 1)).tolist()))


@dataclass(frozen=True)
class TimesInOrder:
    """The n-th message of a consumer takes ``times_ns[n]``; after the last time the first one follows again."""

    times_ns: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.times_ns:
            raise ConfigError("service.times_ns is empty; give at least one time.")
        _check_not_negative("service.times_ns", min(self.times_ns))


Service: TypeAlias = Fixed | PerByte | LogNormal | Empirical | TimesInOrder


def write_service(row: Records, service: Service, factor: float, first: int) -> tuple[float, ...]:
    """Fill a row of ``SERVICE``; return the quantiles or times to store at ``first``."""
    quantiles: tuple[float, ...] = ()
    row.factor, row.first = factor, first
    if isinstance(service, LogNormal):
        row.kind, row.ns, row.sigma = ServiceKind.LOGNORMAL, service.median_ns, service.sigma
    elif isinstance(service, Empirical):
        row.kind, quantiles = ServiceKind.EMPIRICAL, service.quantiles_ns
    elif isinstance(service, TimesInOrder):
        row.kind, quantiles = ServiceKind.IN_TURN, service.times_ns
    else:
        row.kind, row.ns = ServiceKind.LINEAR, service.ns
        row.ns_per_byte = service.ns_per_byte if isinstance(service, PerByte) else 0
    row.quantiles = len(quantiles)
    return quantiles


@hot
def draw_service_time(services: Records, consumer: int, quantiles: NDArray[np.float64], size: int, draw: int) -> int:
    """Return how long a consumer processes a message of ``size`` bytes; ``draw`` is its random number
    (``draw_bits``)."""
    service_row = services[consumer]
    if service_row.kind == ServiceKind.LINEAR:
        return _round_ns(service_row.ns + service_row.ns_per_byte * size, service_row.factor)
    if service_row.kind == ServiceKind.LOGNORMAL:
        return _round_ns(
            service_row.ns * math.exp(min(service_row.sigma * _to_normal(draw), _MOST_EXPONENT)), service_row.factor
        )
    if service_row.kind == ServiceKind.IN_TURN:
        turn = service_row.turn
        service_row.turn = (turn + 1) % service_row.quantiles
        return _round_ns(quantiles[service_row.first + turn], service_row.factor)
    rank = to_uniform(draw) * (service_row.quantiles - 1)
    below = int(rank)
    above = min(below + 1, service_row.quantiles - 1)
    low, high = quantiles[service_row.first + below], quantiles[service_row.first + above]
    return _round_ns(low + (high - low) * (rank - below), service_row.factor)


@inlined
def _round_ns(ns: float, factor: float) -> int:
    return int(min(min(ns, LONGEST) * factor, LONGEST) + 0.5)


@inlined
def draw_bits(seed: int, one: int, two: int, three: int) -> int:
    """Return 64 random bits that belong to these numbers (the finaliser of SplitMix64, once for each)."""
    bits = np.uint64(seed)
    for number in (one, two, three):
        bits = _mix_bits(bits ^ (np.uint64(number) * np.uint64(0x9E3779B97F4A7C15)))
    return np.int64(bits)  # type: ignore[return-value]


@inlined
def to_uniform(draw: int) -> float:
    """Return a number in [0, 1) from random bits."""
    return (np.uint64(draw) >> np.uint64(11)) * 2.0**-53


@inlined
def _to_normal(draw: int) -> float:
    """Return a normally distributed number (the first one of the Box-Muller transform)."""
    second_bits = np.int64(_mix_bits(np.uint64(draw)))
    return math.sqrt(-2 * math.log(1 - to_uniform(draw))) * math.cos(2 * math.pi * to_uniform(second_bits))  # type: ignore[arg-type]


@inlined
def _mix_bits(bits: np.uint64) -> np.uint64:
    bits += np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
