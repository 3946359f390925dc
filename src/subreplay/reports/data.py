"""Report data: frozen, complete, already safe to publish. Renderers only read it.

Keys appear as digests unless the run says otherwise; times are ISO 8601 UTC strings; shares are fractions of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import ConfigDict

from subreplay.reports.dispatch_data import DispatchView
from subreplay.reports.finding_data import CodeSummary, FindingPoint
from subreplay.reports.formatting import format_plural
from subreplay.reports.plan_data import PlanView

SCHEMA_VERSION = "2.4"


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What ran the steps of a run."""

    name: str  # local or spark
    version: str
    cores: int = 0  # 0 = unknown

    @property
    def words(self) -> str:
        """Name, version and cores, as ``Spark 4.1.1 on 2 cores``."""
        name = "Spark" if self.name == "spark" else self.name
        return f"{name} {self.version}" + (f" on {format_plural(self.cores, 'core')}" if self.cores else "")


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What was run on what."""

    run_id: str
    kind: Literal["audit", "whatif"]
    title: str
    subscription: str
    topic: str
    partitions: int  # 0 = not partitioned
    date: str | None
    window_start: str  # first and last instant of the data
    window_end: str
    policy: str
    profile: str
    options: tuple[tuple[str, str], ...]  # shown under the profile, e.g. ("points", "100")
    config_digest: str
    versions: tuple[tuple[str, str], ...]  # subreplay; in earlier reports also spark
    keys_shown: bool
    seed: int | None
    engine: EngineInfo | None = None  # earlier reports do not have it


@dataclass(frozen=True, slots=True)
class InputCount:
    """Rows of one input table: ``rows_in = valid + quarantined``."""

    table: str
    rows_in: int
    valid: int
    quarantined: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class RejectReason:
    """Why rows of a table are in quarantine; a row may have several reasons."""

    table: str
    column: str
    rule: str
    remedy: str
    rows: int
    example: str  # a value that breaks the rule; empty where it would be a key


@dataclass(frozen=True, slots=True)
class Fact:
    """A headline figure, e.g. ("At the expected owner", "4,001 of 4,001", "outside transitions")."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Band:
    """Inclusive slots ``[start, end]`` and the consumer's name (None = nobody)."""

    start: int
    end: int
    consumer: str | None


@dataclass(frozen=True, slots=True)
class SlotShare:
    """What part of all slots a consumer owned; None: the smaller consumers together."""

    consumer: str | None
    share: float


@dataclass(frozen=True, slots=True)
class EpochView:
    """One epoch of one dispatcher: when, why, who. Epochs too short to be told apart are one, as it was at its end."""

    index: int
    start: str
    end: str
    start_us: int
    end_us: int
    cause: str  # in words: "c3 joined", "first consumer", "c1 left"
    members: tuple[str, ...]
    bands: tuple[Band, ...]  # of all epochs of a map, or of none: there they are too thin to be seen
    bands_left_out: int
    shares: tuple[SlotShare, ...]  # of the slots; empty for partitions


@dataclass(frozen=True, slots=True)
class RangeMap:
    """The picture of a subscription: slots (or partitions) × time, coloured by consumer."""

    scope: str  # topic or partition, short
    axis: Literal["slot", "partition"]
    low: int
    high: int
    epochs: tuple[EpochView, ...]
    epochs_left_out: int  # told together with a neighbour


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """What one consumer was given in one window. ``skew`` is its share over the even one (``whatif.balance``)."""

    window_start: str
    window_end: str
    consumer: str
    messages: int
    bytes: int
    keys: int
    share: float
    skew: float


@dataclass(frozen=True, slots=True)
class ConsumerTotal:
    """What one consumer was given in all; ``skew`` as in ``LoadPoint``."""

    consumer: str
    messages: int
    bytes: int
    keys: int
    share: float
    skew: float
    redelivered: int
    unacked: int
    note: str = ""  # why it was given nothing


@dataclass(frozen=True, slots=True)
class MoveView:
    """What changed hands at one epoch, from one consumer to another."""

    scope: str
    epoch: int
    at: str
    cause: str
    before: str
    after: str
    slots: int
    share_of_space: float
    keys: int
    messages: int
    share_of_traffic: float


@dataclass(frozen=True, slots=True)
class HotKey:
    key: str  # digest, or the key where configured
    messages: int
    share: float
    slot: int | None
    consumer: str | None  # the owner in the last epoch


@dataclass(frozen=True, slots=True)
class ScenarioConsumer:
    consumer: str
    messages: int
    bytes: int
    keys: int
    share: float
    skew: float
    note: str = ""  # why it was given nothing


@dataclass(frozen=True, slots=True)
class WindowLoad:
    """The busiest consumer of a stretch of windows, in that of them in which it had the most; ``even``: what a balanced
    share of that window would have been, in messages."""

    start: str  # of the stretch
    end: str
    consumer: str
    messages: int
    even: float


@dataclass(frozen=True, slots=True)
class Flow:
    """What passed from one consumer to another, summed over all changes of a scenario's members."""

    before: str
    after: str
    slots: int  # of all dispatchers; partitions, where consumers own partitions
    share: float  # of all slots, or partitions


@dataclass(frozen=True, slots=True)
class ScenarioView:
    """One scenario of a what-if, replayed over the same traffic; see ``docs/reference/metrics.md``."""

    name: str
    policy: str
    profile: str
    consumers: int  # the most connected at once
    messages: int
    max_share: float
    even_share: float
    skew: float  # max_share / even_share
    worst_window_skew: float  # never better than the skew of the whole
    keys: int
    hottest_key_share: float
    ceiling: float  # speed-up that the hottest key allows: 1 / its share; more consumers than this do not help
    changes: int  # of the members while there was traffic, at the dispatcher with the most of them
    slots_moved: float | None  # how much of the space changed hands at a change, on average; None: nobody owns slots
    traffic_moved: float | None  # fraction of the messages whose slot had just got another owner; None: as above
    keys_moved: int
    unowned: int  # messages nobody owned
    unowned_why: str  # in words
    per_consumer: tuple[ScenarioConsumer, ...]
    note: str = ""
    load: tuple[WindowLoad, ...] = ()  # in order of time
    flows: tuple[Flow, ...] = ()  # the largest
    flows_left_out: int = 0
    replayed: bool = False  # consumers, shares and skews are those of the dispatch replay


@dataclass(frozen=True, slots=True)
class Answer:
    """Which scenarios of a what-if are best by one measure. ``metric`` is its name in ``docs/reference/metrics.md``."""

    title: str
    metric: str
    best: str  # in words, as the highest of all, which is ``worst``
    worst: str
    scenarios: tuple[str, ...]  # that have the best
    compared: int


@dataclass(frozen=True, slots=True)
class ReportData:
    """Everything a report shows. ``schema_version`` follows semantic versioning."""

    # How ``json_report`` writes and reads this row and all below it: nothing else is in it, and every figure is finite.
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid",
        allow_inf_nan=False,
        ser_json_inf_nan="constants",
        json_schema_serialization_defaults_required=True,
    )

    schema_version: str
    run: RunInfo
    verdict: str
    headline: str  # the verdict in one sentence
    inputs: tuple[InputCount, ...]
    facts: tuple[Fact, ...]
    range_maps: tuple[RangeMap, ...]
    range_maps_left_out: int
    load: tuple[LoadPoint, ...]
    totals: tuple[ConsumerTotal, ...]
    moves: tuple[MoveView, ...]
    moves_left_out: int
    hot_keys: tuple[HotKey, ...]
    codes: tuple[CodeSummary, ...]
    findings_over_time: tuple[FindingPoint, ...]
    scenarios: tuple[ScenarioView, ...]
    cannot_tell: tuple[str, ...]
    dispatch: tuple[DispatchView, ...] = ()  # one a scenario; empty: nothing was replayed
    answers: tuple[Answer, ...] = ()  # of a what-if
    quarantine: tuple[RejectReason, ...] = ()  # the most frequent first
    plans: tuple[PlanView, ...] = ()  # answers of `subreplay plan`
    doubts: tuple[str, ...] = ()  # what leaves the verdict at best unknown, one clause each

    @property
    def several_doubts(self) -> bool:
        """Whether doubts are told one by one, since the headline has several, or none of them."""
        return len(self.doubts) > (self.verdict != "invalid")
