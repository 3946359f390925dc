"""Compute how much work a message is, and how long it waits at a consumer that processes one message at a time.

A service model is configured, or fitted from recorded deliveries. Utilisation is the work that arrives divided by the
work that can be done: in a window of one hour, a consumer can do one hour of work. The latency is that of one queue for
each consumer, whose application processes messages as they arrive. Permits never run out in it, no message fails and
none is blocked. It is therefore a lower bound of the latency that the dispatch replay computes for the same owners.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subreplay.errors import InputError
from subreplay.kernels.compiled import compiled
from subreplay.rows.model.columns import UNKNOWN, Ints
from subreplay.simulation.pulsar.service_model import Empirical, Fixed, LogNormal, PerByte, Service, TimesInOrder

Floats = NDArray[np.float64]
MIN_TIMES = 20
"""The smallest number of recorded times that a fit needs."""


def compute_mean_work(service: Service, size: Ints, factor: float = 1.0) -> Ints:
    """Return the mean work (ns, rounded) of each message of these sizes (bytes) under a service model."""
    if isinstance(service, PerByte):
        mean: Floats = service.ns + service.ns_per_byte * np.asarray(size, np.float64)
    elif isinstance(service, LogNormal):
        mean = np.full(len(size), service.median_ns * math.exp(service.sigma**2 / 2))
    elif isinstance(service, Empirical):
        quantiles = np.array(service.quantiles_ns)
        mean = np.full(len(size), np.mean((quantiles[1:] + quantiles[:-1]) / 2) if len(quantiles) > 1 else quantiles[0])
    elif isinstance(service, TimesInOrder):
        mean = np.full(len(size), np.mean(service.times_ns))
    else:
        mean = np.full(len(size), service.ns)
    return np.asarray(np.rint(mean * factor), np.int64)


def draw_work(service: Service, size: Ints, factor: float = 1.0, seed: int = 0) -> Ints:
    """Return the work (ns) of each message, drawn at random if the model has a spread. Equal seeds draw equal times."""
    rng = np.random.default_rng(seed)
    if isinstance(service, LogNormal):
        times = service.median_ns * np.exp(service.sigma * rng.standard_normal(len(size)))
    elif isinstance(service, Empirical):
        steps = np.linspace(0, 1, len(service.quantiles_ns))
        times = np.interp(rng.random(len(size)), steps, service.quantiles_ns)
    elif isinstance(service, TimesInOrder):
        times = np.resize(np.array(service.times_ns, np.float64), len(size))
    else:
        return compute_mean_work(service, size, factor)
    return np.asarray(np.rint(times * factor), np.int64)


@dataclass(frozen=True)
class ServiceFit:
    """A service model fitted to recorded times (ns), and how well it fits.

    ``explained`` is the part of the variance that sizes explain (R²), 0 if there is no variance. ``off`` is the largest
    difference between the recorded and the modelled distribution of times (Kolmogorov and Smirnov's distance).
    ``by_consumer`` has the median of each consumer.
    """

    service: Service
    times: int
    median: float
    p99: float
    explained: float
    off: float
    by_consumer: tuple[tuple[str, float], ...]


def fit_service(received: Ints, acked: Ints, size: Ints, consumer: Sequence[str]) -> ServiceFit:
    """Fit the best service model: by size, log-normal, or empirical.

    Simpler models win if they are as good.

    ``received`` and ``acked`` (ns) are ``UNKNOWN`` where they were not recorded. Raises ``InputError`` if fewer than
    ``MIN_TIMES`` deliveries have both times.
    """
    known = (received != UNKNOWN) & (acked != UNKNOWN) & (acked >= received)
    if (count := int(known.sum())) < MIN_TIMES:
        missing = [name for name, times in (("received_at", received), ("acked_at", acked)) if (times == UNKNOWN).all()]
        reason = f"{' and '.join(missing)} is not recorded" if missing else f"only {count} of them have both times"
        raise InputError(
            f"service: cannot fit a service model: it needs received_at and acked_at of at least {MIN_TIMES} "
            f"deliveries, and {reason}. Record both times, or set plan.service."
        )
    times, sizes = (acked - received)[known].astype(np.float64), np.maximum(size[known], 0)
    names = np.asarray(consumer)[known]
    by_size, explained = _fit_line(times, sizes.astype(np.float64))
    candidates: list[Service] = [by_size, _fit_lognormal(times), Empirical.from_times(times)]
    off = [_measure_distance(times, draw_work(candidate, sizes).astype(np.float64)) for candidate in candidates]
    best = next(i for i, distance in enumerate(off) if distance <= min(off) + 0.02)  # as good as the best one
    return ServiceFit(
        candidates[best],
        count,
        float(np.median(times)),
        float(np.quantile(times, 0.99)),
        explained,
        off[best],
        tuple((str(name), float(np.median(times[names == name]))) for name in np.unique(names)),
    )


def _fit_line(times: Floats, sizes: Floats) -> tuple[Service, float]:
    """Fit times over sizes by least squares without negative parts; also return R²."""
    spread = float(np.var(sizes))
    slope = float(np.mean((sizes - sizes.mean()) * (times - times.mean()))) / spread if spread else 0.0
    fixed = float(times.mean()) - slope * float(sizes.mean())
    if slope <= 0 or fixed < 0:
        slope = max(float((times * sizes).sum()) / float((sizes**2).sum()), 0.0) if slope > 0 else 0.0
        fixed = 0.0 if slope else float(times.mean())
    total = float(((times - times.mean()) ** 2).sum())
    residual = float(((times - fixed - slope * sizes) ** 2).sum())
    explained = max(0.0, 1 - residual / total) if total else 0.0
    return (PerByte(slope, fixed) if slope else Fixed(fixed)), explained


def _fit_lognormal(times: Floats) -> LogNormal:
    logs = np.log(np.maximum(times, 1.0))
    return LogNormal(math.exp(float(np.median(logs))), float(logs.std()))


def _measure_distance(one: Floats, two: Floats) -> float:
    points = np.sort(np.concatenate([one, two]))
    shares = [np.searchsorted(np.sort(times), points, "right") / len(times) for times in (one, two)]
    return float(np.abs(shares[0] - shares[1]).max())


@compiled
def measure_waits_of_owners(at: Ints, work: Ints, owner: Ints, consumers: int) -> Ints:  # pragma: no cover - compiled
    """Return the latency (ns) of each message from publication to the end of its work, in order of ``at``.

    Each consumer processes its own messages one at a time and in order. The latency is -1 for messages without an
    owner.
    """
    free = np.zeros(consumers, np.int64)
    latency = np.full(len(at), -1, np.int64)
    for i in range(len(at)):
        consumer = owner[i]
        if consumer >= 0:
            free[consumer] = max(free[consumer], at[i]) + work[i]
            latency[i] = free[consumer] - at[i]
    return latency


@compiled
def measure_shared_waits(at: Ints, work: Ints, consumers: int) -> Ints:  # pragma: no cover - compiled
    """Return the latencies (ns) if the first free consumer takes each message, the lower bound of all sharing."""
    free = [np.int64(0) for _ in range(consumers)]  # a heap, the smallest first
    latency = np.zeros(len(at), np.int64)
    for i in range(len(at)):
        end = max(free[0], at[i]) + work[i]
        latency[i] = end - at[i]
        index = 0
        while 2 * index + 1 < consumers:
            child = 2 * index + 1
            if child + 1 < consumers and free[child + 1] < free[child]:
                child += 1
            if free[child] >= end:
                break
            free[index] = free[child]
            index = child
        free[index] = end
    return latency


def find_quantile(latency: Ints, share: float) -> int:
    """Return the smallest latency that ``share`` of the messages do not exceed; 0 if there are no messages."""
    if not len(latency):
        return 0
    rank = max(math.ceil(share * len(latency)) - 1, 0)
    return int(np.partition(latency, rank)[rank])
