"""What a run counted, before it is put into words: plain rows and folded timelines, the same whoever counted them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from subreplay.replay.assign import Plan
from subreplay.replay.balance import Connected

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Figures:
    """What a run counted; rows are plain mappings. Empty where the run had no such part."""

    topic: str
    inputs: Sequence[Row]  # table, valid, quarantined
    extent: Row  # first, last (ns), messages
    width: int  # of the report's windows, ns
    plan: Plan
    connected: tuple[Connected, ...]
    hottest: int = 0  # messages of the hottest key
    hot_keys: Sequence[Row] = ()  # key (word), messages, slot, consumer
    totals: Row = field(default_factory=dict)
    load: Sequence[Row] = ()  # window, consumer, messages, bytes, keys
    consumers: Sequence[Row] = ()  # consumer, messages, bytes, keys, redelivered, unacked
    findings: Sequence[Row] = ()  # window, code, excuse, consumer, count
    worst: Sequence[Row] = ()  # violations
    scattered: tuple[int, int] | None = None  # keys at several consumers of one epoch, of how many
    traffic: Sequence[Row] = ()  # the views of `spark.whatif.summary`
