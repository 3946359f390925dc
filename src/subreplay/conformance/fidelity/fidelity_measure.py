"""How faithfully the dispatch replay re-enacts what a real broker did: recordings in, figures out.

Given are the log and when it was read, the consumers, their acknowledgements, redelivery requests and permits, all as
the broker saw them, as far as its events and its log tell it (``inputs.inputs``); and how a failover found the
dispatcher (``changes``). All else is the re-enactment's own decision.
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
"""The subscription types for which the same consumer is promised. Who is next on a Shared subscription depends on how
many entries each read brought and on permits that came while they were handed out: no recording tells both exactly."""
REQUIRED_PERCENT = 99.9
"""Percent of dispatches to the same consumer."""


class DispatcherReenactment(NamedTuple):
    """A dispatcher: what was recorded, what its re-enactment is given, and what that does."""

    recorded: RecordedDispatcher
    inputs: ReplayInputs
    replayed: Records


@dataclass(frozen=True)
class FidelityResult:
    """A recording against its re-enactment, dispatcher by dispatcher; the figures are of all together."""

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
        """Percent of the dispatches compared."""
        return compute_percent(sum(d.same_consumer for d in self.dispatchers), self.compared)

    @property
    def missed_entries(self) -> tuple[MissedEntry, ...]:
        """The entries that went to other consumers although they are the same on both sides by the rules."""
        return tuple(missed for d in self.dispatchers for missed in d.missed_entries)

    @property
    def exempt(self) -> int:
        """Dispatches of the same consumer only in so far as a change was under way."""
        return sum(d.exempt for d in self.dispatchers)

    @property
    def same_order(self) -> float:
        """Percent of the dispatches that both sides made to a consumer."""
        return compute_percent(sum(d.same_order for d in self.dispatchers), sum(d.ordered for d in self.dispatchers))

    @property
    def same_count(self) -> float:
        """Percent of the recorded dispatches with the same redelivery count."""
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
        """The quantile (0 to 1) of how far a replayed delivery time is from the recorded one, in ms."""
        errors = np.abs(np.concatenate([d.errors for d in self.dispatchers]))
        return float(np.quantile(errors, quantile)) / 1e6 if len(errors) else 0.0

    @property
    def is_guaranteed(self) -> bool:
        return all(kind in TYPES_WITH_GUARANTEE for kind in self.types)

    @property
    def passed(self) -> bool:
        """Whether the consumers are the same where this is promised."""
        return not self.is_guaranteed or self.same_consumer >= REQUIRED_PERCENT


def compute_percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 100.0


def measure_fidelity(folder: Path, profile: str | None = None) -> FidelityResult:
    """Re-enact every dispatcher of a recording under ``profile``, or the one of the broker's version.

    Raises InputError for a folder that is not understood, ConfigError for a profile that has not the policy.
    """
    effective_profile = profile or find_recorded_profile(folder)
    return compare_recording(folder, effective_profile, list_reenactments(folder, effective_profile))


def list_reenactments(folder: Path, profile: str) -> Iterator[DispatcherReenactment]:
    """Every dispatcher of a recording, re-enacted."""
    for recorded in read_recorded_dispatchers(folder, profile):
        inputs = build_inputs(recorded)
        yield DispatcherReenactment(recorded, inputs, reenact_dispatcher(recorded, inputs))


def compare_recording(folder: Path, profile: str, sides: Iterable[DispatcherReenactment]) -> FidelityResult:
    """The re-enactments of a recording beside what was recorded. Raises InputError where nothing was dispatched."""
    comparisons = tuple(compare_dispatches(*side) for side in sides)
    if not any(comparison.recorded for comparison in comparisons):
        raise InputError(
            f"{folder}: the recording contains no dispatch, so there is nothing to compare. Record while consumers run."
        )
    return FidelityResult(folder.resolve().name, profile, comparisons)
