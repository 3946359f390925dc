"""Say how close predictions of the same kind came to real brokers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from subreplay.conformance.prediction_table import KINDS, UNMODELLED_MS, find_errors, read_predicted_runs
from subreplay.conformance.run_figures import find_kind
from subreplay.reports.data import ScenarioView
from subreplay.semantics.policies import REGISTRY

MIN_VARIATION: Final = 0.5
"""A smaller variation (percentage points) is not mentioned."""


def describe_prediction_errors(
    scenarios: Iterable[ScenarioView], replayed: bool, variation_by_ids: Mapping[str, float]
) -> tuple[str, ...]:
    """Return a sentence for each kind of policy, and for each scenario whose shares depend on random ids.

    ``replayed`` is whether latencies are predicted, too; ``variation_by_ids`` is that of ``Figures``.
    """
    kinds = dict.fromkeys(find_kind(REGISTRY[scenario.policy]) for scenario in scenarios)
    errors = (sentence for kind in kinds for sentence in _describe_kind(kind, replayed))
    return (*errors, *_describe_variation(variation_by_ids))


def _describe_variation(variation_by_ids: Mapping[str, float]) -> Iterator[str]:
    for scenario, points in variation_by_ids.items():
        if points >= MIN_VARIATION:
            yield (
                f"{scenario}: a consumer's share varies by up to {points:.0f} percentage points, depending on member "
                "ids. Clients draw them at random, and the assignor sorts by them."
            )


def _describe_kind(kind: str, replayed: bool) -> Iterator[str]:
    errors = find_errors(kind, read_predicted_runs())
    if errors is None:
        return
    bounds = f"{max(errors.load, 0.1):.1f} percentage points of each consumer's share"
    if replayed:
        percent = f"{errors.p99_percent:.0f}%, or {UNMODELLED_MS:.0f} ms," if errors.p99_percent else "100 ms"
        bounds += f" and {percent} of the 99th percentile of latency"
    runs = f"all {errors.runs}" if errors.within == errors.runs else f"{errors.within} of {errors.runs}"
    yield f"{KINDS[kind]}: predictions came within {bounds} in {runs} runs on real brokers."
