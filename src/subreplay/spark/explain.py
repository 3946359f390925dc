"""The life of a key: bytes, hash, slot, and its owner in each epoch, under the recorded policy and under every
scenario."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import numpy as np
from pyspark.sql import SparkSession

from subreplay.config.run import RunConfig, Spark
from subreplay.hashing.murmur3 import MASK_31, murmur3_32
from subreplay.spark import whatif_stages
from subreplay.spark.read.traffic import Frames
from subreplay.timelines.happenings import event_words
from subreplay.whatif.assign import Plan

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
    for plan in whatif_stages.plans(run, open_session, frames):
        yield from _plan_lines(plan, hash32)


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
        for epoch in timeline.epochs[1:]:
            owner = int(timeline.owner_at(slots, hashes, np.array([epoch.index], np.int32))[0])
            name = (
                timeline.consumers[owner].label
                if owner >= 0
                else "any consumer"
                if policy.routing == "any"
                else "nobody"
            )
            moved = "" if name == before else f"  <- {'moved from ' + before if before else 'first owner'}"
            yield f"  {event_words(epoch)}: {name}{moved}"
            before = name
