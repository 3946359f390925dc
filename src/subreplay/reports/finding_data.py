"""The findings in a report: counts by rule, window and consumer, and sentences for the worst ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CodeStatus = Literal["clean", "violated", "allowed", "counted", "not applicable", "unknown"]
Source = Literal["observed", "predicted"]  # recorded deliveries, or those of a replay


@dataclass(frozen=True, slots=True)
class FindingView:
    """One finding as a sentence, with its evidence."""

    at: str
    sentence: str
    scope: str
    key: str
    consumer: str
    cause: str  # "epoch 3: c1 left at 12:00:03.120" or "unexplained"
    witness: tuple[str, ...]  # evidence rows, for example "5:120 -> c1 at …, acked …"
    window: str = ""  # start of the report window that counts it; empty if unknown
    attribution: str = ""  # responsible component: broker, consumer application, producer, …
    tickets: tuple[str, ...] = ()  # known upstream faults that match the finding


@dataclass(frozen=True, slots=True)
class KnownFault:
    """A known upstream fault that matches findings of a rule."""

    ticket: str  # "apache/pulsar#23870"
    url: str
    title: str
    sentence: str  # "looks like apache/pulsar#23870, fixed in 4.0.3"
    releases: str  # a sentence about affected and fixed releases
    advice: str  # what to do
    findings: int  # number of described findings that match


@dataclass(frozen=True, slots=True)
class CodeSummary:
    """The result of one rule. ``meaning`` explains the rule to a first-time reader in one sentence."""

    code: str
    title: str
    meaning: str
    status: CodeStatus
    verdict: str  # valid, unknown, invalid
    count: int
    worst: tuple[FindingView, ...]  # failing ones first, then by time (`finding_views.sample_findings`)
    note: str = ""  # why allowed / not applicable / unknown
    source: Source = "observed"
    incidents: tuple[KnownFault, ...] = ()  # known upstream faults that match the described findings


@dataclass(frozen=True, slots=True)
class FindingPoint:
    window_start: str
    code: str
    consumer: str
    count: int
