"""The audit of one subscription: a log goes in sorted by position, comes out as facts, goes in again sorted by time,
comes out judged.

Both passes stream Arrow batches and carry a bounded state: the open position, then what each key last did. They are
what a task of an engine runs (``judging``) and what a test runs on a handful of rows.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.audit.checkpoint import BASIS, OPEN, Arrays, Checkpoint, OpenPositions, encode_text, make_checkpoint_rows
from subreplay.audit.codes import Code, drop_exempt, mask
from subreplay.audit.context import Context, Dispatcher
from subreplay.audit.deliveries import Found
from subreplay.audit.passes.batches_of_one import with_batches_of_one
from subreplay.audit.passes.beginning import Beginning
from subreplay.audit.passes.commits import commit_facts, without_commits
from subreplay.audit.passes.explained import Explained
from subreplay.audit.passes.facts import position_facts
from subreplay.audit.passes.instants import DispatcherState, begin_instants
from subreplay.audit.passes.loads import Given, Span
from subreplay.audit.passes.positions import PositionState
from subreplay.audit.passes.timed import (
    checkpoint_as_judged,
    judge_deliveries,
    recall_deliveries,
    with_findings,
    with_owners,
)
from subreplay.audit.rules.commits import NONE, judge_commits
from subreplay.audit.rules.liveness import finish_watch, make_limits, make_watch, note_commits
from subreplay.audit.rules.registry import find_rule_statuses
from subreplay.audit.rules.undelivered import judge_undelivered
from subreplay.audit.selectors import OwnerFits
from subreplay.rows.model.columns import NEVER, UNKNOWN, Ints, flags, ints
from subreplay.rows.model.rows import RuleStatus, Scope
from subreplay.semantics.timelines.timeline import Timeline

EXAMPLES = 8  # findings of each rule that do not fail and are still kept, a dispatcher
_UNDELIVERED = mask(frozenset({Code.LOST, Code.UNROUTABLE, Code.UNSEEN, Code.DROPPED}))
_LOG, _INSTANTS = "log.", "instants."  # whose arrays are in a checkpoint
_ACTS, _SEEKS = "acts", "seeks"  # what the first pass tells the second of acts, and of seeks


@dataclass(frozen=True)
class Judge(Context):
    """The context of the rules, and both passes over the log.

    ``begins``: where the data begin in mid-life, from when on (ns) deliveries are recorded (see ``beginning``).
    ``ledgers``: that of the first message of each topic partition, where the run reads all messages there are.
    ``spans``: the windows, besides all time, whose loads are added up beside judging; None: none are.
    ``findings_only``: of judged rows those without a finding are left out.
    ``lookback``: how far back (ns) from its end the next night's log reaches, beside what is open.
    ``basis``: what the judging rests on, in words; the next night's must be the same.
    ``dates``: the run spans several days, so that sentences show instants with their dates.
    """

    begins: Mapping[Scope, int] = field(default_factory=dict)
    ledgers: Mapping[Scope, int] = field(default_factory=dict)
    spans: tuple[Span, ...] | None = None
    findings_only: bool = False
    lookback: int = NEVER
    basis: str = ""
    dates: bool = False

    @cached_property
    def rule_statuses(self) -> Mapping[Code, RuleStatus]:
        """Every rule's standing in this audit."""
        return find_rule_statuses(self.policy, self.terms, self.lacking)

    @cached_property
    def applicable(self) -> int:
        """The bits of the rules that apply."""
        return mask(frozenset(c for c, rule_status in self.rule_statuses.items() if rule_status.is_evaluated))

    @cached_property
    def promised(self) -> int:
        """The bits of the rules whose findings fail unless they are excused."""
        return mask(frozenset(c for c, rule_status in self.rule_statuses.items() if rule_status is RuleStatus.PROMISED))

    def by_position(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """``LOG`` rows sorted by topic, partition, ledger, entry, batch index, kind, time -> ``FACTS`` rows."""
        for scope, parts in _of_one(whole_entries(batches)):
            yield from self._position_facts(scope, parts)

    def _position_facts(self, scope: Scope, parts: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
        dispatcher, checkpoint = self.dispatcher(scope), Checkpoint(words=self.words)
        state: PositionState | None = None
        for part in parts:
            rows = checkpoint.take(part)
            if rows.num_rows:
                state = state or self._position_state(scope, dispatcher, checkpoint)
                rows, commits = without_commits(rows)
                if rows.num_rows:
                    yield from position_facts(self, dispatcher, state, with_batches_of_one(rows)).to_batches()
                if commits.num_rows and self.is_group:
                    yield from commit_facts(self, dispatcher, state, commits).to_batches()
        arrays: dict[str, Ints] = {}
        if self.has_next_day:
            state = state or self._position_state(scope, dispatcher, checkpoint)
            arrays = {n: a for n, a in checkpoint.arrays().items() if not n.startswith(_LOG)}
            arrays |= _named(_LOG, state.checkpoint())
        if state is not None and state.acts:
            arrays[_ACTS] = state.patterns.found
        if state is not None and len(seeks := state.seeks.found):
            arrays[_SEEKS] = seeks
        if arrays:
            yield from make_checkpoint_rows(arrays, scope, self.words).to_batches()

    def _position_state(self, scope: Scope, dispatcher: Dispatcher, checkpoint: Checkpoint) -> PositionState:
        arrays = _of(_LOG, checkpoint.arrays())
        begins = Beginning(self.begins.get(scope, UNKNOWN), ledger=self.ledgers.get(scope, UNKNOWN))
        acts = self.acts(dispatcher.timeline)
        return PositionState(dispatcher.joined(arrays), arrays, begins, acts)

    def given(self) -> Given | None:
        """What adds up loads beside judging; None: nothing is added up."""
        return None if self.spans is None else Given(self.spans, self.terms.clock_skew)

    def by_time(self, batches: Iterable[pa.RecordBatch], given: Given | None = None) -> Iterator[pa.RecordBatch]:
        """``FACTS`` rows sorted by topic, partition, delivered first, time, order -> ``JUDGED`` rows; ``given`` adds up
        what consumers were given."""
        for scope, parts in _of_one(by_scope(batches)):
            yield from self._judged(scope, parts, given)

    def _judged(self, scope: Scope, parts: Iterable[pa.Table], given: Given | None) -> Iterator[pa.RecordBatch]:
        dispatcher, checkpoint, examples = self.dispatcher(scope), Checkpoint(words=self.words), Examples(self)
        state: DispatcherState | None = None
        explained = Explained((), None)
        if given is not None:
            given.begin(OwnerFits(self.policy, dispatcher, given.others))
        begun, still = False, OpenPositions(self.horizon) if self.has_next_day else None
        for part in parts:
            facts = checkpoint.take(part)
            if not facts.num_rows:
                continue
            if state is None:
                state, shown = self._state(dispatcher, checkpoint), checkpoint.arrays().get(_ACTS)
                seeks = checkpoint.arrays().get(_SEEKS)
                explained = Explained(() if shown is None else self.acts(dispatcher.timeline), shown, seeks)
            facts = explained.judge(facts)
            if self.is_group:
                facts, found, advances = judge_commits(state.offsets, facts)
                made = ints(facts, "at")[ints(facts, "commit") != NONE].max(initial=UNKNOWN)
                state.end = max(state.end, min(int(made), self.horizon))
                state.watch = note_commits(state.watch, advances, make_limits(self, state.end))
                yield from self._commits(dispatcher, facts, found, examples)
                facts = facts.filter(pc.equal(facts["commit"], NONE))
            before = int(np.count_nonzero(flags(facts, "before")))  # these come first
            split = int(np.count_nonzero(flags(facts, "delivered")))  # then the day's deliveries
            if before:
                rows = facts.slice(0, before)
                recall_deliveries(self, state, rows)
                if still is not None:
                    still.add(rows, ints(rows, "codes"))
            if before < facts.num_rows and not begun:
                begin_instants(state)
                begun = True
            for rows in (facts.slice(before, split - before), facts.slice(split)):
                if rows.num_rows:
                    found, waits_for = self._found(dispatcher, state, rows)
                    if waits_for is not None:  # whatever else cannot be decided, it did not come
                        found.codes[found.codes & self.applicable & _UNDELIVERED == 0] |= Code.UNSEEN.bit
                    np.bitwise_and(found.codes, self.applicable, out=found.codes)
                    if still is not None:
                        still.add(rows, found.codes)
                    shown = examples.choose(found)
                    if given is not None:
                        given.add(rows, found.codes)
                    if waits_for is not None:
                        rows = with_owners(rows, waits_for, dispatcher.sessions.labels)
                    if self.findings_only:
                        kept = np.flatnonzero(found.codes)
                        if not len(kept):
                            continue
                        rows, found, shown = rows.take(pa.array(kept)), found.of(kept), shown[kept]
                    yield from with_findings(rows, found, shown, dispatcher.sessions.labels).to_batches()
        if given is not None:
            given.end(explained.sums(scope))
        if still is not None:
            state = state or self._state(dispatcher, checkpoint)
            if not begun:
                begin_instants(state)
            finish_watch(state.watch, self.horizon, make_limits(self, self.horizon))
            since = UNKNOWN if self.lookback == NEVER else self.horizon - self.lookback
            arrays = _named(_INSTANTS, state.checkpoint(still.keys, since)) | {
                n: a for n, a in checkpoint.arrays().items() if n.startswith(_LOG)
            }
            arrays |= {OPEN: still.positions, BASIS: encode_text(self.basis)}
            yield from checkpoint_as_judged(make_checkpoint_rows(arrays, scope, self.words)).to_batches()

    def _found(self, dispatcher: Dispatcher, state: DispatcherState, rows: pa.Table) -> tuple[Found, Ints | None]:
        """Findings about deliveries, or about messages that were never delivered, and for whom these wait."""
        if flags(rows, "delivered")[0]:
            return judge_deliveries(self, dispatcher, state, rows), None
        return judge_undelivered(self, dispatcher, state, rows)

    def _commits(
        self, dispatcher: Dispatcher, rows: pa.Table, found: Found, examples: Examples
    ) -> Iterator[pa.RecordBatch]:
        """The commits of which something was found, among ``rows`` with what was found in them."""
        kept = np.flatnonzero((ints(rows, "commit") != NONE) & (found.codes & self.applicable != 0))
        if len(kept):
            rows, found = rows.take(pa.array(kept)), found.of(kept)
            np.bitwise_and(found.codes, self.applicable, out=found.codes)
            yield from with_findings(rows, found, examples.choose(found), dispatcher.sessions.labels).to_batches()

    def _state(self, dispatcher: Dispatcher, checkpoint: Checkpoint) -> DispatcherState:
        arrays = _of(_INSTANTS, checkpoint.arrays())
        end = dispatcher.timeline.epochs[-1].start.at
        watch = make_watch(self, dispatcher)
        return DispatcherState(dispatcher.sessions, dispatcher.queue_sizes, self.horizon, end, arrays, watch)

    def dispatcher(self, scope: Scope) -> Dispatcher:
        """The dispatcher of a scope; one nobody ever joined where the membership has none."""
        known = self.dispatchers.get(scope)
        return known or Dispatcher.of(Timeline.fold(self.policy, scope, ()))


def _of(prefix: str, arrays: Arrays) -> dict[str, Ints]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _named(prefix: str, arrays: Arrays) -> dict[str, Ints]:
    return {prefix + name: array for name, array in arrays.items()}


class Examples:
    """Chooses, of findings that do not fail, the first few of each rule to be kept as rows; the others are only
    counted."""

    def __init__(self, judge: Judge) -> None:
        self._left = {code: EXAMPLES for code in Code if judge.applicable & code.bit}
        self._promised = judge.promised

    def choose(self, found: Found) -> Ints:
        """The bits to be shown in each row."""
        shown = np.zeros(len(found.codes), np.int64)
        mild = found.codes & ~(drop_exempt(found.codes, found.exemptions) & self._promised)
        some = int(np.bitwise_or.reduce(mild))
        for code, left in self._left.items():
            if some & code.bit and left:
                rows = np.flatnonzero(mild & code.bit)
                shown[rows[:left]] |= code.bit
                self._left[code] = max(0, left - len(rows))
        return shown


def _of_one(cuts: Iterable[tuple[Scope, pa.Table]]) -> Iterator[tuple[Scope, Iterator[pa.Table]]]:
    """The tables of one topic partition after the other."""
    for scope, parts in itertools.groupby(cuts, key=operator.itemgetter(0)):
        yield scope, (rows for _, rows in parts)


def by_scope(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Scope, pa.Table]]:
    """Sorted batches, cut where the topic partition changes."""
    for batch in batches:
        if batch.num_rows:
            yield from _cut(pa.Table.from_batches([batch]))


def whole_entries(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Scope, pa.Table]]:
    """As ``by_scope``, and the rows of one entry stay together: where a batch ends within one, the next has it all."""
    held: tuple[Scope, pa.Table] | None = None
    for scope, rows in by_scope(batches):
        if held is not None:
            before, rows_before = held
            last = _last_entry(rows_before)
            if before == scope and _entry(rows_before, last) == _entry(rows, 0):
                rows = pa.concat_tables([rows_before.slice(last), rows]).combine_chunks()
                rows_before = rows_before.slice(0, last)
            if rows_before.num_rows:
                yield before, rows_before
        held = scope, rows
    if held is not None:
        yield held


def _cut(rows: pa.Table) -> Iterator[tuple[Scope, pa.Table]]:
    """Rows cut where the topic partition changes."""
    topics, partitions = rows.column("topic"), rows.column("partition").to_numpy()
    cuts = [0, rows.num_rows]
    if topics[0] != topics[-1] or partitions[0] != partitions[-1]:
        encoded = np.asarray(topics.combine_chunks().dictionary_encode().indices)
        cuts[1:1] = np.flatnonzero((np.diff(encoded) != 0) | (np.diff(partitions) != 0)) + 1
    for begin, end in itertools.pairwise(cuts):
        yield Scope(topics[begin].as_py(), int(partitions[begin])), rows.slice(begin, end - begin)


def _last_entry(rows: pa.Table) -> int:
    """The row where the last entry begins."""
    ledger, entry = rows.column("ledger").to_numpy(), rows.column("entry").to_numpy()
    other = np.flatnonzero((ledger != ledger[-1]) | (entry != entry[-1]))
    return int(other[-1]) + 1 if len(other) else 0


def _entry(rows: pa.Table, row: int) -> tuple[int, int]:
    return rows.column("ledger")[row].as_py(), rows.column("entry")[row].as_py()
