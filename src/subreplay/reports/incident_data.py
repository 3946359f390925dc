"""The incidents of an audit: groups of findings with one cause, consumer or partition at one time."""

from __future__ import annotations

from dataclasses import dataclass

from subreplay.reports.finding_data import FindingView, KnownFault


@dataclass(frozen=True, slots=True)
class RuleCount:
    """The findings of one rule in an incident."""

    code: str
    title: str
    verdict: str  # invalid, unknown
    findings: int


@dataclass(frozen=True, slots=True)
class IncidentView:
    """One incident. ``title`` says what went wrong, with the figure that matters; ``detail`` says how, in sentences.

    ``start`` and ``end`` are those of the findings, or of what caused them if that is earlier. Texts are empty, and
    tuples are empty, if nothing is known.
    """

    number: int  # from 1, the most severe first
    title: str
    detail: str
    verdict: str  # invalid, unknown
    code: str  # the rule that explains the others
    rules: tuple[RuleCount, ...]  # the explaining rule first
    start: str
    end: str
    start_us: int
    end_us: int
    lasted: str  # length as text, such as "8 min 12 s"
    ongoing: bool  # lasts until the data end
    findings: int
    consumers: tuple[str, ...]  # the actors, those with the most findings first; at most MOST_NAMED
    consumers_left_out: int
    scopes: tuple[str, ...]  # topic partitions, as "orders, partition 3"; at most MOST_NAMED
    scopes_left_out: int
    causes: tuple[str, ...]  # those of the most findings first; at most MOST_NAMED
    causes_left_out: int
    attribution: str  # responsible component: broker, consumer application, producer, …
    example: FindingView | None  # the worst finding, with its evidence
    next_step: str  # what to do now
    known_faults: tuple[KnownFault, ...] = ()  # known upstream faults that its findings match
    waiting: tuple[str, ...] = ()  # other consumers whose messages wait, as far as its described findings name them
