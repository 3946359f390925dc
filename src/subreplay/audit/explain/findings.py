"""Explain judged rows: the sentence, the evidence, and the membership event that caused each finding.

A subscription that breaks its guarantee with every message has as many findings as deliveries. So this module works on
whole columns, not on rows.
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
from subreplay.audit.explain import text_columns
from subreplay.audit.explain.causes import Causes, find_unassigned
from subreplay.audit.explain.sentences import SentenceColumns
from subreplay.audit.findings import CHUNK, DELAYED, NO_OWNER, SEPARATOR
from subreplay.audit.judge import Judge
from subreplay.audit.rules.registry import RULES
from subreplay.rows.model.columns import DAY, UNKNOWN, Ints, column, flags, gather_batches, ints
from subreplay.rows.model.tables import VIOLATIONS

_CHUNK_BITS: Final = (
    Exemption.PART_OF_CHUNKS.bit | Exemption.INCOMPLETE_CHUNKS.bit | LAST_CHUNK
)  # every chunk has one of them
WAITING_CODES = (Code.STUCK, Code.STALLED, Code.STARVED, Code.LATE)
"""Rules about how long messages wait."""


@dataclass(frozen=True)
class Explainer:
    """Turns judged rows into rows of table ``violations``: every finding that fails, and examples of the others."""

    judge: Judge
    subscription: str

    @property
    def _end(self) -> int:
        """The instant (ns) until which undelivered messages waited; ``UNKNOWN`` if it is not known."""
        return self.judge.horizon if self.judge.has_next_day else self.judge.end

    def explain_violations(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Turn ``JUDGED`` rows with masked keys into ``VIOLATIONS`` rows."""
        causes = Causes(self.judge)
        for rows in gather_batches(batches):
            explained = [*self._explain_rows(rows, causes)]
            if explained:
                yield from pa.concat_tables(explained).combine_chunks().to_batches()

    def _explain_rows(self, rows: pa.Table, causes: Causes) -> Iterator[pa.Table]:
        """Yield the findings of some rows, code by code."""
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
                yield self._explain_code(rows.take(pa.array(found[kept])), code, exemption[kept], causes)

    def _explain_code(self, rows: pa.Table, code: Code, exemptions: Ints, causes: Causes) -> pa.Table:
        """Return the findings of one code as ``VIOLATIONS`` rows."""
        words = SentenceColumns(
            rows, self._end, self.judge.dates, self.judge.terms.max_redeliveries or 0, self.judge.is_group
        )
        delivered = pa.array(flags(rows, "delivered"))
        moment = np.where(flags(rows, "delivered"), ints(rows, "at"), ints(rows, "published"))
        exemption = pa.array([e.sentence for e in Exemption]).take(pa.array(exemptions))
        rule = RULES[code]
        other = words.get_text(rule.evidence) if rule.evidence else pa.nulls(rows.num_rows, pa.string())
        verdicts = [str(rule.verdict(self.judge.rule_statuses[code], of)) for of in Exemption]
        parties = [find_party(code, of, self.judge.is_group, sought) for sought in (False, True) for of in Exemption]
        sought = causes.find_sought(rows, np.flatnonzero(exemptions == Exemption.RESET))
        sentence = text_columns.fill_template(rule.sentence, words.get_text)
        cause = causes.find_causes(rows, code, epochs := causes.number_epochs(rows))
        attribution = pa.array(parties).take(pa.array(exemptions + len(Exemption) * sought))
        if code is Code.LOST and (skipped := causes.describe_skips(rows)).null_count < rows.num_rows:
            attribution = pc.if_else(skipped.is_valid(), "operator", attribution)
        if self.judge.is_group and code in WAITING_CODES:
            attribution = pc.if_else(pa.array(find_unassigned(rows)), UNASSIGNED, attribution)
        if code is Code.UNSEEN:  # what a rule about waiting says of the message explains it
            for waiting in WAITING_CODES:
                named = pa.array(ints(rows, "codes") & waiting.bit != 0)
                if pc.any(named).as_py():
                    party = find_party(waiting, Exemption.NONE, self.judge.is_group)
                    cause = pc.if_else(named, causes.find_causes(rows, waiting, epochs), cause)
                    attribution = pc.if_else(named, party, attribution)
            if self.judge.is_group:
                attribution = pc.if_else(pa.array(find_unassigned(rows)), UNASSIGNED, attribution)
        columns = {
            "date": pa.array(moment // DAY).cast(pa.int32()).cast(pa.date32()),
            "subscription": pa.repeat(self.subscription, rows.num_rows),
            "code": pa.repeat(code.name, rows.num_rows),
            "verdict": pa.array(verdicts).take(pa.array(exemptions)),
            "excuse": pc.if_else(pc.equal(exemption, ""), text_columns.NO_TEXT, exemption),
            "moment": _to_timestamps(pa.array(moment)),
            "at": pc.if_else(
                delivered, _to_timestamps(column(rows, "at")), pa.scalar(None, VIOLATIONS.field("at").type)
            ),
            "cause": cause,
            "witness": _zip_lists(
                pc.if_else(delivered, words.get_text("delivery"), text_columns.NO_TEXT),
                other,
                words.get_text("skipped_others")
                if rule.evidence == "skipped"
                else pa.nulls(rows.num_rows, pa.string()),
            ),
            "attribution": attribution,
            "waited": words.measure_wait_micros() if code in WAITING_CODES else pa.nulls(rows.num_rows, pa.int64()),
            "explanation": pc.if_else(
                pc.equal(exemption, ""), sentence, text_columns.join_text(sentence, "; ", exemption)
            ),
            "circumstances": _name_circumstances(rows),
        }
        columns_in_order = [
            columns[f.name] if f.name in columns else column(rows, f.name).cast(f.type) for f in VIOLATIONS
        ]
        return pa.table(columns_in_order, schema=VIOLATIONS)


def _name_circumstances(rows: pa.Table) -> pa.Array:
    """Return what is special about the message of each finding; null for none."""
    published = ints(rows, "published")
    holds = {
        DELAYED: (ints(rows, "due") > published) & (published != UNKNOWN),
        CHUNK: ints(rows, "excuses") & _CHUNK_BITS != 0,
        NO_OWNER: (ints(rows, "slot") >= 0) & np.asarray(column(rows, "expected").is_null()),
    }
    named = [SEPARATOR.join(name for bit, name in enumerate(holds) if some >> bit & 1) for some in range(8)]
    which = sum(true.astype(np.int64) << bit for bit, true in enumerate(holds.values()))
    return pa.array([words or None for words in named], pa.string()).take(pa.array(which))


def _find_exemptions(code: Code, exemptions: Ints) -> Ints:
    """Apply ``codes.find_exemption`` to whole columns."""
    found = np.full(len(exemptions), Exemption.NONE, np.int64)
    for exemption in reversed(Exemption):
        if code in exemption.codes:
            found[exemptions & exemption.bit != 0] = exemption
    return found


def _to_timestamps(nanos: pa.Array) -> pa.Array:
    """Convert times in ns to the timestamps of the table."""
    return pa.array(np.asarray(nanos) // 1_000).cast(VIOLATIONS.field("at").type)


def _zip_lists(*columns: pa.Array) -> pa.Array:
    """Zip columns into lists, row by row, without null and empty values."""
    several, rows = len(columns), len(columns[0])
    columns_in_order = pa.concat_arrays(columns).take(
        pa.array(np.arange(several * rows).reshape(several, rows).T.ravel())
    )
    said = np.asarray(pc.fill_null(pc.not_equal(columns_in_order, ""), False))
    ends = np.cumsum(said.reshape(rows, several).sum(axis=1))
    return pa.ListArray.from_arrays(pa.array(np.append(0, ends), pa.int32()), columns_in_order.filter(pa.array(said)))
