"""The dispatch replay as a stage of a run."""

from __future__ import annotations

from collections.abc import Sequence

from subreplay.pipeline.source import Source
from subreplay.reports.figures import DispatchFigures
from subreplay.whatif.assign import Plan


def dispatch_asked(source: Source, plans: Sequence[Plan]) -> str:
    raise NotImplementedError


def replay_dispatch(source: Source, plans: Sequence[Plan]) -> tuple[DispatchFigures, ...]:
    raise NotImplementedError
