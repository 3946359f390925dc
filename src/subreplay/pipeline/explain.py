"""Explain a key: its bytes, hash and slot, and its owner in each epoch under the recorded policy and every scenario."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import numpy as np

from subreplay.config.plans import Events, build_plans
from subreplay.config.run import RunConfig
from subreplay.engine.interface import Engine
from subreplay.hashing.murmur3 import MASK_31, murmur3_32
from subreplay.pipeline.input_tables import PassedTables
from subreplay.rows.model.text_format import has_dates
from subreplay.semantics.timelines.event_text import describe_event
from subreplay.whatif.message_assignment import ScenarioPlan


def explain_key(
    run: RunConfig, key: str, engine: Callable[[], Engine], passed: PassedTables | None = None
) -> Iterator[str]:
    """Yield the explanation line by line.

    The ``engine`` reads tables only if the run has a recorded timeline, and only those not in ``passed``.
    """
    data = os.fsencode(key)
    hash32 = murmur3_32(data)
    yield f"key     {key}"
    yield f"bytes   {data.hex(' ')} ({len(data)} bytes of UTF-8)"
    yield f"murmur3 {hash32} (32 bits, seed 0); {hash32 & MASK_31} (31 bits, as Pulsar keeps it)"
    for plan in build_plans(run, _read_events(run, engine, passed)):
        yield from _explain_plan(plan, hash32)


def _read_events(run: RunConfig, engine: Callable[[], Engine], passed: PassedTables | None) -> Events | None:
    """Read the recorded membership; None if the run names no tables and no scenario needs it."""
    named = bool(passed) or "traffic" in run.model_fields_set
    if not named and all(s.members != "recorded" for s in run.scenarios):
        return None
    from subreplay.pipeline.inputs import read_inputs, scan_inputs  # imported late: a key alone needs no tables
    from subreplay.pipeline.statistics import compute_statistics

    inputs = read_inputs(engine(), run, passed, messages_only=True)
    return compute_statistics(inputs, scan_inputs(inputs, log=False), None).events


def _explain_plan(plan: ScenarioPlan, hash32: int) -> Iterator[str]:
    policy = plan.policy
    hashes = np.array([hash32], np.uint32)
    slots = policy.compute_slots(hashes)
    low, high = policy.space
    yield ""
    yield f"{plan.name}: {policy.name} under {policy.profile}"
    yield (
        f"slot    {int(slots[0])} of {low}..{high}"
        if policy.routing == "slot"
        else f"slot    not used: routing by {policy.routing}"
    )
    for scope, timeline in plan.timelines.items():
        if len(plan.timelines) > 1:
            yield f"  {scope.full_name}"
        before: str | None = None
        changes = timeline.epochs[1:]
        dates = bool(changes) and has_dates(changes[0].start.at, changes[-1].start.at)
        for epoch in changes:
            owner = int(timeline.find_owners(slots, hashes, np.array([epoch.index], np.int32))[0])
            name = (
                timeline.consumers[owner].label
                if owner >= 0
                else "any consumer"
                if policy.routing == "any"
                else "nobody"
            )
            moved = "" if name == before else f"  <- {'moved from ' + before if before else 'first owner'}"
            yield f"  {describe_event(epoch, dates)}: {name}{moved}"
            before = name
