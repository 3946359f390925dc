"""Find the order in which a coordinator handled the requests of a group.

A coordinator that has just started may handle requests in another order than they arrive. Answers show the order. Under
the consumer protocol every join increases the epoch of the group, and a coordinator sends its answers in the order of
handling. The leader of the first classic generation is the member whose join was handled first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from subreplay.adapters.kafka_recording.recording_rows import GroupRequest

_PositionedRequest = tuple[int, GroupRequest]


def find_handling_times(requests: Iterable[GroupRequest]) -> Mapping[int, int]:
    """Return when (ns) each request was handled at the earliest, by its position, if that was later than its arrival.

    Arrivals are whole microseconds, so some ns keep the order of requests that were handled after the same one.
    """
    in_order = sorted(enumerate(requests), key=lambda one: one[1].received_at)
    heartbeats = [one for one in in_order if one[1].api == "consumer_group_heartbeat"]
    joins = [one for one in in_order if one[1].api == "join_group" and not one[1].error]
    return _find_heartbeat_times(heartbeats) | _find_join_times(joins)


def _find_heartbeat_times(heartbeats: Sequence[_PositionedRequest]) -> dict[int, int]:
    """Find the heartbeats that waited for their answers while a later one was handled before."""
    arrivals = [row.received_at for _, row in heartbeats]
    times: dict[int, int] = {}
    for number, (position, row) in enumerate(heartbeats):
        overlapping = heartbeats[number + 1 : bisect_left(arrivals, row.answered_at)]
        before = [other.received_at for _, other in overlapping if _is_handled_before(other, row)]
        if before:
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


def _find_join_times(joins: Sequence[_PositionedRequest]) -> dict[int, int]:
    """Find the joins of the first classic generation that arrived before that of its leader."""
    complete = min((row.answered_at for _, row in joins), default=0)
    first = [(position, row) for position, row in joins if row.received_at < complete]
    leads = (n for n, (_, row) in enumerate(first) if row.response["leader"] == row.response["memberId"])
    leader = next(leads, 0)
    return {position: first[leader][1].received_at + 1 + rank for rank, (position, _) in enumerate(first[:leader])}
