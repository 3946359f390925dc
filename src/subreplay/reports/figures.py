"""The counts and timelines of a run, from which its report is built. They do not depend on the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date as Date
from functools import cached_property
from typing import Any

import pyarrow as pa

from subreplay.audit.acts import SeenAct
from subreplay.audit.clocks import Clocks
from subreplay.audit.codes import Code
from subreplay.audit.incidents import PARTS
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
MAX_SHOWN_FINDINGS = 2_000  # findings of all rules that the driver collects and a report describes


@dataclass(frozen=True)
class Figures:
    """The counts of one run as plain rows. A field is empty if the run has no such part."""

    topic: str
    inputs: Sequence[Row]  # table, valid, quarantined
    extent: Row  # first, last (ns), messages, deliveries
    width: int  # width of the report's windows, ns
    plan: ScenarioPlan
    connected: tuple[ConnectedInterval, ...]
    hottest: int = 0  # messages of the hottest key
    hot_keys: Sequence[Row] = ()  # key (shown form), messages, slot, consumer
    totals: Row = field(default_factory=dict)
    load: Sequence[Row] = ()  # window, consumer, messages, bytes, keys, redelivered
    published: Sequence[Row] = ()  # window (of the publication), messages: those delivered or still waiting
    consumers: Sequence[Row] = ()  # consumer, messages, bytes, keys, redelivered, unacked
    findings: Sequence[Row] = ()  # window, code, excuse, consumer, count
    worst: Sequence[Row] = ()  # violations
    incident_parts: pa.Table = field(default_factory=PARTS.empty_table)
    terms: Terms = field(default_factory=Terms)  # settings that the rules use
    clocks: Clocks = field(default_factory=Clocks)  # clocks with an offset, and the findings that the offset explains
    fit: OwnerFit | None = None  # a selector or profile that fits better than the run's
    judged_from: int | None = None  # left-truncated data are judged from this instant (ns)
    lacking: frozenset[Need] = frozenset()  # what rules need and the data do not contain
    stored: Sequence[Stored] = ()  # what the tables contain if the requested rows are missing
    quarantine: Sequence[Row] = ()  # table, column, rule, remedy, count, example: why rows were rejected
    unneeded_tables: frozenset[str] = frozenset()  # tables whose quarantined rows affect no result
    repeated: Mapping[str, int] = field(default_factory=dict)  # duplicate rows by table
    contradicted: Mapping[str, int] = field(default_factory=dict)  # rows that contradict another row of the same event
    unknown_consumers: tuple[str, ...] = ()  # consumers in deliveries that never join in the membership
    members: tuple[str, ...] = ()  # consumers that joined
    is_quiet: bool = False  # nothing was published or delivered, or all tables are empty
    producers: tuple[Statement, ...] = ()  # how producers choose partitions
    unaudited_topics: tuple[str, ...] = ()  # topics of the group that this run does not audit
    has_guessable_keys: bool = False  # key digests use the default secret
    previous_run: Date | None = None  # day of the audit that this run continues
    days_skipped: bool = False  # the continued audit is not that of the day before
    retracted: Sequence[Row] = ()  # findings of earlier days: code, told (day), count, positions (some)
    scattered_keys: tuple[int, int] | None = None  # keys at several consumers in one epoch, and all keys
    acts: Sequence[SeenAct] = ()  # actions of operators and clients, and what they redelivered
    numbered_by_time: bool = False  # the source has no offsets: messages are numbered by time
    traffic: Sequence[Row] = ()  # rows of `whatif.assign.TRAFFIC`
    variation_by_ids: Mapping[str, float] = field(default_factory=dict)  # of a share (pp), by scenario

    @cached_property
    def rule_statuses(self) -> Mapping[Code, RuleStatus]:
        """The status of each rule under the policy, the terms and the available data."""
        return find_rule_statuses(self.plan.policy, self.terms, self.lacking)

    @property
    def inconclusive_rules(self) -> Mapping[Code, str]:
        """The rules whose findings may be false, with a short reason; they make the verdict *unknown*."""
        by_selector = {} if self.fit is None else {Code.WRONG_OWNER: "another selector fits"}
        return by_selector | dict.fromkeys(self.clocks.explain, "no findings after the clocks are corrected")


@dataclass(frozen=True)
class DispatchFigures:
    """The counts of one scenario's dispatch replay. ``whatif.dispatch_sums`` defines the rows."""

    plan: ScenarioPlan
    service: str  # description of the service model
    seed: int | None  # None: the model draws no random numbers
    settings: tuple[tuple[str, str], ...]
    last_published: int  # ns
    end: int  # the last event of the replay or the last publication, ns
    steps: int  # buckets of the latency histograms for every doubling
    outcomes: Sequence[Row]  # outcome, settled, rows, delivered, retried, last, late
    latencies: Sequence[Row]  # event, bucket, messages, most, delayed, early, early_least, early_most
    taken: Sequence[Row]  # consumer, window (null: all), width, messages, bytes, redelivered, …_until
    pending: Sequence[Row]  # consumer, messages
    backlog: Sequence[Row]  # window, published, settled
    unacked: Sequence[Row]  # window, held (change of the unacknowledged messages)
    waits: Sequence[Row]  # by consumer and holder: since, until, blocked, stretches, …
    hash_waits: Sequence[Row]  # the same by hash
    drains: Sequence[Row]  # kind, consumer, slot, messages, busy
    halts: Mapping[str, str] = field(default_factory=dict)  # consumers that stop working, and why
    judged: Figures | None = None  # findings in the predicted deliveries
