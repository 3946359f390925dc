"""The membership as it may have been, where somebody was served whose joining no event tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from subreplay.model.rows import Instant, MembershipEvent, Scope
from subreplay.timelines.membership import Present


def with_unknown_consumers(
    scope: Scope, events: Sequence[MembershipEvent], unknown: Mapping[str, Present]
) -> tuple[MembershipEvent, ...]:
    """The events of a dispatcher, in order, with those of ``unknown``.

    Each joins as early as it may have since the event before it was first served, and stays until its leaving is told,
    or the first event after it was last served.
    """
    story = [*events]
    for name, present in sorted(unknown.items(), key=lambda item: item[1]):
        begin = sum(event.at.at <= present.first for event in story)
        at = story[begin - 1].at if begin else Instant(present.first)
        story.insert(begin, MembershipEvent(scope, "join", name, at, at))
        told = any(event.consumer == name and event.event in ("leave", "crash") for event in story)
        after = next((i for i, event in enumerate(story) if event.at.at > present.last), None)
        if after is not None and not told:
            story.insert(after, MembershipEvent(scope, "leave", name, story[after].at, story[after].at))
    return tuple(story)
