"""What a run counted, before it is put into words: plain rows and folded timelines, the same whoever counted them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date as Date
from functools import cached_property
from typing import Any

from subreplay.audit.acts import SeenAct
from subreplay.audit.clocks import Clocks
from subreplay.audit.codes import Code
from subreplay.audit.needs import Need
from subreplay.audit.rules.registry import find_rule_statuses
from subreplay.audit.selectors import OwnerFit
from subreplay.audit.terms import Terms
from subreplay.rows.model.partitioner_text import Statement
from subreplay.rows.model.rows import RuleStatus
from subreplay.rows.model.stored_rows import Stored
from subreplay.whatif.fair_share import ConnectedInterval
from subreplay.whatif.message_assignment import ScenarioPlan

Row = Mapping[str, Any]
MAX_SHOWN_FINDINGS = (
    2_000  # findings in words that come back to the driver and stand in a report, of all rules together
)


@dataclass(frozen=True)
class Figures:
    """What a run counted; rows are plain mappings. Empty where the run had no such part."""

    topic: str
    inputs: Sequence[Row]  # table, valid, quarantined
    extent: Row  # first, last (ns), messages, deliveries
    width: int  # of the report's windows, ns
    plan: ScenarioPlan
    connected: tuple[ConnectedInterval, ...]
    hottest: int = 0  # messages of the hottest key
    hot_keys: Sequence[Row] = ()  # key (word), messages, slot, consumer
    totals: Row = field(default_factory=dict)
    load: Sequence[Row] = ()  # window, consumer, messages, bytes, keys
    consumers: Sequence[Row] = ()  # consumer, messages, bytes, keys, redelivered, unacked
    findings: Sequence[Row] = ()  # window, code, excuse, consumer, count
    worst: Sequence[Row] = ()  # violations
    terms: Terms = field(default_factory=Terms)  # what the rules were told
    clocks: Clocks = field(default_factory=Clocks)  # that are off, and what they explain
    fit: OwnerFit | None = None  # another selector or profile that fits where the run's does not
    judged_from: int | None = None  # where the data begin in mid-life: from when on (ns) they are judged
    lacking: frozenset[Need] = frozenset()  # what rules need and the data do not have
    stored: Sequence[Stored] = ()  # what the tables hold, where they have nothing of what was asked for
    quarantine: Sequence[Row] = ()  # table, column, rule, remedy, count, example: why rows were rejected
    unneeded_tables: frozenset[str] = frozenset()  # tables on whose rows in quarantine nothing depends
    repeated: Mapping[str, int] = field(default_factory=dict)  # rows that say the same as another one, by table
    contradicted: Mapping[str, int] = field(default_factory=dict)  # ... of the same event as another one, and otherwise
    unknown_consumers: tuple[str, ...] = ()  # that were served, though the membership has none of that name join
    members: tuple[str, ...] = ()  # who joined
    is_quiet: bool = False  # a day on which nothing was published or delivered, or tables without a row
    producers: tuple[Statement, ...] = ()  # how they choose partitions
    unaudited_topics: tuple[str, ...] = ()  # topics that a group may read as well, where the run names one of them
    has_guessable_keys: bool = False  # digests of keys are keyed with the default secret
    previous_run: Date | None = None  # whose audit handed on what it left open
    days_skipped: bool = False  # that is not the day before
    retracted: Sequence[Row] = ()  # findings of earlier nights: code, told, count, positions (some)
    scattered_keys: tuple[int, int] | None = None  # keys at several consumers of one epoch, of how many
    acts: Sequence[SeenAct] = ()  # of operators and clients, and what they had redelivered
    numbered_by_time: bool = False  # messages have no offsets of their own: they are numbered by their times
    traffic: Sequence[Row] = ()  # rows of `whatif.assign.TRAFFIC`

    @cached_property
    def rule_statuses(self) -> Mapping[Code, RuleStatus]:
        """What the policy says of each rule, with these terms and data."""
        return find_rule_statuses(self.plan.policy, self.terms, self.lacking)

    @property
    def inconclusive_rules(self) -> Mapping[Code, str]:
        """The rules whose findings may be none, and why in a few words: they leave the verdict *unknown*."""
        by_selector = {} if self.fit is None else {Code.WRONG_OWNER: "another selector fits"}
        return by_selector | dict.fromkeys(self.clocks.explain, "none with clocks corrected")


@dataclass(frozen=True)
class DispatchFigures:
    """What the dispatch replay of one scenario counted; rows as ``whatif.dispatch_sums`` names them."""

    plan: ScenarioPlan
    service: str  # the service model in words
    seed: int | None  # None: nothing is drawn
    settings: tuple[tuple[str, str], ...]
    last_published: int  # ns
    end: int  # when the last event of the replay was, or the last publication, ns
    steps: int  # buckets of the latency histograms for every doubling
    outcomes: Sequence[Row]  # outcome, settled, rows, delivered, retried, last, late
    latencies: Sequence[Row]  # event, bucket, messages, most, delayed, early, early_least, early_most
    taken: Sequence[Row]  # consumer, window (null: all), width, messages, bytes, redelivered, …_until
    pending: Sequence[Row]  # consumer, messages
    backlog: Sequence[Row]  # window, published, settled
    unacked: Sequence[Row]  # window, held
    waits: Sequence[Row]  # by consumer and holder: since, until, blocked, stretches, messages, of, total
    hash_waits: Sequence[Row]  # and by hash
    drains: Sequence[Row]  # kind, consumer, slot, messages, busy
    halts: Mapping[str, str] = field(default_factory=dict)  # consumers that stop working, and how
    judged: Figures | None = None  # what the rules found in the predicted deliveries
