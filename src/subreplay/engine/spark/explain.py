"""The life of a key: bytes, hash, slot, and its owner in each epoch, under the recorded policy and under every
scenario."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np

from subreplay.config.plans import Events, plans
from subreplay.config.run import RunConfig, Spark
from subreplay.hashing.murmur3 import MASK_31, murmur3_32
from subreplay.rows.model.words import has_dates
from subreplay.semantics.timelines.event_text import event_words
from subreplay.whatif.assign import Plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from subreplay.engine.spark.read.traffic import Frames

MANY = 20


def lines(
    run: RunConfig, key: str, open_session: Callable[[Spark], SparkSession], frames: Frames | None = None
) -> Iterator[str]:
    """The explanation, line by line. Tables are read only where a timeline was recorded, and not those that are given
    as ``frames``."""
    data = os.fsencode(key)
    hash32 = murmur3_32(data)
    yield f"key     {key}"
    yield f"bytes   {data.hex(' ')} ({len(data)} bytes of UTF-8)"
    yield f"murmur3 {hash32} (32 bits, seed 0); {hash32 & MASK_31} (31 bits, as Pulsar keeps it)"
    for plan in plans(run, _recorded(run, open_session, frames)):
        yield from _plan_lines(plan, hash32)


def _recorded(run: RunConfig, open_session: Callable[[Spark], SparkSession], frames: Frames | None) -> Events | None:
    """The recorded membership; None where neither the run names tables nor a scenario wants it."""
    named = bool(frames) or "traffic" in run.model_fields_set
    if not named and all(s.members != "recorded" for s in run.scenarios):
        return None
    from subreplay.engine.spark.read.few import brought
    from subreplay.engine.spark.read.inputs import read_inputs
    from subreplay.engine.spark.read.source import looked_at

    inputs = read_inputs(open_session(run.spark), run, frames, messages_only=True)
    with closing(inputs.reads):
        return looked_at(brought(inputs, run, None, messages_only=True), None)[1].events


def _plan_lines(plan: Plan, hash32: int) -> Iterator[str]:
    policy = plan.policy
    hashes = np.array([hash32], np.uint32)
    slots = policy.slots(hashes)
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
            owner = int(timeline.owner_at(slots, hashes, np.array([epoch.index], np.int32))[0])
            name = (
                timeline.consumers[owner].label
                if owner >= 0
                else "any consumer"
                if policy.routing == "any"
                else "nobody"
            )
            moved = "" if name == before else f"  <- {'moved from ' + before if before else 'first owner'}"
            yield f"  {event_words(epoch, dates)}: {name}{moved}"
            before = name
