"""Recordings that begin in mid-life: what was before an instant is cut off, as far as a log's retention goes."""

from __future__ import annotations

from random import Random
from typing import Literal

from tests.support.faults import Capture, Row, nanos, position

Messages = Literal["all", "from then on", "that are still told of"]


def cut(c: Capture, moment: int, messages: Messages, joins: bool, acks: bool) -> None:
    """Cut off what was delivered before ``moment`` (ns).

    ``messages``: which of the log are kept; ``joins``: whether membership events before it are; ``acks``: whether those
    later acknowledgements are whose delivery was before it.
    """
    kept: list[Row] = []
    for d in c.deliveries:
        at = nanos(d, "delivered_at")
        if at is None or at >= moment:
            kept.append(d)
        elif acks and (nanos(d, "acked_at") or 0) >= moment:
            kept.append(d | {"delivered_at": None, "received_at": None})
    c.deliveries = kept
    reported = {position(d) for d in kept}
    if messages != "all":
        still = reported if messages == "that are still told of" else set()
        c.messages = [m for m in c.messages if m["publish_time"] * 1000 >= moment or position(m) in still]
    if not joins:
        c.membership = [m for m in c.membership if (nanos(m, "at") or 0) >= moment]


def some_moment(c: Capture, rng: Random) -> int:
    """An instant in the first two thirds of the deliveries, between two of them."""
    times = sorted(t for d in c.deliveries if (t := nanos(d, "delivered_at")) is not None)
    return times[rng.randrange(1, 2 * len(times) // 3)]
