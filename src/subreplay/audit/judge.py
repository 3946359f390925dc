"""The audit of one subscription: a log goes in sorted by position, comes out as facts, goes in again sorted by time,
comes out judged.

Both passes stream Arrow batches and carry a bounded state: the open position, then what each key last did. They are
what a task of an engine runs (``judging``) and what a test runs on a handful of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.audit.checkpoint import BASIS, OPEN, Arrays, Checkpoint, OpenPositions, encode_text, make_checkpoint_rows
from subreplay.audit.codes import Code, drop_exempt, mask
from subreplay.audit.context import Context, Dispatcher
from subreplay.audit.deliveries import Flags, Found
from subreplay.audit.needs import Need
from subreplay.audit.passes.batches_of_one import assign_batches_of_one
from subreplay.audit.passes.beginning import Beginning
from subreplay.audit.passes.commits import make_commit_facts, split_commits
from subreplay.audit.passes.explained import RedeliveryExplainer
from subreplay.audit.passes.facts import make_position_facts
from subreplay.audit.passes.instants import DispatcherState, begin_instants
from subreplay.audit.passes.loads import LoadCollector, Span
from subreplay.audit.passes.positions import PositionState, ScopeLog
from subreplay.audit.passes.timed import (
    Labels,
    add_findings,
    judge_deliveries,
    make_judged_checkpoint,
    recall_deliveries,
    set_owners,
)
from subreplay.audit.rules.commits import NONE, judge_commits
from subreplay.audit.rules.liveness import finish_watch, make_limits, make_watch, note_commits
from subreplay.audit.rules.registry import find_rule_statuses
from subreplay.audit.rules.undelivered import judge_undelivered
from subreplay.audit.scoped_rows import ScopedRows, order_by_scope, split_scopes
from subreplay.audit.selectors import OwnerFits, add_fits
from subreplay.rows.model.columns import NEVER, UNKNOWN, Ints, column, flags, ints
from subreplay.rows.model.rows import RuleStatus, Scope
from subreplay.rows.model.tables import FACTS
from subreplay.semantics.timelines.timeline import Timeline

EXAMPLES = 8  # findings of each rule that do not fail and are still kept, a dispatcher
_UNDELIVERED = mask(frozenset({Code.LOST, Code.UNROUTABLE, Code.UNSEEN, Code.DROPPED}))
_LOG, _INSTANTS = "log.", "instants."  # whose arrays are in a checkpoint
_ACTS, _SEEKS = "acts", "seeks"  # what the first pass passes to the second: acts and seeks
_ENTRY = ("topic", "partition", "ledger", "entry")


@dataclass(frozen=True)
class Judge(Context):
    """The context of the rules, and both passes over the log.

    ``begins``: for left-truncated data, the instant (ns) from which deliveries are recorded (see ``beginning``).
    ``ledgers``: the first ledger of each topic partition, if the run reads all messages.
    ``spans``: the windows, besides all time, whose loads are summed while judging; None: none.
    ``findings_only``: drop judged rows without a finding.
    ``lookback``: how far back (ns) from its end the log of the next daily run reaches, besides open messages.
    ``basis``: the settings that judging depends on, as text; those of the next daily run must be equal.
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
        """The status of every rule in this audit."""
        return find_rule_statuses(self.policy, self.terms, self.lacking)

    @cached_property
    def applicable(self) -> int:
        """The bits of the rules that apply."""
        return mask(frozenset(c for c, rule_status in self.rule_statuses.items() if rule_status.is_evaluated))

    @cached_property
    def promised(self) -> int:
        """The bits of the rules whose findings fail unless they are exempt."""
        return mask(frozenset(c for c, rule_status in self.rule_statuses.items() if rule_status is RuleStatus.PROMISED))

    def by_position(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Turn ``LOG`` rows sorted by topic, partition, ledger, entry, batch index, kind, time into ``FACTS`` rows."""
        last: _Log | None = None
        for rows in split_whole_entries(batches):
            scopes, some = split_scopes(rows)
            logs = [_Log(scope, self.get_dispatcher(scope), Checkpoint(words=self.words)) for scope in scopes]
            if last is not None and last.scope == scopes[0]:
                logs[0] = last
            elif last is not None:
                yield from self._end_of(last).to_batches()
            last = logs[-1]
            yield from self._position_facts(logs, some)
        if last is not None:
            yield from self._end_of(last).to_batches()

    def _position_facts(self, logs: Sequence[_Log], some: ScopedRows) -> Iterator[pa.RecordBatch]:
        """Yield the ``FACTS`` of rows of several logs; all logs but the last are complete."""
        found: list[tuple[pa.Table, Ints]] = []
        some = _without_checkpoints([log.checkpoint for log in logs], some)
        there, mine = some.drop_empty()
        if there:
            for number in there:
                logs[number].state = logs[number].state or self._make_position_state(logs[number])
            of = [ScopeLog(logs[number].dispatcher, cast(PositionState, logs[number].state)) for number in there]
            mine, commits = split_commits(mine)
            numbers = np.array(there)
            if mine.rows.num_rows:
                facts, of_log = make_position_facts(self, of, assign_batches_of_one(mine))
                found.append(self._set_unfinished_aside(facts, numbers[of_log], logs))
            if commits.rows.num_rows and self.has_commits:
                found.append((make_commit_facts(self, of, commits), numbers[commits.numbers]))
                self._note_start_offsets(*found[-1], logs)
        for number, log in enumerate(logs[:-1]):
            end = self._end_of(log)
            if end.num_rows:
                found.append((end, np.full(end.num_rows, number)))
        if found:
            yield from order_by_scope(found)

    def _set_unfinished_aside(self, facts: pa.Table, numbers: Ints, logs: Sequence[_Log]) -> tuple[pa.Table, Ints]:
        """Return the facts without the last deliveries of a share group's unfinished records. Their logs keep these to
        their end, because only then the start offset is known, which may not pass them."""
        if self.record_locks is None or Need.COMMITS in self.lacking:
            return facts, numbers
        unfinished = ints(facts, "codes") & Code.UNACKED.bit != 0
        for number in np.unique(numbers[unfinished]).tolist():
            logs[number].unfinished.append(facts.filter(pa.array(unfinished & (numbers == number))))
        return facts.filter(pa.array(~unfinished)), numbers[~unfinished]

    def _note_start_offsets(self, commits: pa.Table, numbers: Ints, logs: Sequence[_Log]) -> None:
        ordinals = ints(commits, "ordinal")
        for number in np.unique(numbers).tolist():
            logs[number].start = max(logs[number].start, int(ordinals[numbers == number].max()))

    def _end_of(self, log: _Log) -> pa.Table:
        """Build the last rows of a log."""
        rows = self._carry_state(log)
        if not log.unfinished:
            return rows
        kept = pa.concat_tables(log.unfinished)
        passed = np.where(ints(kept, "ordinal") < log.start, Code.LOST.bit, 0)
        index = kept.schema.get_field_index("codes")
        kept = kept.set_column(index, kept.schema.field(index), pa.array(ints(kept, "codes") | passed))
        return pa.concat_tables([kept, rows])

    def _carry_state(self, log: _Log) -> pa.Table:
        """Build the rows that carry the state of a log to the second pass and to the next daily run."""
        arrays: dict[str, Ints] = {}
        if self.has_next_day:
            log.state = log.state or self._make_position_state(log)
            arrays = {n: a for n, a in log.checkpoint.read_arrays().items() if not n.startswith(_LOG)}
            arrays |= _prefix_arrays(_LOG, log.state.checkpoint())
        if log.state is not None and log.state.acts:
            arrays[_ACTS] = log.state.patterns.found
        if self.is_group and log.state is not None and len(seeks := log.state.seeks.found):
            arrays[_SEEKS] = seeks
        return make_checkpoint_rows(arrays, log.scope, self.words) if arrays else FACTS.empty_table()

    def _make_position_state(self, log: _Log) -> PositionState:
        arrays = _select_arrays(_LOG, log.checkpoint.read_arrays())
        begins = Beginning(self.begins.get(log.scope, UNKNOWN), ledger=self.ledgers.get(log.scope, UNKNOWN))
        acts = self.list_acts(log.dispatcher.timeline)
        return PositionState(log.dispatcher.list_join_times(arrays), arrays, begins, acts)

    def make_load_collector(self) -> LoadCollector | None:
        """Return the collector of loads for the judging pass; None if no loads are collected."""
        return None if self.spans is None else LoadCollector(self.spans, self.terms.clock_skew)

    def by_time(
        self, batches: Iterable[pa.RecordBatch], given: LoadCollector | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Turn ``FACTS`` rows, sorted by topic, partition, delivered first, time, order, into ``JUDGED`` rows.

        ``given`` adds up the loads of consumers.
        """
        last: _Timed | None = None
        for batch in batches:
            if not batch.num_rows:
                continue
            scopes, some = split_scopes(pa.Table.from_batches([batch]))
            goes_on = last is not None and last.scope == scopes[0]
            if last is not None and not goes_on:
                yield from self._end_of_time(last, given)
            timed = [last] if last is not None and goes_on else []
            timed += [self._begin_timed(scope, given) for scope in scopes[len(timed) :]]
            last = timed[-1]
            yield from self._judge_by_time(timed, some, given)
            for each in timed[:-1]:
                yield from self._end_of_time(each, given)
        if last is not None:
            yield from self._end_of_time(last, given)

    def _begin_timed(self, scope: Scope, given: LoadCollector | None) -> _Timed:
        dispatcher = self.get_dispatcher(scope)
        timed = _Timed(scope, dispatcher, Checkpoint(words=self.words))
        timed.still = OpenPositions(self.horizon) if self.has_next_day else None
        if given is not None:
            timed.number, timed.fits = given.begin(), OwnerFits(self.policy, dispatcher, given.others)
        return timed

    def _judge_by_time(
        self, timed: Sequence[_Timed], some: ScopedRows, given: LoadCollector | None
    ) -> Iterator[pa.RecordBatch]:
        """Judge rows of several dispatchers; all but the first and the last are complete."""
        some = _without_checkpoints([each.checkpoint for each in timed], some)
        there, some = some.drop_empty()
        if not there:
            return
        mine = _Together([timed[number] for number in there])
        for each in mine.timed:
            if each.state is None:
                arrays = each.checkpoint.read_arrays()
                each.state, shown = self._make_state(each.dispatcher, arrays), arrays.get(_ACTS)
                acts = () if shown is None else self.list_acts(each.dispatcher.timeline)
                each.explained = RedeliveryExplainer(acts, shown, arrays.get(_SEEKS))
        some = _drop_unexplained(mine.timed, some)
        found: list[tuple[pa.Table, Ints]] = []
        if self.has_commits:
            some = self._without_commits(mine, some, found)
        before, delivered = flags(some.rows, "before"), flags(some.rows, "delivered")
        for number in np.unique(some.numbers[before]).tolist():
            self._recall(mine.timed[number], some.of(number).filter(pa.array(before[some.get_slice(number)])))
        for number in np.unique(some.numbers[~before]).tolist():
            mine.timed[number].begin()
        for rows in (_select_rows(some, delivered & ~before), _select_rows(some, ~delivered)):
            if rows.rows.num_rows:
                self._judge(mine, rows, given, found)
        if found:
            yield from order_by_scope(found)

    def _judge(
        self, mine: _Together, some: ScopedRows, given: LoadCollector | None, judged: list[tuple[pa.Table, Ints]]
    ) -> None:
        """Judge deliveries, or messages that were never delivered, of several dispatchers.

        ``judged`` receives the rows and the number of the dispatcher of each.
        """
        there, rows = some.drop_empty()
        timed = [mine.timed[number] for number in there]
        found, waits_for = self._find_findings(timed, rows)
        if waits_for is not None:  # whatever else cannot be decided, it did not come
            found.codes[found.codes & self.applicable & _UNDELIVERED == 0] |= Code.UNSEEN.bit
        np.bitwise_and(found.codes, self.applicable, out=found.codes)
        for number, each in enumerate(timed if self.has_next_day else ()):
            if each.still is not None:
                each.still.add(rows.of(number), found.codes[rows.get_slice(number)])
        shown = choose_examples([each.examples for each in timed], self.promised, rows.bounds, found)
        if given is not None:
            numbers = np.array([each.number for each in timed], np.int64)[rows.numbers]
            codes = found.codes if waits_for is None else drop_exempt(found.codes, found.exemptions)
            given.add(rows.rows, codes, numbers)
            if waits_for is None:
                add_fits([each.fits for each in timed if each.fits is not None], rows, found.codes)
        self._add_judged(mine, some.rows, some.numbers, found, shown, waits_for, judged)

    def _add_judged(
        self, mine: _Together, rows: pa.Table, numbers: Ints, found: Found, shown: Ints, waits_for: Ints | None,
        judged: list[tuple[pa.Table, Ints]],
    ) -> None:  # fmt: skip
        """Add rows with their findings, or only the rows that have findings."""
        if self.findings_only:
            kept = np.flatnonzero(found.codes)
            if not len(kept):
                return
            rows, numbers, found, shown = rows.take(pa.array(kept)), numbers[kept], found.of(kept), shown[kept]
            waits_for = None if waits_for is None else waits_for[kept]
        if waits_for is not None:
            rows = set_owners(rows, waits_for, numbers, mine.labels)
        judged.append((add_findings(rows, found, shown, numbers, mine.labels), numbers))

    def _find_findings(self, timed: Sequence[_Timed], some: ScopedRows) -> tuple[Found, Ints | None]:
        """Find violations of deliveries or of undelivered messages, and the consumers that the messages wait for."""
        states = [cast(DispatcherState, each.state) for each in timed]
        if flags(some.rows, "delivered")[0]:
            return judge_deliveries(self, [each.dispatcher for each in timed], states, some), None
        found = [
            judge_undelivered(self, each.dispatcher, state, some.of(number))
            for number, (each, state) in enumerate(zip(timed, states, strict=True))
        ]
        return Found.concatenate([of for of, _ in found]), np.concatenate([waits_for for _, waits_for in found])

    def _without_commits(self, mine: _Together, some: ScopedRows, judged: list[tuple[pa.Table, Ints]]) -> ScopedRows:
        """Return the rows that are not commits; ``judged`` receives the commits with findings."""
        parts: list[pa.Table] = []
        for number, each in enumerate(mine.timed):
            state = cast(DispatcherState, each.state)
            rows, found, advances = judge_commits(state.offsets, some.of(number))
            is_commit = ints(rows, "commit") != NONE
            made = ints(rows, "at")[is_commit].max(initial=UNKNOWN)
            state.end = max(state.end, min(int(made), self.horizon))
            state.watch = note_commits(state.watch, advances, make_limits(self, state.end))
            kept = np.flatnonzero(is_commit & (found.codes & self.applicable != 0))
            if len(kept):
                of, those = rows.take(pa.array(kept)), found.of(kept)
                np.bitwise_and(those.codes, self.applicable, out=those.codes)
                shown = choose_examples([each.examples], self.promised, np.array([0, len(kept)]), those)
                self._add_judged(mine, of, np.full(len(kept), number), those, shown, None, judged)
            parts.append(rows)
        together = ScopedRows(pa.concat_tables(parts).combine_chunks(), some.bounds)
        return _select_rows(together, ints(together.rows, "commit") == NONE)

    def _recall(self, each: _Timed, rows: pa.Table) -> None:
        """Restore the state from deliveries of earlier days."""
        recall_deliveries(self, cast(DispatcherState, each.state), rows)
        if each.still is not None:
            each.still.add(rows, ints(rows, "codes"))

    def _end_of_time(self, each: _Timed, given: LoadCollector | None) -> Iterator[pa.RecordBatch]:
        """Finish a dispatcher: yield its loads, and the state that the next daily run begins with."""
        if given is not None and each.fits is not None:
            given.end([each.fits.rows(), *each.explained.sums(each.scope)])
        if each.still is not None:
            arrays = each.checkpoint.read_arrays()
            each.state = each.state or self._make_state(each.dispatcher, arrays)
            each.begin()
            finish_watch(each.state.watch, self.horizon, make_limits(self, self.horizon))
            since = UNKNOWN if self.lookback == NEVER else self.horizon - self.lookback
            arrays = _prefix_arrays(_INSTANTS, each.state.checkpoint(each.still.keys, since)) | {
                n: a for n, a in arrays.items() if n.startswith(_LOG)
            }
            arrays |= {OPEN: each.still.positions, BASIS: encode_text(self.basis)}
            yield from make_judged_checkpoint(make_checkpoint_rows(arrays, each.scope, self.words)).to_batches()

    def _make_state(self, dispatcher: Dispatcher, checkpoint: Arrays) -> DispatcherState:
        arrays = _select_arrays(_INSTANTS, checkpoint)
        end = dispatcher.timeline.epochs[-1].start.at
        watch = make_watch(self, dispatcher)
        return DispatcherState(dispatcher.sessions, dispatcher.queue_sizes, self.horizon, end, arrays, watch)

    def get_dispatcher(self, scope: Scope) -> Dispatcher:
        """Return the dispatcher of a scope; without a membership it has no consumers."""
        known = self.dispatchers.get(scope)
        return known or Dispatcher.of(Timeline.fold(self.policy, scope, ()))


@dataclass
class _Log:
    """A topic partition whose log is read by position; its state begins with its first row."""

    scope: Scope
    dispatcher: Dispatcher
    checkpoint: Checkpoint
    state: PositionState | None = None
    unfinished: list[pa.Table] = field(default_factory=list)
    """Of a share group: the last deliveries of records that were neither acknowledged nor archived."""
    start: int = UNKNOWN
    """Of a share group: the ordinal of the highest start offset."""


def _select_arrays(prefix: str, arrays: Arrays) -> dict[str, Ints]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _prefix_arrays(prefix: str, arrays: Arrays) -> dict[str, Ints]:
    return {prefix + name: array for name, array in arrays.items()}


class Examples:
    """Selects the first findings of each rule that do not fail, to be kept as rows; the others are only counted."""

    def __init__(self) -> None:
        self._remaining: dict[int, int] = {}  # by bit

    def choose(self, mild: Ints, some: int) -> Ints:
        """Return the bits to show in each row, from the ``mild`` bits; ``some`` has every bit that occurs in them."""
        shown = np.zeros(len(mild), np.int64)
        while some:
            bit = some & -some
            remaining = self._remaining.get(bit, EXAMPLES)
            if remaining:
                rows = np.flatnonzero(mild & bit)
                shown[rows[:remaining]] |= bit
                self._remaining[bit] = max(0, remaining - len(rows))
            some ^= bit
        return shown


def choose_examples(examples: Sequence[Examples], promised: int, bounds: Ints, found: Found) -> Ints:
    """Return the bits to show in each row of several dispatchers, each with at least one row."""
    mild = found.codes & ~(drop_exempt(found.codes, found.exemptions) & promised)
    shown = np.zeros(len(mild), np.int64)
    of_each = np.bitwise_or.reduceat(mild, bounds[:-1]).tolist()
    for each, some, begin, end in zip(examples, of_each, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        if some:
            shown[begin:end] = each.choose(mild[begin:end], some)
    return shown


@dataclass
class _Timed:
    """A topic partition whose deliveries are judged in order of time; its state begins with its first row."""

    scope: Scope
    dispatcher: Dispatcher
    checkpoint: Checkpoint
    examples: Examples = field(default_factory=Examples)
    explained: RedeliveryExplainer = field(default_factory=lambda: RedeliveryExplainer((), None))
    state: DispatcherState | None = None
    still: OpenPositions | None = None
    begun: bool = False
    number: int = 0
    fits: OwnerFits | None = None

    def begin(self) -> None:
        """Begin the instants once all earlier deliveries are restored."""
        if self.state is not None and not self.begun:
            begin_instants(self.state)
            self.begun = True


class _Together:
    """Topic partitions that are judged together, and the labels of their sessions."""

    def __init__(self, timed: Sequence[_Timed]) -> None:
        self.timed = timed
        self.labels = Labels([each.dispatcher for each in timed])


def _drop_unexplained(timed: Sequence[_Timed], some: ScopedRows) -> ScopedRows:
    """Remove exemptions that no act explains, and mark redeliveries after a consumer sought back."""
    acted = np.unique(some.numbers[ints(some.rows, "reset") != UNKNOWN]).tolist()
    acting = {number for number, each in enumerate(timed) if each.explained.has_seeks} | set(acted)
    if not acting:
        return some
    parts = [
        each.explained.judge(some.of(number)) if number in acting else some.of(number)
        for number, each in enumerate(timed)
    ]
    return ScopedRows(pa.concat_tables(parts).combine_chunks(), some.bounds)


def _select_rows(some: ScopedRows, kept: Flags) -> ScopedRows:
    """Return the selected rows; without a copy if all are selected."""
    return some if kept.all() else some.filter(kept)


def split_whole_entries(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield sorted batches that never split an entry: a cut entry moves whole to the next batch."""
    pending: pa.Table | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        rows = pa.Table.from_batches([batch])
        if pending is not None:
            if _get_entry(pending, -1) == _get_entry(rows, 0):
                last = _find_last_entry(pending)
                rows = pa.concat_tables([pending.slice(last), rows]).combine_chunks()
                pending = pending.slice(0, last)
            if pending.num_rows:
                yield pending
        pending = rows
    if pending is not None:
        yield pending


def _find_last_entry(rows: pa.Table) -> int:
    """Return the row where the last entry begins."""
    columns = [rows.column(name) for name in _ENTRY]
    other = np.logical_or.reduce([np.asarray(pc.not_equal(values, values[-1])) for values in columns])
    return int(np.flatnonzero(other)[-1]) + 1 if other.any() else 0


def _get_entry(rows: pa.Table, row: int) -> tuple[object, ...]:
    return tuple(rows.column(name)[row].as_py() for name in _ENTRY)


def _without_checkpoints(make_checkpoints: Sequence[Checkpoint], some: ScopedRows) -> ScopedRows:
    """Return rows without checkpoint rows, which go to the checkpoint of their topic partition."""
    is_checkpoint = np.asarray(column(some.rows, "checkpoint").is_valid())
    if not is_checkpoint.any():
        return some
    for number in np.unique(some.numbers[is_checkpoint]).tolist():
        make_checkpoints[number].take(some.of(number))
    return some.filter(~is_checkpoint)
