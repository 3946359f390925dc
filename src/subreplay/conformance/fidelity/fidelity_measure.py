"""Measure how faithfully the dispatch replay re-enacts the behaviour of a real broker.

The inputs are the log with its read times, the consumers, and their acknowledgements, redelivery requests and permits,
as far as the broker's events and log contain them (``replay_inputs``), and its state at each failover
(``membership_changes``). The re-enactment decides everything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from subreplay.conformance.fidelity.blocked_entries import BlockedEntries
from subreplay.conformance.fidelity.dispatch_comparison import (
    DeadLetterCounts,
    DispatcherComparison,
    MissedEntry,
    SwitchTime,
    compare_dispatches,
)
from subreplay.conformance.fidelity.dispatch_reenactment import reenact_dispatcher
from subreplay.conformance.fidelity.recorded_dispatchers import (
    RecordedDispatcher,
    find_recorded_profile,
    read_recorded_dispatchers,
)
from subreplay.conformance.fidelity.replay_inputs import ReplayInputs, build_inputs
from subreplay.errors import InputError
from subreplay.simulation.pulsar.broker.broker_records import Records

TYPES_WITH_GUARANTEE = ("Key_Shared", "Failover", "Exclusive")
"""The subscription types for which the same consumer is guaranteed.

The next consumer of a Shared subscription depends on the size of each read and on permits that arrive during dispatch.
No recording contains both exactly.
"""
REQUIRED_PERCENT = 99.9
"""The percentage of dispatches that must go to the same consumer."""


class DispatcherReenactment(NamedTuple):
    """A dispatcher: the recording, the inputs of its re-enactment, and the replayed dispatches."""

    recorded: RecordedDispatcher
    inputs: ReplayInputs
    replayed: Records


@dataclass(frozen=True)
class FidelityResult:
    """A recording compared with its re-enactment; the figures are sums over all dispatchers."""

    name: str
    profile: str
    dispatchers: tuple[DispatcherComparison, ...]

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(d.type for d in self.dispatchers))

    @property
    def compared(self) -> int:
        return sum(d.compared for d in self.dispatchers)

    @property
    def same_consumer(self) -> float:
        """The percentage of compared dispatches with the same consumer."""
        return compute_percent(sum(d.same_consumer for d in self.dispatchers), self.compared)

    @property
    def missed_entries(self) -> tuple[MissedEntry, ...]:
        """The entries that went to other consumers although the rules require the same ones."""
        return tuple(missed for d in self.dispatchers for missed in d.missed_entries)

    @property
    def exempt(self) -> int:
        """The number of dispatches that match only because a change was in progress."""
        return sum(d.exempt for d in self.dispatchers)

    @property
    def same_order(self) -> float:
        """The percentage of dispatches in the same order, of those that both sides made to a consumer."""
        return compute_percent(sum(d.same_order for d in self.dispatchers), sum(d.ordered for d in self.dispatchers))

    @property
    def same_count(self) -> float:
        """The percentage of recorded dispatches with the same redelivery count."""
        return compute_percent(sum(d.same_count for d in self.dispatchers), sum(d.recorded for d in self.dispatchers))

    @property
    def blocked(self) -> tuple[BlockedEntries, ...]:
        return tuple(d.blocked for d in self.dispatchers)

    @property
    def switches(self) -> tuple[SwitchTime, ...]:
        return tuple(switch for d in self.dispatchers for switch in d.switches)

    @property
    def dead(self) -> tuple[DeadLetterCounts, ...]:
        return tuple(d.dead for d in self.dispatchers if d.dead)

    def find_time_error(self, quantile: float) -> float:
        """Return the quantile (0 to 1) of the difference between replayed and recorded delivery times, in ms."""
        errors = np.abs(np.concatenate([d.errors for d in self.dispatchers]))
        return float(np.quantile(errors, quantile)) / 1e6 if len(errors) else 0.0

    @property
    def is_guaranteed(self) -> bool:
        return all(kind in TYPES_WITH_GUARANTEE for kind in self.types)

    @property
    def passed(self) -> bool:
        """Whether the consumers are the same where this is guaranteed."""
        return not self.is_guaranteed or self.same_consumer >= REQUIRED_PERCENT


def compute_percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 100.0


def measure_fidelity(folder: Path, profile: str | None = None) -> FidelityResult:
    """Re-enact every dispatcher of a recording under ``profile``, or that of the broker's version.

    Raises InputError for an unreadable folder, ConfigError for a profile without the policy.
    """
    effective_profile = profile or find_recorded_profile(folder)
    return compare_recording(folder, effective_profile, list_reenactments(folder, effective_profile))


def list_reenactments(folder: Path, profile: str) -> Iterator[DispatcherReenactment]:
    """Yield every dispatcher of a recording with its re-enactment."""
    for recorded in read_recorded_dispatchers(folder, profile):
        inputs = build_inputs(recorded)
        yield DispatcherReenactment(recorded, inputs, reenact_dispatcher(recorded, inputs))


def compare_recording(folder: Path, profile: str, sides: Iterable[DispatcherReenactment]) -> FidelityResult:
    """Compare the re-enactments of a recording with it. Raises InputError if it contains no dispatch."""
    comparisons = tuple(compare_dispatches(*side) for side in sides)
    if not any(comparison.recorded for comparison in comparisons):
        raise InputError(
            f"{folder}: the recording contains no dispatch, so there is nothing to compare. Record while consumers run."
        )
    return FidelityResult(folder.resolve().name, profile, comparisons)
