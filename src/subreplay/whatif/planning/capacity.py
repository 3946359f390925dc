"""How much work a message is, and how long it waits at a consumer that works on one message at a time.

A service model is given, or fitted from recorded deliveries. Utilisation is the work that arrives over the work that
can be done: a window of one hour has one hour of a consumer's work. The latency is that of a queue for each consumer,
in which the application works on messages as they come. No permit is ever missing in it, nothing fails and nothing is
held back: it is a lower bound of what the dispatch replay gives for the same owners, which has all of this.
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
from subreplay.simulation.pulsar.service_model import Empirical, Fixed, InTurn, LogNormal, PerByte, Service

Floats = NDArray[np.float64]
FEWEST_TIMES = 20
"""So many recorded times a fit needs at least."""


def mean_work(service: Service, size: Ints, factor: float = 1.0) -> Ints:
    """The work (ns, rounded) that each message of so many bytes is on average under a service model."""
    if isinstance(service, PerByte):
        mean: Floats = service.ns + service.ns_per_byte * np.asarray(size, np.float64)
    elif isinstance(service, LogNormal):
        mean = np.full(len(size), service.median_ns * math.exp(service.sigma**2 / 2))
    elif isinstance(service, Empirical):
        quantiles = np.array(service.quantiles_ns)
        mean = np.full(len(size), np.mean((quantiles[1:] + quantiles[:-1]) / 2) if len(quantiles) > 1 else quantiles[0])
    elif isinstance(service, InTurn):
        mean = np.full(len(size), np.mean(service.times_ns))
    else:
        mean = np.full(len(size), service.ns)
    return np.asarray(np.rint(mean * factor), np.int64)


def drawn_work(service: Service, size: Ints, factor: float = 1.0, seed: int = 0) -> Ints:
    """The work (ns) of each message, drawn where the model has a spread; the same seed draws the same times."""
    draws = np.random.default_rng(seed)
    if isinstance(service, LogNormal):
        times = service.median_ns * np.exp(service.sigma * draws.standard_normal(len(size)))
    elif isinstance(service, Empirical):
        steps = np.linspace(0, 1, len(service.quantiles_ns))
        times = np.interp(draws.random(len(size)), steps, service.quantiles_ns)
    elif isinstance(service, InTurn):
        times = np.resize(np.array(service.times_ns, np.float64), len(size))
    else:
        return mean_work(service, size, factor)
    return np.asarray(np.rint(times * factor), np.int64)


@dataclass(frozen=True)
class Fit:
    """A service model of recorded times (ns), and how well it tells them.

    ``explained`` is the part of the times' variance that sizes explain (R²), 0 where there is none. ``off`` is the
    largest difference between the shares of recorded and of modelled times below any time (Kolmogorov and Smirnov's
    distance). ``by_consumer`` has the median of each consumer.
    """

    service: Service
    times: int
    median: float
    p99: float
    explained: float
    off: float
    by_consumer: tuple[tuple[str, float], ...]


def fit(received: Ints, acked: Ints, size: Ints, consumer: Sequence[str]) -> Fit:
    """The model that fits best of those by size, log-normal and as recorded; simpler ones win where they are as good.

    ``received`` and ``acked`` (ns) are ``UNKNOWN`` where they were not recorded. Raises ``InputError`` where fewer than
    ``FEWEST_TIMES`` deliveries have both: nothing else tells how long an application worked.
    """
    known = (received != UNKNOWN) & (acked != UNKNOWN) & (acked >= received)
    if (found := int(known.sum())) < FEWEST_TIMES:
        lacking = [name for name, times in (("received_at", received), ("acked_at", acked)) if (times == UNKNOWN).all()]
        why = f"{' and '.join(lacking)} is nowhere recorded" if lacking else f"only {found} deliveries have both times"
        raise InputError(
            f"service: a model is fitted from received_at and acked_at of deliveries, and {why}; "
            "record them, or give plan.service"
        )
    times, sizes = (acked - received)[known].astype(np.float64), np.maximum(size[known], 0)
    names = np.asarray(consumer)[known]
    by_size, explained = _line(times, sizes.astype(np.float64))
    candidates: list[Service] = [by_size, _lognormal(times), Empirical.of(times)]
    off = [_distance(times, drawn_work(one, sizes).astype(np.float64)) for one in candidates]
    best = next(i for i, distance in enumerate(off) if distance <= min(off) + 0.02)  # as good as the best one
    return Fit(
        candidates[best],
        found,
        float(np.median(times)),
        float(np.quantile(times, 0.99)),
        explained,
        off[best],
        tuple((str(name), float(np.median(times[names == name]))) for name in np.unique(names)),
    )


def _line(times: Floats, sizes: Floats) -> tuple[Service, float]:
    """Least squares of times over sizes, neither part below 0, and R²."""
    spread = float(np.var(sizes))
    slope = float(np.mean((sizes - sizes.mean()) * (times - times.mean()))) / spread if spread else 0.0
    fixed = float(times.mean()) - slope * float(sizes.mean())
    if slope <= 0 or fixed < 0:
        slope = max(float((times * sizes).sum()) / float((sizes**2).sum()), 0.0) if slope > 0 else 0.0
        fixed = 0.0 if slope else float(times.mean())
    total = float(((times - times.mean()) ** 2).sum())
    left = float(((times - fixed - slope * sizes) ** 2).sum())
    explained = max(0.0, 1 - left / total) if total else 0.0
    return (PerByte(slope, fixed) if slope else Fixed(fixed)), explained


def _lognormal(times: Floats) -> LogNormal:
    logs = np.log(np.maximum(times, 1.0))
    return LogNormal(math.exp(float(np.median(logs))), float(logs.std()))


def _distance(one: Floats, two: Floats) -> float:
    points = np.sort(np.concatenate([one, two]))
    shares = [np.searchsorted(np.sort(times), points, "right") / len(times) for times in (one, two)]
    return float(np.abs(shares[0] - shares[1]).max())


@compiled
def waits_of_owners(at: Ints, work: Ints, owner: Ints, consumers: int) -> Ints:  # pragma: no cover - compiled
    """The latency (ns) of each message from publication to the end of its work, in order of ``at``.

    Each consumer works on its own messages, one at a time and in order. -1 where a message has no owner.
    """
    free = np.zeros(consumers, np.int64)
    latency = np.full(len(at), -1, np.int64)
    for i in range(len(at)):
        mine = owner[i]
        if mine >= 0:
            free[mine] = max(free[mine], at[i]) + work[i]
            latency[i] = free[mine] - at[i]
    return latency


@compiled
def waits_of_anybody(at: Ints, work: Ints, consumers: int) -> Ints:  # pragma: no cover - compiled
    """The same where the consumer that is free first takes each message: nobody who may share can do better."""
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


def quantile(latency: Ints, share: float) -> int:
    """The smallest latency that ``share`` of the messages do not exceed; 0 for no messages."""
    if not len(latency):
        return 0
    rank = max(math.ceil(share * len(latency)) - 1, 0)
    return int(np.partition(latency, rank)[rank])
