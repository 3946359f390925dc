"""Clocks that are off by a constant: which consumers' times are shifted against the others', and by how much.

Nothing is received or acknowledged before it was dispatched, and nothing is dispatched before it was due. Of three lags
that a consumer's times show (``LAGS``), the quickest one in a hundred says what its clock adds to the way:

* *behind*: one lag in ten is negative, by more than clocks may differ. That cannot be.
* *ahead*: even the quickest are late, by more than clocks may differ, and half of all are hardly later than these. Who
  is slow, stuck or has a full queue is late by something else each time.

By acknowledgements alone nobody is ahead: work that always takes as long looks the same. By dispatches alone nobody is
off where no other consumer is in time: then it may be the producers' clocks. Fewer than ``FEW`` deliveries tell
nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final, NamedTuple

from subreplay.audit.codes import Code, Excuse
from subreplay.audit.rules.registry import RULES
from subreplay.model.rows import Standing, Verdict

FEW: Final = 20
QUANTILES: Final = (0.01, 0.1, 0.5)
LAGS: Final = {
    "dispatch": ("at", "received_at", "acked_at", "nacked_at"),
    "receipt": ("received_at", "acked_at", "nacked_at"),
    "end": ("acked_at", "nacked_at"),
}
"""From the time a message was due to its first dispatch, and from a dispatch to its receipt and to its acknowledgement;
with each the ``LOG`` columns that a clock has written which this lag shows to be off."""
_STEADY: Final = 5  # half of the lags are within a fifth of the shift
_NAMED: Final = 4  # consumers in a sentence


class Shift(NamedTuple):
    """The clock of ``consumer`` is ahead by so many ns, or behind where negative, and wrote ``columns`` of ``LOG``."""

    consumer: str
    by: int
    columns: tuple[str, ...]

    @property
    def words(self) -> str:
        """How far it is off."""
        return f"{abs(self.by) / 1e9:.2f} s {'ahead of' if self.by > 0 else 'behind'}"


def shifts(rows: Sequence[Mapping[str, Any]], least: int) -> tuple[Shift, ...]:
    """Consumers whose clocks are off by at least so many ns (``Terms.clock_skew``).

    A row has the ``consumer``; by the name of each of ``LAGS`` how many there are as ``count`` and their ``QUANTILES``
    in ns as ``lags``, None of none.
    """
    usual = {name: _usual([row[name] for row in rows], least) for name in LAGS}
    found = []
    for row in rows:
        off = {name: _off(row[name], usual[name] or 0, least, name) for name in LAGS}
        if usual["dispatch"] is None:
            off["dispatch"] = 0
        told = next((name for name in LAGS if off[name]), None)
        if told is not None:
            ends = told != "receipt" or _as_late(row["end"], row["receipt"], off[told])
            columns = LAGS[told] if ends else ("received_at",)
            found.append(Shift(row["consumer"], off[told], columns))
    return tuple(found)


def _usual(lags: Sequence[Mapping[str, Any]], least: int) -> int | None:
    """The quickest lags of consumers in time, None where nobody is."""
    quickest = [lag["lags"][0] for lag in lags if lag["count"] >= FEW]
    in_time = [lag for lag in quickest if abs(lag) < least]
    return round(median(in_time)) if in_time else None


def _off(lag: Mapping[str, Any], usual: int, least: int, name: str) -> int:
    """By how much a lag shows a clock to be off, in ns; 0: it does not."""
    if lag["count"] < FEW:
        return 0
    quickest, early, middle = lag["lags"]
    shift: int = quickest - usual
    if early < 0 and -early >= least:
        return shift
    ahead = name != "end" and shift > 0 and shift >= least and (middle - quickest) * _STEADY <= shift
    return shift if ahead else 0


def _as_late(end: Mapping[str, Any], receipt: Mapping[str, Any], shift: int) -> bool:
    """Whether acknowledgements are by the clock of the receipts: a broker's would not be near them."""
    if not end["count"]:
        return False
    apart: int = end["lags"][0] - receipt["lags"][0]
    return abs(apart) * 2 < abs(shift)


def failing(rows: Iterable[Mapping[str, Any]], standings: Mapping[Code, Standing]) -> Counter[Code]:
    """Findings that make a run *invalid*, by their rule; a row has ``code``, ``excuse`` and ``count``."""
    found: Counter[Code] = Counter()
    for row in rows:
        code = Code[row["code"]]
        if RULES[code].verdict(standings[code], Excuse(row["excuse"])) is Verdict.INVALID:
            found[code] += row["count"]
    return found


@dataclass(frozen=True)
class Clocks:
    """Clocks that are off, and what fails by them: findings of each rule as ``recorded`` and with clocks
    ``corrected``."""

    shifts: tuple[Shift, ...] = ()
    recorded: Mapping[Code, int] = field(default_factory=dict)
    corrected: Mapping[Code, int] = field(default_factory=dict)

    @property
    def explain(self) -> frozenset[Code]:
        """The rules that are broken as recorded, and kept with clocks corrected: nobody can say which is so."""
        return frozenset(self.recorded) - frozenset(self.corrected)

    @property
    def doubtful(self) -> bool:
        """Whether a rule is broken by one of both only."""
        return set(self.recorded) != set(self.corrected)

    @property
    def sentence(self) -> str:
        """What is off, and what that makes of the findings: a clause."""
        counts = [f"{sum(found.values()):,}" for found in (self.recorded, self.corrected)]
        return f"{self._who()}: {counts[0]} findings as recorded, {counts[1]} with {self._them} corrected"

    @property
    def _them(self) -> str:
        return "it" if len(self.shifts) == 1 else "them"

    def _who(self) -> str:
        if len(self.shifts) == 1:
            (one,) = self.shifts
            return f"the clock of {one.consumer} is {one.words} the broker's"
        named = ", ".join(f"{s.consumer} ({s.words} it)" for s in self.shifts[:_NAMED])
        left = len(self.shifts) - _NAMED
        return f"clocks differ from the broker's: {named}" + (f" and {left:,} more" if left > 0 else "")
