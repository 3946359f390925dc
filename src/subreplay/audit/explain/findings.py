"""Findings in words: the sentence, the witness rows, and the membership event that explains them.

A subscription that breaks its promise at every message has as many findings as deliveries, so whole columns are put
into words, not rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.audit.attribution import UNASSIGNED, find_party
from subreplay.audit.codes import LAST_CHUNK, LEGAL, Code, Exemption
from subreplay.audit.explain import wording
from subreplay.audit.explain.causes import Causes, unassigned
from subreplay.audit.explain.sentences import Words
from subreplay.audit.findings import CHUNK, DELAYED, SEPARATOR, UNOWNED
from subreplay.audit.judge import Judge
from subreplay.audit.rules.registry import RULES
from subreplay.rows.model.columns import DAY, UNKNOWN, Ints, column, flags, gathered, ints
from subreplay.rows.model.tables import VIOLATIONS

_CHUNK: Final = (
    Exemption.PART_OF_CHUNKS.bit | Exemption.INCOMPLETE_CHUNKS.bit | LAST_CHUNK
)  # every chunk has one of them
WAITING = (Code.STUCK, Code.STALLED, Code.STARVED, Code.LATE)
"""Rules about how long messages wait."""


@dataclass(frozen=True)
class Explainer:
    """Turns judged rows into ``violations`` rows: every finding that fails, and the examples of those that do not."""

    judge: Judge
    subscription: str

    @property
    def _end(self) -> int:
        """Until when messages that never came have waited (ns); ``UNKNOWN``: nothing says."""
        return self.judge.horizon if self.judge.carries else self.judge.end

    def violations(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """``JUDGED`` rows, their key already in words -> ``VIOLATIONS`` rows."""
        causes = Causes(self.judge)
        for rows in gathered(batches):
            told = [*self._of(rows, causes)]
            if told:
                yield from pa.concat_tables(told).combine_chunks().to_batches()

    def _of(self, rows: pa.Table, causes: Causes) -> Iterator[pa.Table]:
        """The findings of some rows, code by code."""
        codes, exemptions, shown = (ints(rows, name) for name in ("codes", "excuses", "shown"))
        some = int(np.bitwise_or.reduce(codes, initial=0))
        for code in Code:
            if not some & code.bit:
                continue
            found = np.flatnonzero(codes & code.bit)
            exemption = _find_exemptions(code, exemptions[found])
            fails = ~np.isin(exemption, LEGAL) & bool(self.judge.promised & code.bit)
            kept = fails | (shown[found] & code.bit != 0)
            if kept.any():
                yield self._told(rows.take(pa.array(found[kept])), code, exemption[kept], causes)

    def _told(self, rows: pa.Table, code: Code, exemptions: Ints, causes: Causes) -> pa.Table:
        words = Words(rows, self._end, self.judge.dates, self.judge.terms.max_redeliveries or 0, self.judge.of_group)
        delivered = pa.array(flags(rows, "delivered"))
        moment = np.where(flags(rows, "delivered"), ints(rows, "at"), ints(rows, "published"))
        exemption = pa.array([e.sentence for e in Exemption]).take(pa.array(exemptions))
        rule = RULES[code]
        other = words.of(rule.evidence) if rule.evidence else pa.nulls(rows.num_rows, pa.string())
        verdicts = [str(rule.verdict(self.judge.rule_statuses[code], of)) for of in Exemption]
        parties = [find_party(code, of, self.judge.of_group, sought) for sought in (False, True) for of in Exemption]
        sought = causes.sought(rows, np.flatnonzero(exemptions == Exemption.RESET))
        sentence = wording.filled(rule.sentence, words.of)
        cause = causes.of(rows, code, epochs := causes.epochs(rows))
        attribution = pa.array(parties).take(pa.array(exemptions + len(Exemption) * sought))
        if code is Code.LOST and (skipped := causes.skipped(rows)).null_count < rows.num_rows:
            attribution = pc.if_else(skipped.is_valid(), "operator", attribution)
        if self.judge.of_group and code in WAITING:
            attribution = pc.if_else(pa.array(unassigned(rows)), UNASSIGNED, attribution)
        if code is Code.UNSEEN:  # what a rule about waiting says of the message explains it
            for waiting in WAITING:
                named = pa.array(ints(rows, "codes") & waiting.bit != 0)
                if pc.any(named).as_py():
                    party = find_party(waiting, Exemption.NONE, self.judge.of_group)
                    cause = pc.if_else(named, causes.of(rows, waiting, epochs), cause)
                    attribution = pc.if_else(named, party, attribution)
            if self.judge.of_group:
                attribution = pc.if_else(pa.array(unassigned(rows)), UNASSIGNED, attribution)
        columns = {
            "date": pa.array(moment // DAY).cast(pa.int32()).cast(pa.date32()),
            "subscription": pa.repeat(self.subscription, rows.num_rows),
            "code": pa.repeat(code.name, rows.num_rows),
            "verdict": pa.array(verdicts).take(pa.array(exemptions)),
            "excuse": pc.if_else(pc.equal(exemption, ""), wording.NOTHING, exemption),
            "moment": _micros(pa.array(moment)),
            "at": pc.if_else(delivered, _micros(column(rows, "at")), pa.scalar(None, VIOLATIONS.field("at").type)),
            "cause": cause,
            "witness": _lists(
                pc.if_else(delivered, words.of("delivery"), wording.NOTHING),
                other,
                words.of("skipped_others") if rule.evidence == "skipped" else pa.nulls(rows.num_rows, pa.string()),
            ),
            "attribution": attribution,
            "waited": words.waited_micros() if code in WAITING else pa.nulls(rows.num_rows, pa.int64()),
            "explanation": pc.if_else(pc.equal(exemption, ""), sentence, wording.joined(sentence, "; ", exemption)),
            "circumstances": _circumstances(rows),
        }
        given = [columns[f.name] if f.name in columns else column(rows, f.name).cast(f.type) for f in VIOLATIONS]
        return pa.table(given, schema=VIOLATIONS)


def _circumstances(rows: pa.Table) -> pa.Array:
    """What is particular about the messages of findings; null for nothing."""
    published = ints(rows, "published")
    holds = {
        DELAYED: (ints(rows, "due") > published) & (published != UNKNOWN),
        CHUNK: ints(rows, "excuses") & _CHUNK != 0,
        UNOWNED: (ints(rows, "slot") >= 0) & np.asarray(column(rows, "expected").is_null()),
    }
    named = [SEPARATOR.join(name for bit, name in enumerate(holds) if some >> bit & 1) for some in range(8)]
    which = sum(true.astype(np.int64) << bit for bit, true in enumerate(holds.values()))
    return pa.array([words or None for words in named], pa.string()).take(pa.array(which))


def _find_exemptions(code: Code, exemptions: Ints) -> Ints:
    """``codes.find_exemption`` of whole columns."""
    found = np.full(len(exemptions), Exemption.NONE, np.int64)
    for exemption in reversed(Exemption):
        if code in exemption.codes:
            found[exemptions & exemption.bit != 0] = exemption
    return found


def _micros(nanos: pa.Array) -> pa.Array:
    """Times in ns as the timestamps of a table."""
    return pa.array(np.asarray(nanos) // 1_000).cast(VIOLATIONS.field("at").type)


def _lists(*columns: pa.Array) -> pa.Array:
    """Lists of the columns' values, row by row, without those that are null or empty."""
    several, rows = len(columns), len(columns[0])
    given = pa.concat_arrays(columns).take(pa.array(np.arange(several * rows).reshape(several, rows).T.ravel()))
    said = np.asarray(pc.fill_null(pc.not_equal(given, ""), False))
    ends = np.cumsum(said.reshape(rows, several).sum(axis=1))
    return pa.ListArray.from_arrays(pa.array(np.append(0, ends), pa.int32()), given.filter(pa.array(said)))
