"""Findings in a report: counted by rule, by window and by consumer, and the worst of them in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CodeStatus = Literal["clean", "violated", "allowed", "counted", "not applicable", "unknown"]
Source = Literal["observed", "predicted"]  # recorded deliveries, or those of a replay


@dataclass(frozen=True, slots=True)
class FindingView:
    """One finding in words, with its witness."""

    at: str
    sentence: str
    scope: str
    key: str
    consumer: str
    cause: str  # "epoch 3: c1 left at 12:00:03.120" or "unexplained"
    witness: tuple[str, ...]  # rows in words: "5:120 -> c1 at …, acked …"
    window: str = ""  # start of the report's window it is counted in; empty: not known
    attribution: str = ""  # whose doing it is, as far as the data show: broker, consumer application, producer, …
    tickets: tuple[str, ...] = ()  # of its rule's incidents, that it looks like


@dataclass(frozen=True, slots=True)
class IncidentView:
    """A known upstream fault that findings of a rule look like."""

    ticket: str  # "apache/pulsar#23870"
    url: str
    title: str
    sentence: str  # "looks like apache/pulsar#23870, fixed in 4.0.3"
    releases: str  # which are affected and fixed, as a sentence
    advice: str  # what to do
    findings: int  # of those in words


@dataclass(frozen=True, slots=True)
class CodeSummary:
    """One rule and what it found. ``meaning`` is one sentence for somebody who never saw the tool."""

    code: str
    title: str
    meaning: str
    status: CodeStatus
    verdict: str  # valid, unknown, invalid
    count: int
    worst: tuple[FindingView, ...]  # failing ones first, then in order of time; chosen by `findings.spread`
    note: str = ""  # why allowed / not applicable / unknown
    source: Source = "observed"
    incidents: tuple[IncidentView, ...] = ()  # known upstream faults that findings in words look like


@dataclass(frozen=True, slots=True)
class FindingPoint:
    window_start: str
    code: str
    consumer: str
    count: int
