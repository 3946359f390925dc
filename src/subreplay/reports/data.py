"""The report data: frozen, complete and safe to publish. Renderers read nothing else.

Keys are digests unless the run shows them. Times are ISO 8601 UTC strings, and shares are fractions of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import ConfigDict

from subreplay.reports.dispatch_data import DispatchView
from subreplay.reports.finding_data import CodeSummary, FindingPoint
from subreplay.reports.formatting import format_plural
from subreplay.reports.incident_data import IncidentView
from subreplay.reports.plan_data import PlanView
from subreplay.reports.timeline_data import RunTimeline

SCHEMA_VERSION = "2.6"


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """The engine that ran the steps of a run."""

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
    """The configuration and input of a run."""

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
    versions: tuple[tuple[str, str], ...]  # subreplay; earlier reports also contain spark
    keys_shown: bool
    seed: int | None
    engine: EngineInfo | None = None  # earlier reports do not contain it


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
    """A reason why rows of a table are in quarantine; a row can have several reasons."""

    table: str
    column: str
    rule: str
    remedy: str
    rows: int
    example: str  # a value that breaks the rule; empty if it would show a key


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
    """The fraction of all slots that a consumer owned; None stands for all smaller consumers."""

    consumer: str | None
    share: float


@dataclass(frozen=True, slots=True)
class EpochView:
    """One epoch of a dispatcher. Epochs too short to draw are merged and show their final state."""

    index: int
    start: str
    end: str
    start_us: int
    end_us: int
    cause: str  # text such as "c3 joined", "first consumer" or "c1 left"
    members: tuple[str, ...]
    bands: tuple[Band, ...]  # empty for the whole map if the bands are too thin to see
    bands_left_out: int
    shares: tuple[SlotShare, ...]  # fractions of the slots; empty for partitions


@dataclass(frozen=True, slots=True)
class RangeMap:
    """The owners of slots or partitions over time."""

    scope: str  # topic or partition, short
    axis: Literal["slot", "partition"]
    low: int
    high: int
    epochs: tuple[EpochView, ...]
    epochs_left_out: int  # merged into a neighbouring epoch


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """The load of one consumer in one window. ``skew`` is its share over the fair share (``whatif.fair_share``)."""

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
    """The total load of one consumer; ``skew`` as in ``LoadPoint``."""

    consumer: str
    messages: int
    bytes: int
    keys: int
    share: float
    skew: float
    redelivered: int
    unacked: int
    note: str = ""  # why the consumer received nothing


@dataclass(frozen=True, slots=True)
class MoveView:
    """The slots that moved from one consumer to another at the start of an epoch."""

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
    key: str  # digest, or the key if the run shows keys
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
    note: str = ""  # why the consumer received nothing


@dataclass(frozen=True, slots=True)
class WindowLoad:
    """The busiest consumer of a period, in the window with its highest load.

    ``even`` is the fair share of that window in messages.
    """

    start: str  # of the period
    end: str
    consumer: str
    messages: int
    even: float


@dataclass(frozen=True, slots=True)
class Flow:
    """The slots that moved from one consumer to another, summed over all membership changes of a scenario."""

    before: str
    after: str
    slots: int  # of all dispatchers; partitions if consumers own partitions
    share: float  # fraction of all slots or partitions


@dataclass(frozen=True, slots=True)
class ScenarioView:
    """One scenario of a what-if, replayed over the same traffic; see ``docs/reference/metrics.md``."""

    name: str
    policy: str
    profile: str
    consumers: int  # the highest number connected at once
    messages: int
    max_share: float
    even_share: float
    skew: float  # max_share / even_share
    worst_window_skew: float  # at least the skew of the whole traffic
    keys: int
    hottest_key_share: float
    ceiling: float  # 1 / share of the hottest key: more consumers than this do not help
    changes: int  # membership changes during the traffic, at the dispatcher with the most
    slots_moved: float | None  # mean fraction of the slots that moved at a change; None: no slot has an owner
    traffic_moved: float | None  # fraction of the messages in moved slots; None: no slot has an owner
    keys_moved: int
    unowned: int  # messages without an owner
    unowned_why: str  # reason, as text
    per_consumer: tuple[ScenarioConsumer, ...]
    note: str = ""
    load: tuple[WindowLoad, ...] = ()  # in order of time
    flows: tuple[Flow, ...] = ()  # the largest ones
    flows_left_out: int = 0
    replayed: bool = False  # consumers, shares and skews come from the dispatch replay
    order: Literal["", "none", "key", "partition"] = ""  # what the policy keeps in order; earlier reports lack it
    keys_rerouted: int = 0  # keys whose messages go to another partition than recorded
    traffic_rerouted: float = 0.0  # fraction of the messages that go to another partition than recorded


@dataclass(frozen=True, slots=True)
class Answer:
    """The best scenarios of a what-if by one metric. ``docs/reference/metrics.md`` defines ``metric``."""

    title: str
    metric: str
    best: str  # the best figure as text; ``worst`` is the highest one
    worst: str
    scenarios: tuple[str, ...]  # the scenarios with the best figure
    compared: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """What an audit judged, and how well; ``docs/reference/run-file.md`` defines the thresholds (``liveness``)."""

    messages: int
    deliveries: int
    consumers: int  # that joined or received messages
    epochs: int
    share_judged: float  # fraction of the rows that the rules could judge
    judged_from: str  # left-truncated data are judged from this instant; empty: from the beginning
    thresholds: tuple[tuple[str, str], ...]  # ("stuck after", "30 s"); "off" if the rule has no threshold


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The answer of a what-if or a plan: what to choose, why, and at which price.

    ``scenario`` is its name; empty if the scenarios do not differ in what matters, or if a plan replays none.
    """

    scenario: str
    choice: str  # "Use auto-split with 6 consumers"
    reason: str  # "99% of the messages reach the application within 67 ms instead of 149 ms."
    price: str  # "It has 6 consumers instead of 4."; empty: none
    finalists: tuple[str, ...] = ()  # the scenarios to look at: it, the baseline, and the next ones


@dataclass(frozen=True, slots=True)
class ReportData:
    """Everything a report shows. ``schema_version`` follows semantic versioning."""

    # Applies to all nested rows: no unknown fields, and every figure is finite.
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
    dispatch: tuple[DispatchView, ...] = ()  # one for each scenario; empty if nothing was replayed
    answers: tuple[Answer, ...] = ()  # of a what-if
    quarantine: tuple[RejectReason, ...] = ()  # the most frequent first
    plans: tuple[PlanView, ...] = ()  # answers of `subreplay plan`
    doubts: tuple[str, ...] = ()  # what leaves the verdict at best unknown, one clause each
    detail: str = ""  # the sentences below the headline: since when, who, whose doing, what else
    incidents: tuple[IncidentView, ...] = ()  # of an audit, the most severe first
    timeline: RunTimeline | None = None  # of an audit
    coverage: Coverage | None = None  # of an audit
    recommendation: Recommendation | None = None  # of a what-if or a plan
    prediction_errors: tuple[
        str, ...
    ] = ()  # how close predictions of these kinds came to real brokers, one sentence each
    failed_alerts: tuple[str, ...] = ()  # why alerts about this run were not sent

    @property
    def heading(self) -> str:
        """The title of the run after what it is: ``What-if: …`` or ``Plan: …``."""
        return (
            self.run.title if self.run.kind == "audit" else f"{'Plan' if self.plans else 'What-if'}: {self.run.title}"
        )

    @property
    def several_doubts(self) -> bool:
        """Whether doubts are listed one by one, because the headline has several or none of them."""
        return len(self.doubts) > (self.verdict != "invalid")
