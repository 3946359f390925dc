"""Find the order in which a coordinator handled the heartbeats of a group under the consumer protocol.

A coordinator that has just started may handle requests in another order than they arrive. Answers show the order: every
join increases the epoch of the group, and a coordinator sends its answers in the order of handling.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping

from subreplay.adapters.kafka_recording.recording_rows import GroupRequest


def find_handling_times(requests: Iterable[GroupRequest]) -> Mapping[int, int]:
    """Return when (ns) each request was handled at the earliest, by its position, if that was later than its arrival.

    Only heartbeats of the consumer protocol that arrived while others waited for their answers can be handled late.
    """
    heartbeats = sorted(
        ((position, row) for position, row in enumerate(requests) if row.api == "consumer_group_heartbeat"),
        key=lambda one: one[1].received_at,
    )
    arrivals = [row.received_at for _, row in heartbeats]
    times: dict[int, int] = {}
    for number, (position, row) in enumerate(heartbeats):
        overlapping = heartbeats[number + 1 : bisect_left(arrivals, row.answered_at)]
        before = [other.received_at for _, other in overlapping if _is_handled_before(other, row)]
        if before:  # arrivals are whole microseconds, so some ns keep the order
            times[position] = max(before) + len(before)
    return times


def _is_handled_before(one: GroupRequest, other: GroupRequest) -> bool:
    """Whether the answers show that the coordinator handled ``one`` first, although it arrived later."""
    if one.request["memberEpoch"] != 0 or other.request["memberEpoch"] != 0:
        return one.answered_at < other.answered_at
    return _get_join_order(one) < _get_join_order(other)


def _get_join_order(row: GroupRequest) -> tuple[int, bool]:
    """Return a sort key of joins: the epoch, and in one epoch the join that caused the target first."""
    assignment = row.response.get("assignment") or {}
    return row.response["memberEpoch"], not assignment.get("topicPartitions")
