"""The audit of one subscription: a log goes in sorted by position, comes out as facts, goes in again sorted by time,
comes out judged.

Both passes stream Arrow batches and carry a bounded state: the open position, then what each key last did. They are
what Spark runs on the executors (``mapInArrow``) and what a test runs on a handful of rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from subreplay.model import Scope, Standing
from subreplay.policies.base import Policy
from subreplay.rules.facts import position_facts
from subreplay.rules.instants import DispatcherState
from subreplay.rules.lost import judge_undelivered
from subreplay.rules.registry import standings
from subreplay.rules.sessions import Sessions
from subreplay.rules.timed import judge_deliveries
from subreplay.tables import JUDGED
from subreplay.timeline import Timeline

EXAMPLES = 8  # findings of each rule that do not fail and are still kept, a dispatcher


@dataclass(frozen=True)
class Dispatcher:
    """What is known of one topic partition's dispatcher: who was connected, and who owned what."""

    timeline: Timeline
    sessions: Sessions

    @classmethod
    def of(cls, timeline: Timeline) -> Dispatcher:
        return cls(timeline, Sessions.of(timeline))


@dataclass(frozen=True)
class Judge:
    """Everything the rules need besides the log itself.

    ``receipts``: whether applications recorded what they received, so that a message nobody received can be told.
    """

    policy: Policy
    dispatchers: Mapping[Scope, Dispatcher]
    receipts: bool

    def by_position(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """``LOG`` rows sorted by topic, partition, ledger, entry, batch index, kind, time -> ``FACTS`` rows."""
        ordinals: dict[Scope, int] = {}
        for scope, rows in whole_entries(batches):
            if scope not in ordinals:
                ordinals = {scope: 0}
            facts, ordinals[scope] = position_facts(
                self.policy, self.dispatcher(scope), self.receipts, rows, ordinals[scope]
            )
            yield from facts.to_batches()

    def by_time(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """``FACTS`` rows sorted by topic, partition, delivered first, time, order -> ``JUDGED`` rows."""
        current: Scope | None = None
        state = DispatcherState(np.zeros(0, np.int64))
        shown = Examples(self.policy)
        for scope, rows in by_scope(batches):
            dispatcher = self.dispatcher(scope)
            if scope != current:
                current, state, shown = scope, DispatcherState(dispatcher.sessions.joined), Examples(self.policy)
            delivered = rows.column("delivered").to_numpy()
            split = int(delivered.sum())  # deliveries come first
            for part, rule in ((rows.slice(0, split), judge_deliveries), (rows.slice(split), judge_undelivered)):
                if part.num_rows:
                    yield from shown.choose(rule(self.policy, dispatcher, state, part)).to_batches()

    def dispatcher(self, scope: Scope) -> Dispatcher:
        """The dispatcher of a scope; one nobody ever joined where the membership has none."""
        known = self.dispatchers.get(scope)
        return known or Dispatcher.of(Timeline.fold(self.policy, scope, ()))


class Examples:
    """Chooses, of findings that do not fail, the first few of each rule to be kept as rows; the others are only
    counted."""

    def __init__(self, policy: Policy) -> None:
        self._left = {
            code: EXAMPLES for code, standing in standings(policy).items() if standing is not Standing.NOT_APPLICABLE
        }
        self._failing = {code for code, standing in standings(policy).items() if standing is Standing.PROMISED}

    def choose(self, rows: pa.Table) -> pa.Table:
        codes = rows.column("codes").to_numpy()
        excuses = rows.column("excuses").to_numpy()
        shown = np.zeros(len(codes), np.int64)
        for code, left in self._left.items():
            found = np.flatnonzero(codes & code.bit)
            if code in self._failing:
                found = found[(excuses[found] >> 4 * code.value) & 15 != 0]
            shown[found[:left]] |= code.bit
            self._left[code] = max(0, left - len(found))
        return rows.append_column(JUDGED.field("shown"), pa.array(shown)).cast(JUDGED)


def by_scope(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Scope, pa.Table]]:
    """Cut sorted batches where the topic partition changes."""
    for batch in batches:
        if not batch.num_rows:
            continue
        topics = batch.column("topic").dictionary_encode()
        partitions = batch.column("partition").to_numpy()
        change = (np.diff(np.asarray(topics.indices)) != 0) | (np.diff(partitions) != 0)
        cuts = [0, *(np.flatnonzero(change) + 1), batch.num_rows]
        for begin, end in itertools.pairwise(cuts):
            scope = Scope(batch.column("topic")[begin].as_py(), int(partitions[begin]))
            yield scope, pa.Table.from_batches([batch.slice(begin, end - begin)])


def whole_entries(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Scope, pa.Table]]:
    """Cut sorted batches so that the rows of one entry stay together: an entry is held back until the next one is
    seen."""
    held: tuple[Scope, pa.Table] | None = None
    for scope, rows in by_scope(batches):
        if held is not None and held[0] == scope:
            rows = pa.concat_tables([held[1], rows]).combine_chunks()
        elif held is not None:
            yield held
        last = _last_entry(rows)
        if last:
            yield scope, rows.slice(0, last)
        held = scope, rows.slice(last)
    if held is not None:
        yield held


def _last_entry(rows: pa.Table) -> int:
    """The row where the last entry begins."""
    ledger, entry = rows.column("ledger").to_numpy(), rows.column("entry").to_numpy()
    other = np.flatnonzero((ledger != ledger[-1]) | (entry != entry[-1]))
    return int(other[-1]) + 1 if len(other) else 0
