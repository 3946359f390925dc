"""Where the share partitions of a recording begin, by ``share.auto.offset.reset``."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from subreplay.adapters.kafka_recording.share_rows import ShareScenario
from subreplay.conformance.fidelity_share.partition_requests import FetchAnswer, PartitionActions
from subreplay.conformance.fidelity_share.shared_log import MAX_APPEND_TIME, SharedLog
from subreplay.semantics.policies.kafka.assignor import TopicPartition

BY_DURATION: Final = re.compile(r"by_duration:P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?$")
UNIT_SECONDS: Final = (86_400, 3_600, 60, 1)


def find_start(
    scenario: ShareScenario, name: TopicPartition, log: SharedLog, actions: PartitionActions
) -> tuple[int, bool]:
    """Return the start offset of a partition, and whether the rule allows it.

    A partition starts where its first fetch found the log's end, or the record of that age. It starts at 0 if the reset
    is *earliest*, or if the topic got the partition later. Which record was the last one at that instant is only known
    up to the time that an append takes; the first acquisition shows it.
    """
    reset = scenario.get_group_setting("auto.offset.reset", "latest")
    acquired = [one.acquired[0][0] for one in actions.actions if isinstance(one, FetchAnswer)]
    if reset == "earliest" or name.partition >= scenario.topics[name.topic] or actions.first_fetch is None:
        return 0, True
    low, high = (
        _find_offset(log, reset, at)
        for at in (actions.first_fetch[0] - MAX_APPEND_TIME, actions.first_fetch[1] + MAX_APPEND_TIME)
    )
    start = min(acquired, default=low)
    return start, low <= start <= high or not acquired


def _find_offset(log: SharedLog, reset: str, at: int) -> int:
    if age := BY_DURATION.match(reset):
        seconds = sum(float(value or 0) * unit for value, unit in zip(age.groups(), UNIT_SECONDS, strict=True))
        return int(np.searchsorted(log.timestamps, at - round(seconds * 1e9), "left"))
    return log.find_end(at)
