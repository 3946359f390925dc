"""Clocks that are off by a constant: which consumers' times are shifted against the others', and by how much.

Nothing is received or acknowledged before it was dispatched, and nothing is dispatched before it was due. Of three lags
that a consumer's times show (``LAGS``), the quickest one in a hundred says what its clock adds to the way:

* *behind*: one lag in ten is negative, by more than clocks may differ. That cannot be.
* *ahead*: even the quickest are late, by more than clocks may differ, and half of all are hardly later than these. Who
  is slow, stuck or has a full queue is late by something else each time.

Who drains a backlog as fast as it was published is late by the same each time, too. But then more promises are broken
with its clock corrected than as recorded (``Clocks.likely``): it would have been served before it joined.

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

import numpy as np

from subreplay.audit.codes import Code, Exemption
from subreplay.audit.rules.registry import RULES
from subreplay.rows.model.columns import NEVER, UNKNOWN, Ints
from subreplay.rows.model.rows import RuleStatus, Verdict

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
_OCTAVES: Final = 20  # up to a million times the least shift: 12 days for a second
_NAMED: Final = 4  # consumers in a sentence


class Shift(NamedTuple):
    """The clock of ``consumer`` is ahead by so many ns, or behind where negative, and wrote ``columns`` of ``LOG``."""

    consumer: str
    by: int
    columns: tuple[str, ...]

    @property
    def may_be_backlog(self) -> bool:
        """Whether its messages may as well have waited before they were dispatched."""
        return self.by > 0 and "at" in self.columns

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


def sizes(least: int) -> Ints:
    """The bounds (ns) of the sizes by which lags are counted: lag ``l`` has size ``searchsorted(sizes, l, "right")``.

    Up to twice the ``least`` shift that tells they are quarters of it, and beyond that fourths of an octave."""
    quarter = max(1, least // 4)
    near = np.arange(-8, 9) * quarter
    far = np.round(8 * quarter * 2.0 ** (np.arange(1, _OCTAVES * 4) / 4)).astype(np.int64)
    return np.unique(np.concatenate([-far, near, far]))


def may_be_off(counts: Iterable[Mapping[str, Any]], least: int) -> bool:
    """Whether lags counted by ``sizes`` leave it open that ``shifts`` finds a clock off.

    A row has the ``consumer``, the ``lag``, the number of a ``size`` and how many ``messages`` had it. Counts add up,
    and quantiles do not; so this is known before any delivery is looked at again.
    """
    bounds = [UNKNOWN, *sizes(least).tolist(), NEVER]
    found: dict[tuple[str, str], Counter[int]] = {}
    for row in counts:
        found.setdefault((row["lag"], row["consumer"]), Counter())[row["size"]] += row["messages"]
    for name in LAGS:
        mine = [of for (lag, _), of in found.items() if lag == name and of.total() >= FEW]
        quickest, early, middle = ([_span(of, share, bounds) for of in mine] for share in QUANTILES)
        usual = _usual_at_least(quickest, least)
        if usual is None:
            if name == "dispatch":
                continue
            usual = 0
        if any(_may_be_off(*spans, usual, least, name) for spans in zip(quickest, early, middle, strict=True)):
            return True
    return False


class _Span(NamedTuple):
    """Two sizes between which a quantile is."""

    least: int
    most: int


def _span(counted: Mapping[int, int], share: float, bounds: Sequence[int]) -> _Span:
    """Where a quantile may be, within a ten thousandth of the ranks: a log is rather judged again than not."""
    known = sorted(counted)
    upto = np.cumsum([counted[size] for size in known])
    rank, off = share * int(upto[-1]), int(upto[-1]) / 10_000 + 2
    first, last = (min(int(np.searchsorted(upto, rank + by)), len(known) - 1) for by in (-off, off))
    return _Span(bounds[known[first]], bounds[known[last] + 1])


def _usual_at_least(quickest: Sequence[_Span], least: int) -> int | None:
    """What the quickest lags of consumers in time are at least, None where nobody is."""
    maybe = [span for span in quickest if span.most >= -least and span.least < least]
    if not maybe:
        return None
    surely = all(span.least > -least and span.most <= least for span in maybe)
    return int(median(span.least for span in maybe)) - 1 if surely else -least


def _may_be_off(quickest: _Span, early: _Span, middle: _Span, usual: int, least: int, name: str) -> bool:
    """What ``_off`` asks, of all values that quantiles may have."""
    if early.least < 0 and -early.least >= least:
        return True
    shift = quickest.most - usual
    return name != "end" and shift >= least and (middle.least - quickest.most) * _STEADY <= shift


def failing(rows: Iterable[Mapping[str, Any]], rule_statuses: Mapping[Code, RuleStatus]) -> Counter[Code]:
    """Findings that make a run *invalid*, by their rule; a row has ``code``, ``exemption`` and ``count``."""
    found: Counter[Code] = Counter()
    for row in rows:
        code = Code[row["code"]]
        if RULES[code].verdict(rule_statuses[code], Exemption(row["excuse"])) is Verdict.INVALID:
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
    def inconclusive(self) -> bool:
        """Whether a rule is broken by one of both only."""
        return set(self.recorded) != set(self.corrected)

    @property
    def likely(self) -> tuple[Shift, ...]:
        """The shifts without those of a backlog: where clocks that are ahead are corrected and more fails than before,
        their messages had waited."""
        worse = sum(self.corrected.values()) > sum(self.recorded.values())
        return tuple(shift for shift in self.shifts if not (worse and shift.may_be_backlog))

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
