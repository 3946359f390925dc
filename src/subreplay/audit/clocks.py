"""Find clocks that are off by a constant: which consumers' times are shifted against the others', and by how much.

No message is received or acknowledged before its dispatch, and none is dispatched before it is due. The times of a
consumer show three lags (``LAGS``). The quickest one percent of each lag shows what the consumer's clock adds:

- *behind*: ten percent of the lags are negative by more than the allowed skew. That is impossible with a correct clock.
- *ahead*: even the quickest lags are late by more than the allowed skew, and half of all are hardly later than these. A
slow or stuck consumer, or one with a full queue, is late by a different time for each message.

A consumer that drains a backlog as fast as it was published is also late by a constant. But then the corrected times
break more rules than the recorded ones (``Clocks.likely``): it would have received messages before it joined.

Acknowledgements alone never show a clock that is ahead, because constant processing time looks the same. Dispatches
alone show nothing if no other consumer is in time: the clocks of the producers may be off. Fewer than ``FEWEST_LAGS``
deliveries show nothing.
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

FEWEST_LAGS: Final = 20
QUANTILES: Final = (0.01, 0.1, 0.5)
LAGS: Final = {
    "dispatch": ("at", "received_at", "acked_at", "nacked_at"),
    "receipt": ("received_at", "acked_at", "nacked_at"),
    "end": ("acked_at", "nacked_at"),
}
"""The lags from a message's due time to its first dispatch, and from a dispatch to its receipt and to its
acknowledgement; with the ``LOG`` columns that a clock with this lag has written."""
_STEADY: Final = 5  # half of the lags are within a fifth of the shift
_OCTAVES: Final = 20  # up to a million times the least shift: 12 days for a second
_NAMED: Final = 4  # consumers in a sentence


class ClockShift(NamedTuple):
    """The clock of ``consumer`` is ahead by so many ns (negative: behind), and wrote ``columns`` of ``LOG``."""

    consumer: str
    by: int
    columns: tuple[str, ...]

    @property
    def may_be_backlog(self) -> bool:
        """Whether its messages may instead have waited before their dispatch."""
        return self.by > 0 and "at" in self.columns

    @property
    def offset_text(self) -> str:
        """The offset of the clock, as text."""
        return f"{abs(self.by) / 1e9:.2f} s {'ahead of' if self.by > 0 else 'behind'}"


def find_shifts(rows: Sequence[Mapping[str, Any]], least: int) -> tuple[ClockShift, ...]:
    """Return the consumers whose clocks are off by at least so many ns (``Terms.clock_skew``).

    A row has the ``consumer`` and, by the name of each of ``LAGS``, their number as ``count`` and their ``QUANTILES``
    in ns as ``lags`` (None without lags).
    """
    usual = {name: _find_usual([row[name] for row in rows], least) for name in LAGS}
    found = []
    for row in rows:
        off = {name: _find_shift(row[name], usual[name] or 0, least, name) for name in LAGS}
        if usual["dispatch"] is None:
            off["dispatch"] = 0
        shifted_lag = next((name for name in LAGS if off[name]), None)
        if shifted_lag is not None:
            ends = shifted_lag != "receipt" or _are_equally_late(row["end"], row["receipt"], off[shifted_lag])
            columns = LAGS[shifted_lag] if ends else ("received_at",)
            found.append(ClockShift(row["consumer"], off[shifted_lag], columns))
    return tuple(found)


def _find_usual(lags: Sequence[Mapping[str, Any]], least: int) -> int | None:
    """Return the usual quickest lag of consumers in time; None if no consumer is in time."""
    quickest = [lag["lags"][0] for lag in lags if lag["count"] >= FEWEST_LAGS]
    in_time = [lag for lag in quickest if abs(lag) < least]
    return round(median(in_time)) if in_time else None


def _find_shift(lag: Mapping[str, Any], usual: int, least: int, name: str) -> int:
    """Return the clock offset (ns) that a lag shows; 0 for none."""
    if lag["count"] < FEWEST_LAGS:
        return 0
    quickest, early, middle = lag["lags"]
    shift: int = quickest - usual
    if early < 0 and -early >= least:
        return shift
    ahead = name != "end" and shift > 0 and shift >= least and (middle - quickest) * _STEADY <= shift
    return shift if ahead else 0


def _are_equally_late(end: Mapping[str, Any], receipt: Mapping[str, Any], shift: int) -> bool:
    """Return whether the clock of the receipts wrote the acknowledgements. A broker's acknowledgement times would not
    be near them."""
    if not end["count"]:
        return False
    apart: int = end["lags"][0] - receipt["lags"][0]
    return abs(apart) * 2 < abs(shift)


def compute_size_bounds(least: int) -> Ints:
    """Return the bounds (ns) of the size classes of lags: lag ``l`` has size ``searchsorted(sizes, l, "right")``.

    Up to twice the ``least`` detectable shift, a class is a quarter of it wide; above that, a fourth of an octave.
    """
    quarter = max(1, least // 4)
    near = np.arange(-8, 9) * quarter
    far = np.round(8 * quarter * 2.0 ** (np.arange(1, _OCTAVES * 4) / 4)).astype(np.int64)
    return np.unique(np.concatenate([-far, near, far]))


def may_be_off(counts: Iterable[Mapping[str, Any]], least: int) -> bool:
    """Return whether ``find_shifts`` may find a clock that is off, from lags counted by ``compute_size_bounds``.

    A row has the ``consumer``, the ``lag``, the number of a ``size`` and its number of ``messages``. Counts can be
    added up, unlike quantiles, so this is known before any delivery is read again.
    """
    bounds = [UNKNOWN, *compute_size_bounds(least).tolist(), NEVER]
    found: dict[tuple[str, str], Counter[int]] = {}
    for row in counts:
        found.setdefault((row["lag"], row["consumer"]), Counter())[row["size"]] += row["messages"]
    for name in LAGS:
        selected = [of for (lag, _), of in found.items() if lag == name and of.total() >= FEWEST_LAGS]
        quickest, early, middle = ([_find_span(of, share, bounds) for of in selected] for share in QUANTILES)
        usual = _find_lowest_usual(quickest, least)
        if usual is None:
            if name == "dispatch":
                continue
            usual = 0
        if any(_may_be_off(*spans, usual, least, name) for spans in zip(quickest, early, middle, strict=True)):
            return True
    return False


class _Span(NamedTuple):
    """The two sizes between which a quantile lies."""

    least: int
    most: int


def _find_span(counted: Mapping[int, int], share: float, bounds: Sequence[int]) -> _Span:
    """Return where a quantile may be, within a ten thousandth of the ranks. In doubtful cases the log is judged
    again."""
    known = sorted(counted)
    upto = np.cumsum([counted[size] for size in known])
    rank, off = share * int(upto[-1]), int(upto[-1]) / 10_000 + 2
    first, last = (min(int(np.searchsorted(upto, rank + by)), len(known) - 1) for by in (-off, off))
    return _Span(bounds[known[first]], bounds[known[last] + 1])


def _find_lowest_usual(quickest: Sequence[_Span], least: int) -> int | None:
    """Return the lower bound of the quickest lags of consumers in time; None if no consumer is in time."""
    maybe = [span for span in quickest if span.most >= -least and span.least < least]
    if not maybe:
        return None
    surely = all(span.least > -least and span.most <= least for span in maybe)
    return int(median(span.least for span in maybe)) - 1 if surely else -least


def _may_be_off(quickest: _Span, early: _Span, middle: _Span, usual: int, least: int, name: str) -> bool:
    """Apply the test of ``_find_shift`` to all values that the quantiles may have."""
    if early.least < 0 and -early.least >= least:
        return True
    shift = quickest.most - usual
    return name != "end" and shift >= least and (middle.least - quickest.most) * _STEADY <= shift


def count_failing(rows: Iterable[Mapping[str, Any]], rule_statuses: Mapping[Code, RuleStatus]) -> Counter[Code]:
    """Count the findings that make a run *invalid*, by rule. A row has ``code``, ``excuse`` and ``count``."""
    found: Counter[Code] = Counter()
    for row in rows:
        code = Code[row["code"]]
        if RULES[code].verdict(rule_statuses[code], Exemption(row["excuse"])) is Verdict.INVALID:
            found[code] += row["count"]
    return found


@dataclass(frozen=True)
class Clocks:
    """Clocks that are off, and the number of failing findings of each rule as ``recorded`` and with ``corrected``
    clocks."""

    shifts: tuple[ClockShift, ...] = ()
    recorded: Mapping[Code, int] = field(default_factory=dict)
    corrected: Mapping[Code, int] = field(default_factory=dict)

    @property
    def explain(self) -> frozenset[Code]:
        """The rules that are broken as recorded and kept with corrected clocks. The data do not show which times are
        right."""
        return frozenset(self.recorded) - frozenset(self.corrected)

    @property
    def inconclusive(self) -> bool:
        """Whether a rule is broken only with recorded, or only with corrected clocks."""
        return set(self.recorded) != set(self.corrected)

    @property
    def likely(self) -> tuple[ClockShift, ...]:
        """The shifts without those of a backlog. If corrected clocks that are ahead break more rules, the messages had
        waited."""
        worse = sum(self.corrected.values()) > sum(self.recorded.values())
        return tuple(shift for shift in self.shifts if not (worse and shift.may_be_backlog))

    @property
    def sentence(self) -> str:
        """A clause with the clock offsets and the numbers of findings."""
        counts = [f"{sum(found.values()):,}" for found in (self.recorded, self.corrected)]
        return f"{self._name_clocks()}: {counts[0]} findings as recorded, {counts[1]} with {self._them} corrected"

    @property
    def _them(self) -> str:
        return "it" if len(self.shifts) == 1 else "them"

    def _name_clocks(self) -> str:
        if len(self.shifts) == 1:
            (one,) = self.shifts
            return f"the clock of {one.consumer} is {one.offset_text} the broker's"
        named = ", ".join(f"{s.consumer} ({s.offset_text} it)" for s in self.shifts[:_NAMED])
        omitted = len(self.shifts) - _NAMED
        return f"clocks differ from the broker's: {named}" + (f" and {omitted:,} more" if omitted > 0 else "")
