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

from subreplay.conformance.fidelity.figures import Comparison, DeadLetters, Missed, Switch, compare
from subreplay.conformance.fidelity.held import Held
from subreplay.conformance.fidelity.inputs import Inputs, inputs
from subreplay.conformance.fidelity.recording import RecordedDispatcher, recorded_dispatchers, recorded_profile
from subreplay.conformance.fidelity.replay import reenacted
from subreplay.errors import InputError
from subreplay.simulation.pulsar.broker.broker_records import Records

PROMISED = ("Key_Shared", "Failover", "Exclusive")
"""The subscription types for which the same consumer is promised. Who is next on a Shared subscription depends on how
many entries each read brought and on permits that came while they were handed out: no recording tells both exactly."""
ENOUGH = 99.9
"""Percent of dispatches to the same consumer."""


class Reenactment(NamedTuple):
    """A dispatcher: what was recorded, what its re-enactment is given, and what that does."""

    recorded: RecordedDispatcher
    given: Inputs
    replayed: Records


@dataclass(frozen=True)
class Fidelity:
    """A recording against its re-enactment, dispatcher by dispatcher; the figures are of all together."""

    name: str
    profile: str
    dispatchers: tuple[Comparison, ...]

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(d.type for d in self.dispatchers))

    @property
    def compared(self) -> int:
        return sum(d.compared for d in self.dispatchers)

    @property
    def same_consumer(self) -> float:
        """Percent of the dispatches compared."""
        return percent(sum(d.same_consumer for d in self.dispatchers), self.compared)

    @property
    def missed(self) -> tuple[Missed, ...]:
        """The entries that went to other consumers although they are the same on both sides by the rules."""
        return tuple(missed for d in self.dispatchers for missed in d.missed)

    @property
    def excused(self) -> int:
        """Dispatches of the same consumer only in so far as a change was under way."""
        return sum(d.excused for d in self.dispatchers)

    @property
    def same_order(self) -> float:
        """Percent of the dispatches that both sides made to a consumer."""
        return percent(sum(d.same_order for d in self.dispatchers), sum(d.ordered for d in self.dispatchers))

    @property
    def same_count(self) -> float:
        """Percent of the recorded dispatches with the same redelivery count."""
        return percent(sum(d.same_count for d in self.dispatchers), sum(d.recorded for d in self.dispatchers))

    @property
    def held(self) -> tuple[Held, ...]:
        return tuple(d.held for d in self.dispatchers)

    @property
    def switches(self) -> tuple[Switch, ...]:
        return tuple(switch for d in self.dispatchers for switch in d.switches)

    @property
    def dead(self) -> tuple[DeadLetters, ...]:
        return tuple(d.dead for d in self.dispatchers if d.dead)

    def error(self, quantile: float) -> float:
        """The quantile (0 to 1) of how far a replayed delivery time is from the recorded one, in ms."""
        errors = np.abs(np.concatenate([d.errors for d in self.dispatchers]))
        return float(np.quantile(errors, quantile)) / 1e6 if len(errors) else 0.0

    @property
    def promised(self) -> bool:
        return all(kind in PROMISED for kind in self.types)

    @property
    def passed(self) -> bool:
        """Whether the consumers are the same where this is promised."""
        return not self.promised or self.same_consumer >= ENOUGH


def percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 100.0


def fidelity(folder: Path, profile: str | None = None) -> Fidelity:
    """Re-enact every dispatcher of a recording under ``profile``, or the one of the broker's version.

    Raises InputError for a folder that is not understood, ConfigError for a profile that has not the policy.
    """
    chosen = profile or recorded_profile(folder)
    return compared(folder, chosen, reenactments(folder, chosen))


def reenactments(folder: Path, profile: str) -> Iterator[Reenactment]:
    """Every dispatcher of a recording, re-enacted."""
    for recorded in recorded_dispatchers(folder, profile):
        given = inputs(recorded)
        yield Reenactment(recorded, given, reenacted(recorded, given))


def compared(folder: Path, profile: str, sides: Iterable[Reenactment]) -> Fidelity:
    """The re-enactments of a recording beside what was recorded. Raises InputError where nothing was dispatched."""
    comparisons = tuple(compare(*side) for side in sides)
    if not any(comparison.recorded for comparison in comparisons):
        raise InputError(f"{folder}: nothing was dispatched in this recording")
    return Fidelity(folder.resolve().name, profile, comparisons)
